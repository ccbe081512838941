"""Daemons behind the proxies of etc/ restart in turn, and no request is lost (docs/guides/scaling.md)."""

from __future__ import annotations

import json
import signal
import ssl
import threading
from contextlib import ExitStack
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from operator import gt
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon import KEY, PATIENCE, QUICK, Daemon, wait_for
from support.proxies import installed_proxies, proxied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Database, Server

SCHEMA = """
create table entry (id int generated always as identity primary key);
grant select, insert on entry to anon;
"""
HEADERS = {"apikey": KEY, "Content-Type": "application/json"}
CLIENTS = 3
"""For each proxy: more than a daemon has workers, so that each of them has requests when it stops."""
ANSWERED = "dataapi_requests_total{"
DELAY = {"shutdown-delay": "5"}
"""Enough for HAProxy to see that a daemon is to stop, however long the machine takes for an answer."""
FOR_EVER = "600"


class Client:
    """A client that reads and writes by turns, over a connection that it keeps while it can."""

    def __init__(self, port: int) -> None:
        self.written = 0
        self._connection = HTTPSConnection(
            "127.0.0.1", port, timeout=PATIENCE, context=ssl._create_unverified_context()
        )

    def read(self) -> int:
        """Read a row and return the status."""
        return self._ask("GET", "/rest/v1/entry?limit=1")

    def look(self) -> int:
        """Ask for the head of a row, which no load does, and return the status."""
        return self._ask("HEAD", "/rest/v1/entry?limit=1")

    def write(self) -> int:
        """Add a row and return the status."""
        status = self._ask("POST", "/rest/v1/entry", "{}")
        self.written += status == 201
        return status

    def send_write(self) -> None:
        """Ask for another row and return at once; ``status`` waits."""
        self._connection.request("POST", "/rest/v1/entry", "{}", HEADERS)

    def _ask(self, method: str, path: str, body: str | None = None) -> int:
        self._connection.request(method, path, body, HEADERS)
        return self.status()

    def status(self) -> int:
        """Wait for the answer and return its status."""
        response = self._connection.getresponse()
        response.read()
        return response.status

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class Load:
    """Clients that ask again and again; use it as a context manager.

    :ivar losses: what came in place of an answer.
    """

    def __init__(self, port: int) -> None:
        self.answers = 0
        self.losses: list[object] = []
        self.clients = [Client(port) for _ in range(CLIENTS)]
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(each,)) for each in self.clients]

    def __enter__(self) -> Load:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ask no more."""
        self.end()

    def end(self) -> None:
        """Ask no more, and wait for the last answers."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        for client in self.clients:
            client.close()

    def _ask(self, client: Client) -> None:
        while not self._ended.is_set():
            try:
                statuses = client.read(), client.write()
            except (OSError, HTTPException) as error:
                client.close()
                self.losses.append(repr(error))
            else:
                self.answers += 2
                if statuses != (200, 201):
                    self.losses.append(statuses)


