"""Live queries while daemons, workers and servers stop, restart and fail."""

from __future__ import annotations

import json
import os
import resource
import signal
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from support.daemon import KEY, PATIENCE, Daemon, wait_for
from support.postgres import Server
from support.replication import Pair, running_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database

SCHEMA = """
create table item (id int primary key, name text not null);
insert into item values (1, 'first');
grant select on item to anon;
"""
QUICK = {"live-interval": "0.1"}
TARGET = "/rest/v1/item?select=name&order=id"


class Client:
    """A context manager that reads the events of a stream in a thread, and disconnects on exit."""

    def __init__(self, daemon: Daemon, target: str = TARGET, **headers: str) -> None:
        self.events: Queue[tuple[str, Any]] = Queue()
        self.retry = 0
        self.ended = False
        self._connection = HTTPConnection("127.0.0.1", daemon.port, timeout=PATIENCE)
        self._connection.request(
            "GET", target, headers={"Accept": "text/event-stream", "apikey": KEY, **headers}
        )
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        fields: dict[str, str] = {}
        with suppress(HTTPException, OSError, ValueError, AttributeError):
            while line := self._response.readline().decode():
                name, _, value = line.rstrip("\n").partition(":")
                value = value.removeprefix(" ")
                if name == "retry":
                    self.retry = int(value)
                elif name:
                    fields[name] = fields.get(name, "") + value
                elif "event" in fields:
                    self.events.put((fields["event"], json.loads(fields["data"] or "null")))
                    fields = {}
        self.ended = True

    def next(self) -> tuple[str, Any]:
        try:
            return self.events.get(timeout=PATIENCE)
        except Empty:
            raise AssertionError("no event has been received") from None

    def names(self) -> list[str]:
        """Wait for the next snapshot and return the names in its rows."""
        event, rows = self.next()
        assert event == "snapshot", rows
        return [row["name"] for row in rows]

    def until(self, names: list[str]) -> None:
        """Wait for a snapshot with these names."""
        wait_for(lambda: self.names() == names, f"the snapshot {names}")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def database(server: Server) -> Database:
    return server.create_database(SCHEMA)


def rename(database: Database, name: str) -> None:
    database.execute("update item set name = %s", (name,))


