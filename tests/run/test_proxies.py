"""Daemons behind the proxies of etc/ restart in turn, and no request is lost (docs/guides/scaling.md)."""

from __future__ import annotations

import json
import signal
import ssl
import threading
from contextlib import ExitStack
from http.client import HTTPException, HTTPSConnection
from typing import TYPE_CHECKING

import pytest
from support.daemon import KEY, PATIENCE, QUICK, Daemon, wait_for
from support.proxies import proxied

if TYPE_CHECKING:
    from pathlib import Path

    from support.postgres import Database, Server

SCHEMA = """
create table entry (id int generated always as identity primary key);
grant select, insert on entry to anon;
"""
HEADERS = {"apikey": KEY, "Content-Type": "application/json"}
CLIENTS = 16
DELAY = {"shutdown-delay": "2"}


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

    def write(self) -> int:
        """Add a row and return the status."""
        status = self._ask("POST", "/rest/v1/entry", "{}")
        self.written += status == 201
        return status

    def _ask(self, method: str, path: str, body: str | None = None) -> int:
        self._connection.request(method, path, body, HEADERS)
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


def answered(daemon: Daemon) -> bool:
    """Whether a daemon has answered any request since it started."""
    return "\ndataapi_requests_total{" in daemon.admin("GET", "/metrics").body.decode()


def rows(database: Database) -> int:
    """Count what was written."""
    [(count,)] = database.execute("select count(*) from entry")
    return int(count)


@pytest.mark.parametrize("proxy", ["nginx", "haproxy"])
def test_a_rolling_restart_loses_no_request(proxy: str, server: Server, tmp_path: Path) -> None:
    """Each request is answered, and what was written is there once; a client is bound to no daemon."""
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
        port = stack.enter_context(proxied(proxy, tmp_path, daemons))
        lone = Client(port)
        wait_for(lambda: lone.read() == 200 and all(map(answered, daemons)), "both to answer one client")
        lone.close()
        with Load(port) as load:
            for daemon in daemons:
                assert daemon.stop() == 0
                daemon.start()
                daemon.wait_ready()
                wait_for(lambda: answered(daemon), "requests to the daemon that is back")  # noqa: B023 - at once
        assert load.losses == []
        assert rows(database) == sum(client.written for client in load.clients) > 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_daemon_that_is_to_stop_answers_for_a_while(served: Database, tmp_path: Path, workers: str) -> None:
    """It says so by ``/ready`` and closes connections after an answer; who asks again need not wait."""
    settings = {"shutdown-delay": "600", "workers": workers}
    with Daemon(tmp_path, served.uri, settings=settings) as daemon:
        daemon.wait_ready()
        assert "Connection" not in daemon.graphql(QUICK).headers
        daemon.process.send_signal(signal.SIGTERM)
        wait_for(lambda: daemon.admin("GET", "/ready").status == 503, "the end of readiness")
        wait_for(lambda: daemon.graphql(QUICK).headers.get("Connection") == "close", "last answers")
        assert daemon.admin("GET", "/ready").json["draining"]
        assert json.loads(daemon.graphql(QUICK).body)["data"]
        assert daemon.stop() == 1