def looks(daemon: Daemon) -> float:
    """Return how many requests for a head a daemon has answered since it started."""
    lines = daemon.admin("GET", "/metrics").body.decode().splitlines()
    asked = [line for line in lines if line.startswith(ANSWERED) and 'method="HEAD"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in asked)


def rows(database: Database) -> int:
    """Count what was written."""
    [(count,)] = database.execute("select count(*) from entry")
    return int(count)


def wait_answers(port: int, daemons: list[Daemon]) -> None:
    """Wait until every daemon has answered one client of a proxy, which is bound to none."""
    before = [looks(daemon) for daemon in daemons]
    lone = Client(port)
    wait_for(
        lambda: lone.look() == 200 and all(map(gt, map(looks, daemons), before)),
        "all to answer one client",
    )
    lone.close()


def test_a_rolling_restart_loses_no_request(server: Server, tmp_path: Path) -> None:
    proxies = installed_proxies()
    database = server.create_database(SCHEMA)
    with ExitStack() as stack:
        daemons = []
        for workers in ("1", "2"):
            (tmp_path / workers).mkdir()
            settings = {**DELAY, "workers": workers}
            daemon = Daemon(tmp_path / workers, database.uri, settings=settings)
            daemons.append(stack.enter_context(daemon))
        for daemon in daemons:
            daemon.wait_ready()
        ports, loads = [], []
        for proxy in proxies:
            (tmp_path / proxy).mkdir()
            ports.append(stack.enter_context(proxied(proxy, tmp_path / proxy, daemons)).port)
            wait_answers(ports[-1], daemons)
            loads.append(stack.enter_context(Load(ports[-1])))
        for daemon in daemons:
            assert daemon.stop() == 0
            daemon.start()
            daemon.wait_ready()
            # Each proxy finds out for itself that the daemon is back, before the other one stops.
            for port in ports:
                wait_answers(port, [daemon])
        for load in loads:
            load.end()
        assert [load.losses for load in loads] == [[] for _ in proxies]
        written = [client.written for load in loads for client in load.clients]
        assert rows(database) == sum(written)
        assert all(written)


def stopping(folder: Path, database: Database, delay: str) -> Daemon:
    """Make a daemon that answers on for so many seconds when it is to stop."""
    folder.mkdir()
    return Daemon(folder, database.uri, settings={"shutdown-delay": delay})


@pytest.fixture(scope="module")
def entries(server: Server) -> Database:
    """Give a database that is written to."""
    return server.create_database(SCHEMA)


@pytest.fixture(scope="module")
def bystander(entries: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Give a daemon that goes on while the other one stops."""
    with stopping(tmp_path_factory.mktemp("bystander") / "daemon", entries, "0") as daemon:
        daemon.wait_ready()
        yield daemon


@pytest.mark.parametrize(
    ("proxy", "delay", "statuses"),
    [("nginx", FOR_EVER, [201, 201]), ("nginx", "0", [201, 502]), ("haproxy", FOR_EVER, [201, 201])],
)
def test_a_request_on_its_way_while_a_daemon_stops_is_answered_by_the_delay_alone(
    proxy: str, delay: str, statuses: list[int], entries: Database, bystander: Daemon, tmp_path: Path
) -> None:
    """The proxy learns of both at once: a change to pass on, and that the daemon for it has gone.

    Without the delay nginx sends it on a connection that it kept, and repeats no POST.
    """
    if proxy not in installed_proxies():
        pytest.skip(f"needs {proxy}")
    with stopping(tmp_path / "daemon", entries, delay) as daemon:
        daemon.wait_ready()
        daemons = [daemon, bystander]
        # However slow the machine is, connections are still kept when they are needed.
        kept = [("keepalive_timeout 1s", "keepalive_timeout 600s")] if proxy == "nginx" else []
        with proxied(proxy, tmp_path, daemons, *kept) as running:
            wait_answers(running.port, daemons)
            clients = [Client(running.port) for _ in daemons]
            assert [client.read() for client in clients] == [200, 200]
            with running.frozen():
                for client in clients:
                    client.send_write()
                if delay == "0":
                    assert daemon.stop() == 0
                else:
                    daemon.process.send_signal(signal.SIGTERM)
                    wait_for(lambda: daemon.admin("GET", "/ready").status == 503, "the end of readiness")
            assert sorted(client.status() for client in clients) == statuses
            for client in clients:
                client.close()


def test_a_daemon_that_is_to_stop_answers_for_a_while(served: Database, tmp_path: Path) -> None:
    """It says so by ``/ready`` and closes connections after an answer; who asks again need not wait."""
    settings = {"shutdown-delay": "600"}
    with Daemon(tmp_path, served.uri, settings=settings) as daemon:
        daemon.wait_ready()
        assert "Connection" not in daemon.graphql(QUICK).headers
        daemon.process.send_signal(signal.SIGTERM)
        wait_for(lambda: daemon.admin("GET", "/ready").status == 503, "the end of readiness")
        wait_for(lambda: daemon.graphql(QUICK).headers.get("Connection") == "close", "last answers")
        assert daemon.admin("GET", "/ready").json["draining"]
        assert json.loads(daemon.graphql(QUICK).body)["data"]
        assert daemon.stop() == 1


def test_events_pass_as_they_come(entries: Database, bystander: Daemon, tmp_path: Path) -> None:
    with stopping(tmp_path / "daemon", entries, "0") as daemon:
        daemon.wait_ready()
        with ExitStack() as until_then:
            streams = []
            for proxy in installed_proxies():
                (tmp_path / proxy).mkdir()
                running = until_then.enter_context(proxied(proxy, tmp_path / proxy, [daemon, bystander]))
                connection = HTTPSConnection(
                    "127.0.0.1", running.port, timeout=PATIENCE, context=ssl._create_unverified_context()
                )
                until_then.callback(connection.close)
                accept = {**HEADERS, "Accept": "text/event-stream"}
                connection.request("GET", "/rest/v1/entry?order=id.desc&limit=1", headers=accept)
                streams.append(connection.getresponse())
                next(_answers(streams[-1]))
            [(added,)] = entries.execute("insert into entry default values returning id")
            for stream in streams:
                assert next(_answers(stream)) == [{"id": added}]
            for stream in streams:
                heartbeat = iter(stream.readline, b":\n")
                assert not [line for line in heartbeat if line.startswith(b"data")]


def _answers(stream: HTTPResponse) -> Iterator[Any]:
    """Give the answers that events carry."""
    lines = iter(stream.readline, b"")
    return (json.loads(line[6:]) for line in lines if line.startswith(b"data:"))
