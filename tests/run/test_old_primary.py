"""A standby is promoted and the primary goes on as if nothing had happened: nobody has fenced it."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest
from support.daemon import Daemon, wait_for
from support.failover import SCHEMA, Clients, delivered, project, request, write
from support.installation import Installation
from support.recorder import HOOK
from support.replication import Pair, running_pair
from support.webhooks import ACME, PAUSED, REF

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Database
    from support.recorder import Recorder

pytestmark = pytest.mark.direct("the daemon chooses among servers, which it would not see behind a pooler")

# Which server answers: its port.
SERVER = """
create function server() returns int language sql stable as 'select current_setting(''port'')::int';
"""


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Give a primary with a standby."""
    with running_pair() as pair:
        yield pair


@pytest.fixture
def trio() -> Iterator[Pair]:
    """Give a primary with two standbys."""
    with running_pair(others=1) as pair:
        yield pair


def rows(database: Database) -> set[int]:
    """Return the numbers of the rows that clients wrote."""
    return {number for (number,) in database.execute("select id from note where id > 1000")}


@pytest.mark.time_limit(180)
def test_an_old_primary_gets_nothing_once_the_new_one_was_seen(
    trio: Pair, recorder: Recorder, tmp_path: Path
) -> None:
    """It answers, it accepts writes, it comes first in the connection string: it is asked no more."""
    database = trio.primary.create_database(SCHEMA)
    installation = Installation(tmp_path, database, recorder)
    installation.endpoint()
    trio.follow(database)
    installation.uri = trio.uri(database.name, "read-write")
    try:
        daemon = installation.daemon()
        wait_for(lambda: project(daemon)["changes"] == "notified", "the listener")
        trio.standby.promote()
        survivor = installation.database = trio.standby.database(database.name)
        # Once for the APIs and once for webhooks, each of which has connections of its own.
        wait_for(lambda: daemon.text.count("another server was promoted") == 2, "the promotion to be seen")
        wait_for(lambda: write(daemon, 2).status == 201, "writes")
        daemon.wait_ready()
        clients = Clients(installation, daemon)
        try:
            clients.wait_for_more()
            # Whatever has to connect again finds the old one first.
            trio.standby.terminate_backends(survivor)
            clients.wait_for_more()
            wait_for(lambda: project(daemon)["changes"] == "notified", "the listener")
            clients.wait_for_more()
        finally:
            clients.end()
        assert set(clients.rows) <= rows(survivor)
        assert rows(database) == set()
        assert database.execute("select count(*) from webhooks.event") == [(0,)]
        wait_for(lambda: set(clients.events) <= delivered(recorder), "every acknowledged event")
        assert len(recorder.at(HOOK)) >= len(clients.events)
    finally:
        installation.end()


@pytest.mark.time_limit(180)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_who_begins_beside_an_old_primary_writes_nothing_to_it(
    pair: Pair, recorder: Recorder, tmp_path: Path, workers: str
) -> None:
    """A daemon that starts, a worker that takes another one's place, a project with other settings."""
    database = pair.primary.create_database(SCHEMA)
    installation = Installation(tmp_path, database, recorder)
    pair.follow(database)
    pair.standby.promote()
    installation.uri = pair.uri(database.name, "read-write")
    try:
        daemon = installation.daemon(environ={"DATAAPI_DATAAPI_WORKERS": workers})
        clients = Clients(installation, daemon)
        try:
            clients.wait_for_more()
            for child in daemon.children if workers == "2" else ():
                os.kill(child, signal.SIGKILL)
            clients.wait_for_more()
            with daemon.config.open("a") as config:
                config.write("db-max-rows = 7\n[webhooks]\nconcurrency = 100\n")
            assert daemon.admin("POST", "/reload").json["failures"] == {}
            clients.wait_for_more()
        finally:
            clients.end()
        assert rows(database) == set()
        assert database.execute("select count(*) from webhooks.event") == [(0,)]
        assert set(clients.rows) <= rows(pair.standby.database(database.name))
    finally:
        installation.end()


