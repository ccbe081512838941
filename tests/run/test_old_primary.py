"""Split brain: a standby is promoted while the old primary still runs without fencing."""

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

pytestmark = pytest.mark.direct("the daemon must see the servers behind a pooler")

# The SQL function server() returns the port of the PostgreSQL server.
SERVER = """
create function server() returns int language sql stable as 'select current_setting(''port'')::int';
"""


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Yield a primary and a standby."""
    with running_pair() as pair:
        yield pair


@pytest.fixture
def trio() -> Iterator[Pair]:
    """Yield a primary and two standbys."""
    with running_pair(others=1) as pair:
        yield pair


def rows(database: Database) -> set[int]:
    """Return the IDs of rows that clients have written."""
    return {number for (number,) in database.execute("select id from note where id > 1000")}


@pytest.mark.time_limit(180)
def test_old_primary_receives_no_writes_after_promotion_is_detected(
    trio: Pair, recorder: Recorder, tmp_path: Path
) -> None:
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
        # The APIs and webhooks have separate connections, and each reports the promotion.
        wait_for(lambda: daemon.text.count("another server was promoted") == 2, "the promotion to be seen")
        wait_for(lambda: write(daemon, 2).status == 201, "writes")
        daemon.wait_ready()
        clients = Clients(installation, daemon)
        try:
            clients.wait_for_more()
            # All reconnects reach the old primary first.
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
def test_daemon_started_during_split_brain_writes_only_to_new_primary(
    pair: Pair, recorder: Recorder, tmp_path: Path
) -> None:
    database = pair.primary.create_database(SCHEMA)
    installation = Installation(tmp_path, database, recorder)
    pair.follow(database)
    pair.standby.promote()
    installation.uri = pair.uri(database.name, "read-write")
    try:
        daemon = installation.daemon(environ={"DATAAPI_DATAAPI_WORKERS": "2"})
        clients = Clients(installation, daemon)
        try:
            clients.wait_for_more()
            for child in daemon.children:
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


def test_publish_command_uses_the_newest_primary(pair: Pair, recorder: Recorder, tmp_path: Path) -> None:
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
def test_removing_a_promoted_replica_restores_writes(pair: Pair, tmp_path: Path) -> None:
    """The replica may be promoted for another purpose. ``/ready`` explains the error until the reload."""
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
    """Map each replica's port to the reason why the replica serves no reads, or to None."""
    return {int(one["server"].rpartition(":")[2]): one["reason"] for one in project(daemon)["replicas"]}


@pytest.mark.time_limit(240)
def test_replica_serves_reads_only_while_it_follows_the_primary(trio: Pair, tmp_path: Path) -> None:
    first, second, third = trio.primary, *trio.standbys
    database = first.create_database(SCHEMA + SERVER)
    # Roles with pg_read_all_stats can see immediately which server a standby follows.
    first.admin.execute("grant pg_read_all_stats to authenticator")
    trio.follow(database)
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in (first, second, third))
    uri = f"postgresql://authenticator@{hosts}/{database.name}?target_session_attrs="
    read_uri = f"{uri}standby&load_balance_hosts=random"
    with Daemon(tmp_path, f"{uri}read-write", project={"db-read-uri": read_uri}) as daemon:
        daemon.wait_ready()
        wait_for(lambda: {replicas(daemon)[one.port] for one in trio.standbys} == {None}, "both replicas")

        # Orderly switchover: the third server follows the second server from now on.
        first.stop()
        second.promote()
        third.lead_to(second)
        first.rejoin(second)
        wait_for(lambda: {replicas(daemon)[one.port] for one in (first, third)} == {None}, "both replicas")
        assert {request(daemon, "GET", "rpc/server").json for _ in range(20)} == {first.port, third.port}

        # No fencing: writes on the old primary make its replica appear to be ahead.
        third.promote()
        second.database(database.name).execute(
            "create table filler as select repeat('x', 1000) x from generate_series(1, 5000)"
        )
        wait_for(lambda: "on timeline 2" in str(replicas(daemon)[first.port]), "the promotion to be seen")
        wait_for(lambda: replicas(daemon)[third.port] == "it is not a standby", "the new primary")
        response = request(daemon, "POST", "note", json.dumps({"id": 1001, "body": "x"}))
        assert response.status == 201
        position = response.headers["Dataapi-LSN"]
        for _ in range(5):
            read = request(daemon, "GET", "note?select=id&id=eq.1001", Dataapi_LSN=position)
            assert read.json == [{"id": 1001}]
            assert request(daemon, "GET", "rpc/server").json == third.port
        assert rows(third.database(database.name)) == {1001}