def test_file_descriptor_limit_is_raised_to_the_maximum(database: Database, tmp_path: Path) -> None:
    limit, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 256), maximum))
    try:
        with Daemon(tmp_path, database.uri) as daemon:
            daemon.wait_ready()
            limits = Path(f"/proc/{daemon.process.pid}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, maximum))
    [line] = [line for line in limits.splitlines() if line.startswith("Max open files")]
    soft, hard = line.split()[3:5]
    assert soft == hard


def test_shutdown_tells_clients_to_reconnect(database: Database, tmp_path: Path) -> None:
    with Daemon(tmp_path, database.uri, settings={"workers": "2"}, project=QUICK) as daemon:
        daemon.wait_ready()
        clients = [Client(daemon) for _ in range(8)]
        for client in clients:
            assert client.names() == ["first"]
        subscribers = 'dataapi_live_subscribers{project="abcdefghijklmnopqrst"}'
        wait_for(lambda: daemon.metric(subscribers) == 8, "the metric of all workers")

        def live() -> int:
            [project] = daemon.admin("GET", "/ready").json["projects"]
            return int(project["live"]["subscribers"])

        wait_for(lambda: live() == 8, "the number of subscribers in /ready")
        assert daemon.stop() == 0
        for client in clients:
            assert client.next() == ("reconnect", None)
            assert 500 <= client.retry <= 5000
        wait_for(lambda: all(client.ended for client in clients), "the end of the streams")
        assert len({client.retry for client in clients}) > 1


def test_clients_of_other_workers_survive_a_killed_worker(database: Database, tmp_path: Path) -> None:
    with Daemon(tmp_path, database.uri, settings={"workers": "2"}, project=QUICK) as daemon:
        daemon.wait_ready()
        clients = [Client(daemon) for _ in range(8)]
        for client in clients:
            client.names()
        os.kill(daemon.children[0], signal.SIGKILL)
        wait_for(lambda: any(client.ended for client in clients), "the end of some")
        clients = [client for client in clients if not client.ended]
        with Client(daemon) as again:
            assert again.names() == ["first"]
            rename(database, "second")
            assert again.names() == ["second"]
            # The client threads may not have noticed all closed connections yet.
            wait_for(
                lambda: all(one.ended or one.events.qsize() for one in clients),
                "an event or the end of each stream",
            )
            for client in clients:
                assert client.ended or client.names() == ["second"]
        for client in clients:
            client.close()


def test_changed_settings_make_clients_reconnect(database: Database, tmp_path: Path) -> None:
    with Daemon(tmp_path, database.uri, project=QUICK) as daemon:
        daemon.wait_ready()
        with Client(daemon) as client:
            client.names()
            text = daemon.config.read_text().replace("live-interval = 0.1", "live-interval = 0.2")
            daemon.config.write_text(text)
            assert daemon.admin("POST", "/reload").status == 200
            assert client.next() == ("reconnect", None)
        with Client(daemon) as client:
            assert client.names() == ["first"]


@pytest.fixture
def own() -> Iterator[Server]:
    """Yield a separate PostgreSQL server that is configured for replication."""
    made = Server(settings={"wal_level": "replica", "max_wal_senders": "2"})
    try:
        made.create()
        yield made
    finally:
        made.remove()


@pytest.mark.time_limit(180)
def test_subscriptions_survive_a_restart_of_postgresql(own: Server, tmp_path: Path) -> None:
    database = own.create_database(SCHEMA)
    # From the first restart on, so that an immediate stop loses no commit.
    own.admin.execute("alter system set synchronous_commit = on")
    with Daemon(tmp_path, database.uri, project=QUICK) as daemon:
        daemon.wait_ready()
        with Client(daemon) as client:
            assert client.names() == ["first"]
            for mode in ("fast", "immediate"):
                own.stop(mode)
                wait_for(lambda: daemon.admin("GET", "/ready").status == 503, "the loss")
                own.start()
                rename(database, mode)
                assert client.names() == [mode]
            assert not client.ended


@pytest.mark.time_limit(180)
@pytest.mark.direct("replication needs servers of its own")
def test_commit_waiting_for_a_standby_is_sent_once_visible(own: Server, tmp_path: Path) -> None:
    database = own.create_database(SCHEMA)
    with Daemon(tmp_path, database.uri, project=QUICK) as daemon:
        daemon.wait_ready()
        with Client(daemon) as client:
            assert client.names() == ["first"]
            own.admin.execute("alter system set synchronous_standby_names = 'nobody'")
            own.admin.execute("select pg_reload_conf()")
            connection = psycopg2.connect(database.admin_uri)
            with connection.cursor() as cursor:
                cursor.execute("set synchronous_commit = on")
                cursor.execute("update item set name = 'second'")
            thread = Thread(target=connection.commit)
            thread.start()
            waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"
            wait_for(lambda: own.admin.execute(waiting) == [(1,)], "the commit that waits")
            polls = 'dataapi_live_looks_total{project="abcdefghijklmnopqrst"}'
            before = daemon.metric(polls)
            wait_for(lambda: daemon.metric(polls) > before + 3, "more looks")
            assert client.events.empty()
            position = own.admin.execute("select pg_current_wal_insert_lsn()")
            own.admin.execute("select pg_cancel_backend(%s)", (connection.info.backend_pid,))
            thread.join()
            assert own.admin.execute("select pg_current_wal_insert_lsn()") == position
            assert client.names() == ["second"]
            connection.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with running_pair() as pair:
        yield pair


@pytest.mark.time_limit(180)
@pytest.mark.direct("the daemon must see the servers behind a pooler")
def test_lagging_replica_is_not_queried(pair: Pair, tmp_path: Path) -> None:
    database = pair.primary.create_database(SCHEMA)
    pair.follow(database)
    project = {**QUICK, "db-read-uri": pair.read_uri(database.name), "db-read-max-lag": ""}
    with Daemon(tmp_path, database.uri, project=project) as daemon:
        daemon.wait_ready()
        with Client(daemon) as client:
            client.until(["first"])
            pair.standby.admin.execute("select pg_wal_replay_pause()")
            for name in ("second", "third"):
                rename(database, name)
                client.until([name])
            assert client.events.empty()
            pair.standby.admin.execute("select pg_wal_replay_resume()")
            pair.follow(database)
            rename(database, "fourth")
            client.until(["fourth"])


@pytest.mark.time_limit(180)
@pytest.mark.direct("the daemon must see the servers behind a pooler")
def test_subscriptions_survive_a_failover(pair: Pair, tmp_path: Path) -> None:
    database = pair.primary.create_database(SCHEMA)
    pair.follow(database)
    with Daemon(tmp_path, pair.uri(database.name, "read-write"), project=QUICK) as daemon:
        daemon.wait_ready()
        with Client(daemon) as client:
            assert client.names() == ["first"]
            pair.follow(database)
            pair.kill_primary()
            pair.standby.promote()
            daemon.wait_ready()
            survivor = pair.standby.database(database.name)
            wait_for(lambda: not survivor.execute("select pg_is_in_recovery()")[0][0], "the promotion")
            rename(survivor, "after")
            client.until(["after"])
            assert not client.ended