def test_a_command_publishes_at_the_newest_primary(pair: Pair, recorder: Recorder, tmp_path: Path) -> None:
    """Whichever comes first in the connection string, and whatever that says of the server."""
    database = pair.primary.create_database(SCHEMA)
    installation = Installation(tmp_path, database, recorder)
    installation.endpoint()
    pair.follow(database)
    pair.standby.promote()
    survivor = pair.standby.database(database.name)
    for number, attributes in enumerate(("any", "read-write"), 1):
        installation.uri = pair.uri(database.name, attributes)
        about = ("--organization", ACME.organization, "--project", REF)
        installation.command("event", "publish", PAUSED, *about, "--payload", '{"reason": "inactivity"}')
        assert survivor.execute("select count(*) from webhooks.event") == [(number,)]
    assert database.execute("select count(*) from webhooks.event") == [(0,)]


@pytest.mark.time_limit(180)
def test_a_promoted_replica_that_is_listed_no_more_makes_no_old_primary(pair: Pair, tmp_path: Path) -> None:
    """It was promoted for another purpose; until then the reason says what happened."""
    database = pair.primary.create_database(SCHEMA)
    pair.follow(database)
    with Daemon(tmp_path, database.uri, project={"db-read-uri": pair.read_uri(database.name)}) as daemon:
        daemon.wait_ready()
        pair.standby.promote()
        reason = "it is an old primary, on timeline 1: another server was promoted to timeline 2"
        wait_for(lambda: reason in str(project(daemon)["reason"]), "the promotion to be seen")
        assert write(daemon, 2).status == 503
        lines = daemon.config.read_text().splitlines()
        daemon.config.write_text("\n".join(line for line in lines if not line.startswith("db-read-uri")))
        assert daemon.admin("POST", "/reload").json["failures"] == {}
        assert write(daemon, 2).status == 201


def replicas(daemon: Daemon) -> dict[int, str | None]:
    """Return why each replica gets no reads, None where it does, by its port."""
    return {int(one["server"].rpartition(":")[2]): one["reason"] for one in project(daemon)["replicas"]}


@pytest.mark.time_limit(240)
def test_a_replica_gets_reads_while_it_follows_the_primary(trio: Pair, tmp_path: Path) -> None:
    """However far it is: a position of one timeline says nothing of what another one has."""
    first, second, third = trio.primary, *trio.standbys
    database = first.create_database(SCHEMA + SERVER)
    # Who may read all statistics is told at once whom a standby follows.
    first.admin.execute("grant pg_read_all_stats to authenticator")
    trio.follow(database)
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in (first, second, third))
    uri = f"postgresql://authenticator@{hosts}/{database.name}?target_session_attrs="
    read_uri = f"{uri}standby&load_balance_hosts=random"
    with Daemon(tmp_path, f"{uri}read-write", project={"db-read-uri": read_uri}) as daemon:
        daemon.wait_ready()
        wait_for(lambda: {replicas(daemon)[one.port] for one in trio.standbys} == {None}, "both replicas")

        # In good order: the third server follows the second one from now on.
        first.stop()
        second.promote()
        third.lead_to(second)
        first.rejoin(second)
        wait_for(lambda: {replicas(daemon)[one.port] for one in (first, third)} == {None}, "both replicas")
        assert {request(daemon, "GET", "rpc/server").json for _ in range(20)} == {first.port, third.port}

        # Without fencing: what the old primary still takes makes its replica look as if it were ahead.
        third.promote()
        second.database(database.name).execute(
            "create table filler as select repeat('x', 1000) x from generate_series(1, 5000)"
        )
        wait_for(lambda: "on timeline 2" in str(replicas(daemon)[first.port]), "the promotion to be seen")
        wait_for(lambda: replicas(daemon)[third.port] == "it is not a standby", "the new primary")
        answer = request(daemon, "POST", "note", json.dumps({"id": 1001, "body": "x"}))
        assert answer.status == 201
        position = answer.headers["Dataapi-LSN"]
        for _ in range(5):
            read = request(daemon, "GET", "note?select=id&id=eq.1001", Dataapi_LSN=position)
            assert read.json == [{"id": 1001}]
            assert request(daemon, "GET", "rpc/server").json == third.port
        assert rows(third.database(database.name)) == {1001}
