"""A webhooks installation: a database, daemon processes, and a recording receiver."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg2
from dataapi.cli.main import run
from dataapi.database.script import complete, opened
from dataapi.webhooks.model import NewEndpoint
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store.endpoints import Endpoints
from support.daemon import PATIENCE, Daemon, environment, wait_for
from support.management import event
from support.recorder import HOOK
from support.webhooks import ACME, KEY, PAUSED, REF, SECRET, allow_migrations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from support.daemon import Answer
    from support.postgres import Database
    from support.recorder import Recorder

WAITS = "0.2, 0.3, 0.4, 0.5"
"""A shortened retry schedule."""
TIMEOUT = 1.0
PATIENT = 60.0
"""Timeout of delivery attempts, in seconds."""
LEASE = TIMEOUT + 10.0
"""Length of a lease, in seconds."""
ENDPOINTS = "/v2/organizations/acme/webhooks/endpoints"


@dataclass
class Installation:
    """An organization with a project, ready for endpoints; ``end`` kills the remaining daemons.

    :ivar settings: section ``[webhooks]`` of daemons started from now on.
    :ivar token: a token with all permissions.
    :ivar operator: an operator token.
    :ivar uri: connection URI of daemons and commands; "" for the URI of the database.
    :ivar past_pooler: whether webhooks connect directly to PostgreSQL if there is a pooler
        (docs/guides/poolers.md).
    """

    folder: Path
    database: Database
    recorder: Recorder
    settings: Mapping[str, str] = field(default_factory=dict)
    token: str = ""
    operator: str = ""
    uri: str = ""
    past_pooler: bool = False
    daemons: list[Daemon] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Create the organization and the project unless they exist, and create the tokens."""
        # The test cluster otherwise loses its last commits when it is killed.
        self.database.execute(f"alter database {self.database.name} set synchronous_commit = on")
        if self.database.execute("select to_regnamespace('webhooks') is null") == [(True,)]:
            allow_migrations(self.database)
            self.command("organization", "create", ACME.organization, "--early-access")
            self.command("project", "create", REF, "--organization", ACME.organization)
        permissions = ("webhooks:read", "webhooks:write", "events:publish")
        granted = [word for one in permissions for word in ("--permission", one)]
        self.token = self.command("token", "create", "--organization", ACME.organization, *granted).strip()
        self.operator = self.command("token", "create", "--operator").strip()

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables that configure webhooks."""
        settings = {
            "retry-waits": WAITS,
            "timeout": str(TIMEOUT),
            "allow-addresses": "127.0.0.0/8",
            "encryption-key": KEY,
            **({"db-uri": self.database.direct_uri} if self._pooled and self.past_pooler else {}),
            **self.settings,
        }
        return {f"DATAAPI_WEBHOOKS_{name.upper().replace('-', '_')}": text for name, text in settings.items()}

    @property
    def _pooled(self) -> bool:
        return self.database.uri != self.database.direct_uri

    @property
    def _operator(self) -> dict[str, str]:
        project = {"DB_URI": self.uri or self.database.uri, "REQUIRE_API_KEY": "no"}
        return {**self.environ, **{f"DATAAPI_PROJECT_{name}": text for name, text in project.items()}}

    def daemon(self, *words: str, environ: Mapping[str, str] | None = None) -> Daemon:
        made = self._started(words, environ)
        made.wait_ready()
        return made

    def _started(self, words: Sequence[str], environ: Mapping[str, str] | None = None) -> Daemon:
        folder = self.folder / f"daemon{len(self.daemons)}"
        folder.mkdir()
        made = Daemon(
            folder,
            self.uri or self.database.uri,
            *words,
            settings={"log-level": "info"},
            environ={**self.environ, **(environ or {})},
        )
        self.daemons.append(made)
        made.start()
        return made

    def pair(self) -> tuple[Daemon, Daemon]:
        """Start two daemons concurrently and wait until both deliver."""
        first, second = self._started(()), self._started(())
        first.wait_ready()
        second.wait_ready()
        return first, second

    def end(self) -> None:
        for daemon in self.daemons:
            daemon.__exit__()

    def command(self, *words: str) -> str:
        output, errors = io.StringIO(), io.StringIO()
        code = run(words, self._operator, output, errors)
        assert code == 0, errors.getvalue()
        return output.getvalue()

    def complaints(self) -> list[str]:
        """Return the lines of the daemons' output that are internal errors or not in the log's format."""
        whole = [line for daemon in self.daemons for line in daemon.text.splitlines(keepends=True)]
        return [line for line in whole if _is_complaint(line)]

    # Endpoints -------------------------------------------------------------------------------------------

    def url(self, path: str = HOOK, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.recorder.port}{path}"

    def endpoint(self, path: str = HOOK, host: str = "127.0.0.1") -> str:
        """Create an endpoint whose URL is a path of the recorder. Return the endpoint's ID."""
        [identifier] = self.endpoints([self.url(path, host)])
        return identifier

    def endpoints(self, urls: Iterable[str]) -> list[str]:
        """Create endpoints without the API's limits, and return their IDs."""

        async def add(database: Any) -> list[str]:
            store = Endpoints(database, Cipher([KEY]), maximum=10_000)
            news = [NewEndpoint(url=url, event_types=("*",), signing_secret=SECRET) for url in urls]
            return [str((await store.create(ACME, new)).id) for new in news]

        with opened(self.database.uri) as database:
            identifiers: list[str] = complete(add(database))
            return identifiers

    def manage(
        self,
        daemon: Daemon,
        method: str,
        path: str,
        body: str | None = None,
        *,
        token: str = "",
        key: str = "",
    ) -> Answer | None:
        """Send a request to the management API, and return None if the connection breaks.

        :param token: token to use (default: the one with all permissions).
        :param key: idempotency key.
        """
        headers = {
            "Authorization": f"Bearer {token or self.token}",
            **({"Idempotency-Key": key} if key else {}),
        }
        try:
            return daemon.request(method, path, body, headers)
        except (OSError, HTTPException):
            return None

    # Publishing ------------------------------------------------------------------------------------------

    def publish(self, number: int, *, commit: bool = True, key: str = "") -> None:
        """Publish an event in SQL. Raises ``psycopg2.Error`` if PostgreSQL is unavailable."""
        with closing(psycopg2.connect(self.database.admin_uri)) as connection, connection.cursor() as cursor:
            cursor.execute(
                "select webhooks.publish(%s, 'acme', %s, jsonb_build_object('number', %s), %s)",
                (PAUSED, REF, number, key or str(uuid4())),
            )
            if commit:
                connection.commit()

    def publish_many(self, count: int) -> None:
        """Publish events numbered from 0 in one transaction."""
        self.database.execute(
            "select webhooks.publish(%s, 'acme', %s, jsonb_build_object('number', n), 'many ' || n) "
            "from generate_series(0, %s) n",
            (PAUSED, REF, count - 1),
        )

    def publish_by_http(self, daemon: Daemon, number: int, key: str) -> bool:
        """Publish an event over HTTP. Return False if the outcome is unknown."""
        body = event(key, payload={"number": number, "reason": "inactivity"})
        response = self.manage(daemon, "POST", "/v1/webhooks/events", json.dumps(body))
        # Even after 503 or 504, the event may have been published: the connection can fail after the commit.
        assert response is None or response.status in (201, 503, 504), response
        return response is not None and response.status == 201

    def publish_by_command(self, number: int) -> bool:
        """Publish an event with ``dataapi event publish``. Return False if the command failed."""
        program = Path(sys.executable).with_name("dataapi")
        words = ["event", "publish", PAUSED, "--organization", "acme", "--project", REF]
        done = subprocess.run(
            [program, *words, "--payload", json.dumps({"number": number, "reason": "inactivity"})],
            env=environment(self._operator),
            cwd=self.folder,
            capture_output=True,
            check=False,
            timeout=PATIENCE,
        )
        return done.returncode == 0

    # Database -----------------------------------------------------------------------------------------------

    @property
    def due(self) -> int:
        """Number of outstanding attempts."""
        [(count,)] = self.database.execute("select count(*) from webhooks.due")
        return int(count)

    @property
    def sessions(self) -> list[int]:
        """The daemons' PostgreSQL backends."""
        rows = self.database.execute(
            "select pid from pg_stat_activity"
            " where usename = 'authenticator' and datname = current_database()"
        )
        return [pid for (pid,) in rows]

    def wait_settled(self, seconds: float = PATIENCE) -> None:
        wait_for(lambda: self.due == 0, "the queue to be empty", seconds)

    def wait_leased(self) -> None:
        """Wait until all outstanding attempts are claimed."""
        wait_for(
            lambda: self.database.execute("select bool_and(leased) from webhooks.due") == [(True,)],
            "the claim",
        )

    def wait_only_leased(self) -> None:
        """Wait until no attempt can be claimed."""
        wait_for(
            lambda: self.database.execute("select 1 from webhooks.due where not leased limit 1") == [],
            "the last claim",
        )

    @property
    def leases(self) -> list[tuple[str, bool]]:
        """Outstanding attempts, and whether they are leased."""
        return self.database.execute(
            "select delivery_id::text, leased from webhooks.due order by delivery_id"
        )

    def pass_time(self, seconds: float) -> None:
        """Make all work due earlier, as if this many seconds had passed."""
        # Lock the table: a concurrent writer that locks rows in a different order could cause a deadlock.
        self.database.execute(
            "lock table webhooks.due in share row exclusive mode;"
            " update webhooks.due set due_at = due_at - %s * interval '1 s',"
            " claimable_at = claimable_at - %s * interval '1 s'; notify webhooks",
            (seconds, seconds),
        )

    def records(self) -> list[tuple[str, str, int, str, bool, int]]:
        """Return (event, trigger, attempt, status, is final, response code) of each record, oldest first."""
        return self.database.execute(
            "select event_id::text, trigger, attempt_number, status, next_attempt_at is null, response_code"
            " from webhooks.delivery order by id"
        )


def _is_complaint(line: str) -> bool:
    """Whether a line is an error that neither an outage nor a killed process explains."""
    if not line.endswith("\n"):
        # The process was killed while writing the line.
        return False
    try:
        entry = json.loads(line)
    except ValueError:
        return True
    expected = ("dataapi.requests", "dataapi.workers", "dataapi.catalog")
    return entry["level"] in ("error", "critical") and entry["logger"] not in expected


def kill(daemon: Daemon) -> None:
    daemon.stop(signal.SIGKILL)
