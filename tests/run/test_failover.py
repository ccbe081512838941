"""A standby is promoted after the primary has failed. The daemon continues without intervention."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from support.daemon import SECRET_KEY, Daemon, wait_for
from support.failover import NOTES, SCHEMA, Clients, delivered, project, read, write
from support.installation import PATIENT, Installation
from support.outages import frozen
from support.recorder import HOOK
from support.replication import Pair, running_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.postgres import Database
    from support.recorder import Recorder

pytestmark = pytest.mark.direct("the daemon must see the servers behind a pooler")


@pytest.fixture(scope="module")
def steady() -> Iterator[Pair]:
    """Yield a primary and a standby for tests that do not change them."""
    with running_pair() as pair:
        yield pair


@pytest.fixture
def pair() -> Iterator[Pair]:
    with running_pair() as pair:
        yield pair


def webhooks_reason(daemon: Daemon) -> str:
    """Return why webhooks do not work, according to ``/ready``."""
    return str(daemon.admin("GET", "/ready").json["webhooks"]["reason"])


@pytest.mark.time_limit(180)
def test_service_resumes_after_a_failover(pair: Pair, recorder: Recorder, tmp_path: Path) -> None:
    database = pair.primary.create_database(SCHEMA)
    installation = Installation(tmp_path, database, recorder, settings={"timeout": str(PATIENT)})
    installation.endpoint()
    pair.follow(database)
    # The URI contains both servers, so operators need not change it.
    installation.uri = pair.uri(database.name, "read-write")
    try:
        daemon = installation.daemon()
        installation.publish(1)
        wait_for(lambda: len(recorder.at(HOOK)) == 1, "the first delivery")
        assert write(daemon, 2).status == 201
        wait_for(lambda: project(daemon)["changes"] == "notified", "the listener")
        installation.wait_settled()
        pair.follow(database)
        before = project(daemon)["generation"]
        pair.kill_primary()
        refused = "Connection refused"
        wait_for(lambda: refused in str(project(daemon).get("reason")), "the reason")
        reason = project(daemon)["reason"]
        assert f'"127.0.0.1", port {pair.primary.port} failed: {refused}' in reason
        wait_for(lambda: refused in webhooks_reason(daemon), "the reason of webhooks")
        assert read(daemon).status == 503
        pair.standby.promote()
        survivor = installation.database = pair.standby.database(database.name)
        daemon.wait_ready()
        assert read(daemon).json == [{"id": 1}, {"id": 2}]
        assert write(daemon, 3).status == 201
        assert "errors" not in daemon.graphql(NOTES).json
        wait_for(lambda: project(daemon)["changes"] == "notified", "the listener")
        wait_for(lambda: project(daemon)["generation"] > before, "the reload of a listener that was away")
        survivor.execute("create table later (id int); grant select on later to anon")
        generation = project(daemon)["generation"]
        survivor.execute("notify pgrst, 'reload schema'")
        wait_for(lambda: project(daemon)["generation"] > generation, "the reload")
        assert read(daemon, "later").json == []
        installation.publish(2)
        wait_for(lambda: len(recorder.at(HOOK)) == 2, "the delivery")
        installation.wait_settled()
    finally:
        installation.end()
    assert [one.event["payload"]["number"] for one in recorder.at(HOOK)] == [1, 2]
    assert daemon.text.count(refused) >= 1


WITHIN = 5.0
"""Maximum seconds from a promotion to full service."""


@pytest.mark.time_limit(240)
@pytest.mark.parametrize("outage", ["killed", "frozen", "switched over"])
def test_acknowledged_writes_survive_a_failover(
    pair: Pair, recorder: Recorder, tmp_path: Path, outage: str
) -> None:
    database = pair.primary.create_database(SCHEMA)
    installation = Installation(tmp_path, database, recorder, settings={"timeout": str(PATIENT)})
    installation.endpoint()
    pair.follow(database)
    pair.acknowledge_together(database)
    installation.uri = pair.uri(database.name, "read-write") + "&connect_timeout=2"
    resume: Callable[[], object] = lambda: None  # noqa: E731 - it is replaced below
    try:
        daemon = installation.daemon()
        wait_for(lambda: project(daemon)["changes"] == "notified", "the listener")
        clients = Clients(installation, daemon)
        try:
            clients.wait_for_more()
            if outage == "killed":
                pair.kill_primary()
            elif outage == "frozen":
                resume = frozen(pair.primary)
            else:
                pair.primary.stop()
            wait_for(lambda: daemon.admin("GET", "/ready").status == 503, "/ready to say so")
            began = time.monotonic()
            pair.standby.promote()
            promoted = time.monotonic()
            installation.database = pair.standby.database(database.name)
            clients.wait_for_more()
            newest = clients.events[-1]
            daemon.wait_ready()
            wait_for(lambda: project(daemon)["changes"] == "notified", "the listener")
            wait_for(lambda: newest in delivered(recorder), "a new delivery")
            took = time.monotonic() - promoted
            if outage == "switched over":
                pair.primary.rejoin(pair.standby)
                pair.primary.admin.execute("select 1")
                clients.wait_for_more()
                assert daemon.admin("GET", "/ready").status == 200
        finally:
            clients.end()
        rows = {number for (number,) in installation.database.execute("select id from note where id > 1000")}
        assert set(clients.rows) <= rows
        # Attempts claimed through the lost primary are claimed again when their leases expire.
        installation.pass_time(10 * PATIENT)
        wait_for(lambda: set(clients.events) <= delivered(recorder), "every acknowledged event")
        # On a slow machine, the promotion and everything after it take longer.
        assert took < WITHIN + 10 * (promoted - began)
    finally:
        resume()
        installation.end()


@pytest.mark.time_limit(180)
def test_daemon_on_standbys_listens_on_the_primary(steady: Pair, tmp_path: Path) -> None:
    database = steady.primary.create_database(SCHEMA)
    steady.follow(database)
    uri = steady.uri(database.name, "standby" if steady.primary.version >= 14 else "any")
    with Daemon(tmp_path, uri) as daemon:
        daemon.wait_ready()
        assert read(daemon).json == [{"id": 1}]
        assert project(daemon)["standby"] is True
        ready = daemon.admin("GET", "/ready")
        assert (ready.status, ready.json["writes"]) == (200, False)
        refused = write(daemon, 2)
        assert (refused.status, refused.json["code"]) == (405, "25006")
        assert refused.json["message"] == "The database is a read-only standby"
        assert refused.headers["Allow"] == "OPTIONS, GET, HEAD"
        batch = json.dumps({"requests": [{"method": "POST", "path": "/note", "body": {"id": 2}}]})
        kind = {"apikey": SECRET_KEY, "Content-Type": "application/vnd.dataapi.batch+json"}
        assert daemon.request("POST", "/rest/v1/", batch, kind).json["message"] == refused.json["message"]
        mutation = "mutation { insertIntonoteCollection(objects: [{id: 2}]) { affectedCount } }"
        [error] = daemon.graphql(mutation, SECRET_KEY).json["errors"]
        assert (error["message"], error["extensions"]["code"]) == (refused.json["message"], "25006")
        assert project(daemon)["changes"] == "notified"
        # A request for an unknown table would also reload the catalog.
        database.execute("comment on table note is 'What came to mind'")
        steady.follow(database)
        database.execute("notify pgrst, 'reload schema'")
        wait_for(lambda: b"What came to mind" in read(daemon, "").body, "the reload")


@pytest.mark.time_limit(180)
def test_daemon_on_standbys_delivers_from_the_primary(
    steady: Pair, recorder: Recorder, tmp_path: Path
) -> None:
    database = steady.primary.create_database(SCHEMA)
    installation = Installation(tmp_path, database, recorder)
    installation.endpoint()
    steady.follow(database)
    installation.uri = steady.uri(database.name, "standby" if steady.primary.version >= 14 else "any")
    try:
        daemon = installation.daemon()
        assert project(daemon)["standby"] is True
        assert daemon.admin("GET", "/ready").json["webhooks"]["ready"] is True
        installation.publish(1)
        wait_for(lambda: len(recorder.at(HOOK)) == 1, "the delivery")
        installation.wait_settled()
    finally:
        installation.end()


@pytest.mark.time_limit(180)
def test_schema_reload_waits_for_a_delayed_standby(steady: Pair, tmp_path: Path) -> None:
    database = steady.primary.create_database(SCHEMA)
    steady.follow(database)
    with Daemon(
        tmp_path, steady.uri(database.name, "standby" if steady.primary.version >= 14 else "any")
    ) as daemon:
        daemon.wait_ready()
        generation = project(daemon)["generation"]
        steady.standby.admin.execute("select pg_wal_replay_pause()")
        database.execute("comment on table note is 'What came to mind'")
        database.execute("notify pgrst, 'reload schema'")
        wait_for(lambda: project(daemon)["generation"] > generation, "the reload")
        steady.standby.admin.execute("select pg_wal_replay_resume()")
        wait_for(lambda: b"What came to mind" in read(daemon, "").body, "the change")


@pytest.mark.time_limit(180)
def test_daemon_on_a_single_standby_polls_for_changes(pair: Pair, tmp_path: Path) -> None:
    database = pair.primary.create_database(SCHEMA)
    pair.follow(database)
    uri = pair.standby.database(database.name).uri
    with Daemon(tmp_path, uri) as daemon:
        daemon.wait_ready()
        assert read(daemon).json == [{"id": 1}]
        assert daemon.graphql(NOTES).json["data"]["noteCollection"]["edges"] == [{"node": {"id": 1}}]
        assert project(daemon)["changes"] == "polled"
        generation = project(daemon)["generation"]
        database.execute("create table later (id int); grant select on later to anon")
        wait_for(lambda: project(daemon)["generation"] > generation, "the change to be seen")
        assert read(daemon, "later").json == []
        pair.kill_primary()
        pair.standby.promote()
        wait_for(lambda: write(daemon, 2).status == 201, "writes")
        wait_for(lambda: project(daemon)["changes"] == "notified", "the listener", 60)


@pytest.mark.time_limit(180)
def test_frozen_primary_is_replaced_by_the_promoted_standby(pair: Pair, tmp_path: Path) -> None:
    database: Database = pair.primary.create_database(SCHEMA)
    pair.follow(database)
    uri = pair.uri(database.name, "read-write") + "&connect_timeout=2"
    with Daemon(tmp_path, uri, project={"request-timeout": "8"}) as daemon:
        daemon.wait_ready()
        with pair.frozen_primary():
            response = read(daemon)
            assert response.status in (503, 504)
            assert daemon.admin("GET", "/ready").status == 503
            pair.standby.promote()
            daemon.wait_ready()
            assert write(daemon, 2).status == 201
            assert read(daemon).json == [{"id": 1}, {"id": 2}]
