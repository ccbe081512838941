"""Rolling restarts of daemons behind the proxies in etc/ lose no requests (docs/guides/scaling.md)."""

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
"""Clients per proxy: more than there are workers, so that every worker is busy when it stops."""
REQUESTS = "dataapi_requests_total{"
DELAY = {"shutdown-delay": "5"}
"""A delay in which HAProxy notices that a daemon is stopping, even on a slow machine."""
FOR_EVER = "600"


class Client:
    """A client that alternates reads and writes over a persistent connection."""

    def __init__(self, port: int) -> None:
        self.written = 0
        self._connection = HTTPSConnection(
            "127.0.0.1", port, timeout=PATIENCE, context=ssl._create_unverified_context()
        )

    def read(self) -> int:
        return self._send("GET", "/rest/v1/entry?limit=1")

    def head(self) -> int:
        """Send a HEAD request, unlike the clients of ``Load``, and return the status."""
        return self._send("HEAD", "/rest/v1/entry?limit=1")

    def write(self) -> int:
        """Insert a row and return the status."""
        status = self._send("POST", "/rest/v1/entry", "{}")
        self.written += status == 201
        return status

    def send_write(self) -> None:
        """Send an insert without waiting for the response. Call ``status`` to wait."""
        self._connection.request("POST", "/rest/v1/entry", "{}", HEADERS)

    def _send(self, method: str, path: str, body: str | None = None) -> int:
        self._connection.request(method, path, body, HEADERS)
        return self.status()

    def status(self) -> int:
        """Wait for the response and return its status."""
        response = self._connection.getresponse()
        response.read()
        return response.status

    def close(self) -> None:
        self._connection.close()


class Load:
    """A context manager that runs clients in threads.

    :ivar losses: errors and unexpected statuses.
    """

    def __init__(self, port: int) -> None:
        self.responses = 0
        self.losses: list[object] = []
        self.clients = [Client(port) for _ in range(CLIENTS)]
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(each,)) for each in self.clients]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop the clients after their last responses."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        for client in self.clients:
            client.close()

    def _send(self, client: Client) -> None:
        while not self._ended.is_set():
            try:
                statuses = client.read(), client.write()
            except (OSError, HTTPException) as error:
                client.close()
                self.losses.append(repr(error))
            else:
                self.responses += 2
                if statuses != (200, 201):
                    self.losses.append(statuses)


def heads(daemon: Daemon) -> float:
    """Return the number of HEAD requests that a daemon has handled since its start."""
    lines = daemon.admin("GET", "/metrics").body.decode().splitlines()
    matching = [line for line in lines if line.startswith(REQUESTS) and 'method="HEAD"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in matching)


def rows(database: Database) -> int:
    [(count,)] = database.execute("select count(*) from entry")
    return int(count)


def wait_for_responses(port: int, daemons: list[Daemon]) -> None:
    """Wait until every daemon has handled a request of a single client."""
    before = [heads(daemon) for daemon in daemons]
    client = Client(port)
    wait_for(
        lambda: client.head() == 200 and all(map(gt, map(heads, daemons), before)),
        "responses of all daemons to one client",
    )
    client.close()


def test_rolling_restart_loses_no_request(server: Server, tmp_path: Path) -> None:
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
            wait_for_responses(ports[-1], daemons)
            loads.append(stack.enter_context(Load(ports[-1])))
        for daemon in daemons:
            assert daemon.stop() == 0
            daemon.start()
            daemon.wait_ready()
            # Each proxy must detect that the daemon has restarted before the other daemon stops.
            for port in ports:
                wait_for_responses(port, [daemon])
        for load in loads:
            load.end()
        assert [load.losses for load in loads] == [[] for _ in proxies]
        written = [client.written for load in loads for client in load.clients]
        assert rows(database) == sum(written)
        assert all(written)


def stopping(folder: Path, database: Database, delay: str) -> Daemon:
    """Return a daemon that continues to serve for ``delay`` seconds during shutdown."""
    folder.mkdir()
    return Daemon(folder, database.uri, settings={"shutdown-delay": delay})


@pytest.fixture(scope="module")
def entries(server: Server) -> Database:
    """Return a database that accepts inserts."""
    return server.create_database(SCHEMA)


@pytest.fixture(scope="module")
def bystander(entries: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Yield a daemon that keeps running while another daemon stops."""
    with stopping(tmp_path_factory.mktemp("bystander") / "daemon", entries, "0") as daemon:
        daemon.wait_ready()
        yield daemon


@pytest.mark.parametrize(
    ("proxy", "delay", "statuses"),
    [("nginx", FOR_EVER, [201, 201]), ("nginx", "0", [201, 502]), ("haproxy", FOR_EVER, [201, 201])],
)
def test_shutdown_delay_saves_requests_sent_during_shutdown(
    proxy: str, delay: str, statuses: list[int], entries: Database, bystander: Daemon, tmp_path: Path
) -> None:
    """The proxy is frozen while requests are sent and a daemon stops, so it detects both at the same time.

    Without the delay, nginx sends the request over a closed connection, and does not repeat a POST.
    """
    if proxy not in installed_proxies():
        pytest.skip(f"needs {proxy}")
    with stopping(tmp_path / "daemon", entries, delay) as daemon:
        daemon.wait_ready()
        daemons = [daemon, bystander]
        # Prevents idle connections from expiring on a slow machine.
        replaced = [("keepalive_timeout 1s", "keepalive_timeout 600s")] if proxy == "nginx" else []
        with proxied(proxy, tmp_path, daemons, *replaced) as running:
            wait_for_responses(running.port, daemons)
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


def test_daemon_serves_requests_during_shutdown_delay(served: Database, tmp_path: Path) -> None:
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


def test_proxies_do_not_buffer_events(entries: Database, bystander: Daemon, tmp_path: Path) -> None:
    with stopping(tmp_path / "daemon", entries, "0") as daemon:
        daemon.wait_ready()
        with ExitStack() as stack:
            streams = []
            for proxy in installed_proxies():
                (tmp_path / proxy).mkdir()
                running = stack.enter_context(proxied(proxy, tmp_path / proxy, [daemon, bystander]))
                connection = HTTPSConnection(
                    "127.0.0.1", running.port, timeout=PATIENCE, context=ssl._create_unverified_context()
                )
                stack.callback(connection.close)
                accept = {**HEADERS, "Accept": "text/event-stream"}
                connection.request("GET", "/rest/v1/entry?order=id.desc&limit=1", headers=accept)
                streams.append(connection.getresponse())
                next(_results(streams[-1]))
            [(added,)] = entries.execute("insert into entry default values returning id")
            for stream in streams:
                assert next(_results(stream)) == [{"id": added}]
            for stream in streams:
                heartbeat = iter(stream.readline, b":\n")
                assert not [line for line in heartbeat if line.startswith(b"data")]


def _results(stream: HTTPResponse) -> Iterator[Any]:
    """Yield the results contained in events."""
    lines = iter(stream.readline, b"")
    return (json.loads(line[6:]) for line in lines if line.startswith(b"data:"))
