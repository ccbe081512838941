"""Random events, changes and faults against running daemons, reproducible by seed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg2
from support.installation import ENDPOINTS, LEASE
from support.known import Published, Target
from support.management import document, endpoint
from support.outages import crashed, frozen, stopped
from support.recorder import Behaviour
from support.webhooks import REF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.daemon import Daemon
    from support.installation import Installation
    from support.postgres import Server

BEHAVIOURS = {
    Behaviour.TAKE: 8, Behaviour.REFUSE: 2, Behaviour.HANG: 1, Behaviour.RESET: 1, Behaviour.REDIRECT: 1,
}  # fmt: skip
AWAY = (503,)
"""Status of a daemon whose database is unavailable."""


class Campaign:
    """Actions on an installation, and their expected results.

    :ivar answers: responses to token requests, by idempotency key.
    :ivar faults: time spans of faults, on the monotonic clock.
    :ivar log: actions performed, for diagnosing failures.
    """

    def __init__(self, installation: Installation, server: Server, seed: int) -> None:
        self.installation = installation
        self.targets: list[Target] = []
        self.published: list[Published] = []
        self.by_command: list[Published] = []
        self.rolled_back: list[int] = []
        self.answers: dict[str, set[bytes]] = {}
        self.faults: list[tuple[float, float]] = []
        self.log: list[str] = []
        self._server = server
        self._random = random.Random(seed)
        self._number = 0
        self._began = time.monotonic()
        self._running: list[Daemon] = []
        # With odd seeds, one daemon has two processes.
        self._words = [(), ("--workers", "2") if seed % 2 else ()]
        self._actions: dict[Callable[[], None], float] = {
            self.publish_by_sql: 8, self.publish_by_http: 5, self.publish_by_command: 0.7,
            self.change_behaviour: 7, self.change_url: 1, self.change_secret: 1, self.change_rate: 0.7,
            self.toggle: 1.5,
            self.add: 0.7, self.delete: 0.4, self.retry: 1, self.test: 0.7, self.wait: 4,
            self.create_token: 2, self.open_portal: 1,
            self.kill: 1, self.stop: 0.4, self.kill_worker: 0.4, self.pause: 0.7, self.lose_connections: 0.7,
            self.lose_postgresql: 0.7, self.step_over_leases: 0.7,
        }  # fmt: skip

    def run(self, seconds: float) -> None:
        """Perform random actions for this many seconds."""
        for words in self._words:
            self._running.append(self.installation.daemon(*words))
        for _ in range(5):
            self.add()
        self.targets[0].steady = False
        actions, weights = list(self._actions), list(self._actions.values())
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            [action] = self._random.choices(actions, weights)
            action()

    def settle(self, seconds: float) -> None:
        """Stop injecting faults, and wait until every delivery is finished."""
        recorder = self.installation.recorder
        # Reset earlier paths too: an endpoint keeps its earlier URL if all requests to change it failed.
        for path in [path for target in self.targets for path in target.paths]:
            if recorder.behaviours.get(path) in (Behaviour.HANG, Behaviour.RESET):
                recorder.behave(Behaviour.TAKE, path)
        for daemon in self._running:
            daemon.wait_ready()
        for event in self.published:
            self._publish(event)
        # Killed processes cannot hold leases any longer.
        self.step_over_leases()
        self.installation.wait_settled(seconds)

    def _note(self, what: str) -> None:
        self.log.append(f"{time.monotonic() - self._began:6.2f} {what}")

    @contextmanager
    def _fault(self, what: str) -> Iterator[None]:
        self._note(what)
        began = time.monotonic()
        yield
        self.faults.append((began, time.monotonic()))

    def _behaviour(self, target: Target) -> Behaviour:
        return self.installation.recorder.behaviours.get(target.paths[-1], Behaviour.TAKE)

    def _some(self, *, steady: bool | None = None) -> Target:
        return self._random.choice(
            [one for one in self.targets if not one.deleted and steady in (None, one.steady)]
        )

    def _manage(
        self, method: str, path: str, body: Any, success: int, *refusals: int
    ) -> dict[str, Any] | None:
        """Send a request to a daemon. Return ``data``, or None if it failed for an expected reason."""
        daemon = self._random.choice(self._running)
        response = self.installation.manage(daemon, method, path, None if body is None else json.dumps(body))
        if response is None or response.status in (*AWAY, *refusals):
            self._note(f"  {method} {path}: {None if response is None else response.status}")
            return None
        assert response.status == success, response
        data: dict[str, Any] = response.json["data"]
        return data

    # Publishing ------------------------------------------------------------------------------------------

    def _event(self) -> Published:
        self._number += 1
        return Published(self._number, [one.identifier for one in self.targets if one.steady])

    def _publish(self, event: Published) -> None:
        """Publish an event in SQL unless it is known to exist. Its idempotency key prevents a duplicate."""
        if not event.known:
            with suppress(psycopg2.Error):
                self.installation.publish(event.number, key=event.key)
                event.known = True

    def publish_by_sql(self) -> None:
        """Publish some events, each in its own transaction, and roll back some of the transactions."""
        for _ in range(self._random.randint(1, 6)):
            event = self._event()
            if self._random.random() < 0.2:
                self._note(f"publish {event.number} in SQL, rolled back")
                self.rolled_back.append(event.number)
                with suppress(psycopg2.Error):
                    self.installation.publish(event.number, commit=False)
            else:
                self._note(f"publish {event.number} in SQL")
                self.published.append(event)
                self._publish(event)

    def publish_by_http(self) -> None:
        """Publish an event over HTTP. If the outcome is unknown, publish it again to find out."""
        event = self._event()
        self._note(f"publish {event.number} by HTTP")
        self.published.append(event)
        daemon = self._random.choice(self._running)
        event.known = self.installation.publish_by_http(daemon, event.number, event.key)

    def publish_by_command(self) -> None:
        """Publish an event with the command, without an idempotency key."""
        event = self._event()
        self._note(f"publish {event.number} by command")
        self.by_command.append(event)
        event.known = self.installation.publish_by_command(event.number)

    # Endpoints and receivers -----------------------------------------------------------------------------

    def change_behaviour(self) -> None:
        target = self._some()
        [behaviour] = self._random.choices(list(BEHAVIOURS), list(BEHAVIOURS.values()))
        self._note(f"{target.paths[-1]} will {behaviour}")
        self.installation.recorder.behave(behaviour, target.paths[-1])

    def add(self) -> None:
        """Add an endpoint on a new host."""
        number = len(self.targets) + 1
        host, path = f"127.0.0.{number % 250 + 1}", f"/{number}"
        body = endpoint(url=self.installation.url(path, host))
        if made := self._manage("POST", ENDPOINTS, body, 201):
            self._note(f"add {path}")
            self.targets.append(Target(made["id"], host, [path]))

    def _change(self, target: Target, **attributes: Any) -> None:
        changed = document("endpoint", **attributes)
        self._manage("PATCH", f"{ENDPOINTS}/{target.identifier}", changed, 200)

    def change_url(self) -> None:
        """Move an endpoint to a new URL with the same behaviour."""
        target = self._some()
        path = f"{target.paths[0]}/{len(target.paths)}"
        self._note(f"move {target.paths[-1]} to {path}")
        self.installation.recorder.behave(self._behaviour(target), path)
        target.paths.append(path)
        self._change(target, url=self.installation.url(path, target.host))

    def change_secret(self) -> None:
        target = self._some()
        target.secrets.append(f"secret number {len(target.secrets)}")
        grace = self._random.choice([0, 60])
        self._note(f"another secret for {target.paths[-1]}, with a grace of {grace} s")
        self._change(target, signing_secret=target.secrets[-1], grace_seconds=grace)

    def change_rate(self) -> None:
        target, rate = self._some(), self._random.choice([None, None, 5, 50])
        self._note(f"{target.paths[-1]} takes {rate} a second")
        self._change(target, max_per_second=rate)

    def toggle(self) -> None:
        target = self._some(steady=False)
        enabled = self._random.random() < 0.5
        self._note(f"{target.paths[-1]} is enabled: {enabled}")
        self._change(target, enabled=enabled)

    def delete(self) -> None:
        """Delete an endpoint unless only a few are left."""
        if sum(one.steady for one in self.targets) > 3:
            target = self._some(steady=True)
            target.steady, target.deleted = False, True
            self._note(f"delete {target.paths[-1]}")
            self._manage("DELETE", f"{ENDPOINTS}/{target.identifier}", None, 200)

    def retry(self) -> None:
        """Request a manual retry of a random delivery."""
        records = self.installation.database.execute("select id::text from webhooks.delivery order by id")
        if records:
            [identifier] = self._random.choice(records)
            self._note("a manual retry")
            path = f"/v2/organizations/acme/webhooks/deliveries/{identifier}/retry"
            self._manage("POST", path, None, 201, 400, 404, 429)

    def test(self) -> None:
        target = self._some()
        self._note(f"test {target.paths[-1]}")
        self._manage("POST", f"{ENDPOINTS}/{target.identifier}/test", {}, 201, 400, 404, 429)

    # Operators -------------------------------------------------------------------------------------------

    def create_token(self) -> None:
        """Create a token with a new or used idempotency key."""
        key = f"token {self._random.randrange(8)}"
        self._note(f"create {key}")
        body = json.dumps(document("token", permissions=["webhooks:read"]))
        path = "/v2/organizations/acme/tokens"
        responses = self.answers.setdefault(key, set())
        response = self.installation.manage(
            self._random.choice(self._running), "POST", path, body, token=self.installation.operator, key=key
        )
        # If the first request was interrupted, no response is stored for its key.
        if response is not None and response.status not in (*AWAY, 409):
            assert response.status == 201, response
            responses.add(response.body)

    def open_portal(self) -> None:
        """Create a portal link, and check that it shows only its project."""
        self._note("open the portal")
        body = json.dumps(document("portal_link", project_ref=REF))
        links = "/v2/organizations/acme/portal-links"
        ask, daemon = self.installation.manage, self._random.choice(self._running)
        made = ask(daemon, "POST", links, body, token=self.installation.operator)
        if made is None or made.status in AWAY:
            return
        token = made.json["data"]["attributes"]["path"].partition("#")[2]
        for path, expected in (
            (f"/v2/projects/{REF}/webhooks/deliveries", 200),
            ("/v2/organizations/acme/webhooks/deliveries", 403),
            ("/v2/organizations", 403),
        ):
            response = ask(self._random.choice(self._running), "GET", path, token=token)
            assert response is None or response.status in (expected, *AWAY), response

    def wait(self) -> None:
        time.sleep(self._random.random() / 2)

    # Faults ----------------------------------------------------------------------------------------------

    def _replace(self, number: int) -> None:
        index = self._random.randrange(len(self._running))
        with self._fault(f"signal {number} to daemon {index}"):
            self._running[index].stop(number)
        self._running[index] = self.installation.daemon(*self._words[index])

    def kill(self) -> None:
        """Kill a daemon and start another one."""
        self._replace(signal.SIGKILL)

    def stop(self) -> None:
        self._replace(signal.SIGTERM)

    def kill_worker(self) -> None:
        """Kill one worker of a daemon with several."""
        if workers := self._running[1].children:
            with self._fault("kill a worker"), suppress(ProcessLookupError):
                os.kill(self._random.choice(workers), signal.SIGKILL)

    def pause(self) -> None:
        """Pause a process until its leases have expired, as if its virtual machine were migrated."""
        daemon = self._random.choice(self._running)
        process = self._random.choice(daemon.children or [daemon.process.pid])
        with self._fault("pause a process"), suppress(ProcessLookupError, psycopg2.Error):
            os.kill(process, signal.SIGSTOP)
            try:
                self.installation.pass_time(LEASE)
                time.sleep(self._random.random() * 1.5)
            finally:
                os.kill(process, signal.SIGCONT)

    def lose_connections(self) -> None:
        """Terminate all connections of the daemons."""
        with self._fault("end all connections"):
            self._server.terminate_backends(self.installation.database)

    def lose_postgresql(self) -> None:
        """Stop PostgreSQL for a moment."""
        away = self._random.choice([stopped, crashed, frozen])
        with self._fault(f"PostgreSQL is {away.__name__}"):
            comes_back = away(self._server)
            time.sleep(self._random.random() * 1.5)
            comes_back()

    def step_over_leases(self) -> None:
        """Advance the database's clock beyond every lease."""
        with self._fault("let all leases expire"):
            self.installation.pass_time(LEASE)
