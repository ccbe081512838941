"""Reads on replicas are balanced, repeated after failures, and consistent with the client's writes."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

import pytest
from dataapi.service.inspection import inspect
from dataapi.settings import Project
from dataapi.testing import free_port
from support.daemon import KEY, SECRET_KEY, Daemon, wait_for
from support.failover import request
from support.outages import crashed, frozen
from support.replication import Pair, running_pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.daemon import Answer
    from support.postgres import Database, Server

pytestmark = pytest.mark.direct("the daemon must see the servers behind a pooler")

# The SQL function server() returns the port of the PostgreSQL server.
SCHEMA = """
create table note (id int primary key, body text);
insert into note select n, 'x' from generate_series(1, 300) n;
create function server() returns int language sql stable as 'select current_setting(''port'')::int';
create function volatile_server() returns int language sql as 'select current_setting(''port'')::int';
create function _server(note) returns int language sql stable as 'select current_setting(''port'')::int';
create function slow() returns int language plpgsql stable as $$ declare n int; begin
    select count(*) into n from note;
    perform pg_sleep(case when pg_is_in_recovery() then 60 else 0 end);
    return current_setting('port');
end $$;
grant select on note to anon;
grant all on note to service_role;
"""
SERVER = "{ noteCollection(first: 1) { edges { node { server } } } }"


@pytest.fixture(scope="module")
def trio() -> Iterator[Pair]:
    """Yield a primary and two standbys."""
    with running_pair(others=1) as pair:
        yield pair


@pytest.fixture(scope="module")
def database(trio: Pair) -> Database:
    """Return a database that both standbys have replayed."""
    made = trio.primary.create_database(SCHEMA)
    trio.follow(made)
    return made


@pytest.fixture(scope="module")
def shared(trio: Pair, database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Yield a daemon that reads from both standbys, shared by all tests."""
    project = {"db-read-uri": trio.read_uri(database.name), "db-read-max-lag": "4"}
    with Daemon(tmp_path_factory.mktemp("daemon"), database.uri, project=project) as started:
        started.wait_ready()
        yield started


@pytest.fixture
def daemon(trio: Pair, shared: Daemon) -> Iterator[Daemon]:
    """Yield the shared daemon once both standbys serve reads. Resume replay after the test."""
    wait_available(shared, trio.standbys)
    yield shared
    resume(trio)


def resume(trio: Pair) -> None:
    for standby in trio.standbys:
        standby.admin.execute("select pg_wal_replay_resume()")


def available(daemon: Daemon) -> set[int]:
    """Return the ports of the replicas that serve reads, according to ``/ready``."""
    [project] = daemon.admin("GET", "/ready").json["projects"]
    return {int(one["server"].rpartition(":")[2]) for one in project["replicas"] if one["available"]}


def wait_available(daemon: Daemon, servers: list[Server]) -> None:
    """Wait until exactly these replicas serve reads."""
    expected = {server.port for server in servers}
    wait_for(lambda: available(daemon) == expected, f"the replicas {expected}")


def server(daemon: Daemon, **headers: str) -> int:
    """Return the port of the server that runs a read."""
    return int(request(daemon, "GET", "rpc/server", **headers).json)


def repeated(trio: Pair, daemon: Daemon) -> float:
    """Return the number of reads that failed on a replica and were repeated on another server."""
    return counted(trio, daemon, "repeated")


def completed(trio: Pair, daemon: Daemon) -> float:
    """Return the number of reads that the replicas have completed."""
    return counted(trio, daemon, "answered")


def counted(trio: Pair, daemon: Daemon, outcome: str) -> float:
    """Return the number of reads with an outcome on all replicas."""
    label = f'outcome="{outcome}",project="abcdefghijklmnopqrst",server="127.0.0.1:{{}}"'
    return sum(
        daemon.metric(f"dataapi_replica_reads_total{{{label.format(one.port)}}}") for one in trio.standbys
    )


def write(daemon: Daemon, number: int) -> str:
    """Insert a row and return the WAL position from the response."""
    response = request(daemon, "POST", "note", json.dumps({"id": number, "body": "x"}))
    assert response.status == 201
    return response.headers["Dataapi-LSN"]


def test_reads_are_balanced_over_the_replicas(trio: Pair, daemon: Daemon) -> None:
    """Replicas run only GraphQL queries and GET requests for tables and stable functions."""
    standbys, primary = {one.port for one in trio.standbys}, trio.primary.port
    assert {server(daemon) for _ in range(40)} == standbys
    queried = {
        daemon.graphql(SERVER).json["data"]["noteCollection"]["edges"][0]["node"]["server"] for _ in range(40)
    }
    assert queried == standbys
    lines = {
        request(daemon, "GET", "note?select=_server&limit=200", Accept="application/x-ndjson").body.split()[0]
        for _ in range(40)
    }
    assert {json.loads(line)["_server"] for line in lines} == standbys
    before = completed(trio, daemon)
    assert request(daemon, "HEAD", "rpc/server").status == 200
    assert request(daemon, "HEAD", "note?limit=1").status == 200
    assert completed(trio, daemon) == before + 2
    assert request(daemon, "GET", "rpc/volatile_server").json == primary
    assert request(daemon, "POST", "rpc/server", "{}").json == primary
    preferred = request(daemon, "GET", "rpc/server", Prefer="consistency=primary")
    assert preferred.json == primary
    assert preferred.headers["Preference-Applied"] == "consistency=primary"
    body = json.dumps({"query": SERVER, "extensions": {"consistency": "primary"}})
    response = daemon.request("POST", "/graphql/v1", body, {"apikey": KEY})
    assert response.json["data"]["noteCollection"]["edges"][0]["node"]["server"] == primary


def test_check_config_checks_every_replica(trio: Pair, database: Database, own_server: Server) -> None:
    project = Project("a" * 20, "acme", database.uri, db_read_uri=trio.read_uri(database.name))
    [advice] = [str(finding) for finding in inspect(project) if "db-read-uri" in finding.text]
    assert "grant pg_read_all_stats" in advice
    other = trio.primary.create_database()
    stranger = own_server.create_database()
    trio.primary.admin.execute("create role reader login")
    trio.follow(database)
    standby = f"127.0.0.1:{trio.standby.port}"
    unused = free_port()

    def faults(uri: str) -> list[str]:
        made = replace(project, db_read_uri=uri)
        found = inspect(made)
        return [finding.text for finding in found if finding.wrong and "db-read-uri" in finding.text]

    [unreachable] = faults(f"{trio.read_uri(database.name).replace(standby, f'127.0.0.1:{unused}')}")
    assert unreachable.startswith(f"db-read-uri: 127.0.0.1:{unused} cannot be checked: ")
    assert faults(f"postgresql://authenticator@{standby}/{other.name}") == [
        f"db-read-uri: {standby} has the database {other.name}, but db-uri has {database.name}"
    ]
    assert faults(f"postgresql://reader@{standby}/{database.name}") == [
        f"db-read-uri: {standby} has a login role that is not a member of anon"
    ]
    found = faults(f"postgresql://authenticator@127.0.0.1:{own_server.port}/{stranger.name}")
    assert any("system identifiers differ" in text for text in found)
    texts = [finding.text for finding in inspect(replace(project, db_read_uri=database.uri))]
    assert any("no standby responds" in text for text in texts)


def test_first_usable_host_serves_reads_without_balancing(
    trio: Pair, database: Database, tmp_path: Path
) -> None:
    project = {"db-read-uri": trio.read_uri(database.name, "disable")}
    with Daemon(tmp_path, database.uri, project=project) as daemon:
        daemon.wait_ready()
        wait_available(daemon, trio.standbys)
        assert {server(daemon) for _ in range(20)} == {trio.standby.port}


NAPS = "select pid from pg_stat_activity where wait_event = 'PgSleep'"


@pytest.mark.parametrize("balance", ["random", "disable"])
def test_reads_do_not_wait_for_a_busy_replica(
    trio: Pair, database: Database, tmp_path: Path, balance: str
) -> None:
    project = {"db-read-uri": trio.read_uri(database.name, balance), "db-pool": "1"}
    with Daemon(tmp_path, database.uri, project=project) as daemon, ThreadPoolExecutor(3) as threads:
        daemon.wait_ready()
        wait_available(daemon, trio.standbys)
        long = [threads.submit(request, daemon, "GET", "rpc/slow")]
        wait_for(lambda: any(one.admin.execute(NAPS) for one in trio.standbys), "the first to run")
        [free] = [one for one in trio.standbys if not one.admin.execute(NAPS)]
        assert {server(daemon) for _ in range(20)} == {free.port}
        long.append(threads.submit(request, daemon, "GET", "rpc/slow"))
        wait_for(lambda: free.admin.execute(NAPS), "the second to run")
        waiting = threads.submit(server, daemon)
        for standby in trio.standbys:
            standby.admin.execute(f"select pg_cancel_backend(pid) from ({NAPS}) naps")
        assert waiting.result() in {one.port for one in trio.standbys}
        assert {one.result().json["code"] for one in long} == {"57014"}


def test_client_reads_its_own_writes(trio: Pair, daemon: Daemon) -> None:
    chance = random.Random(13)
    paused: set[Server] = set()
    completed = set()
    for number in range(1000, 1120):
        if chance.random() < 0.2:
            standby = chance.choice(trio.standbys)
            paused ^= {standby}
            standby.admin.execute(f"select pg_wal_replay_{'pause' if standby in paused else 'resume'}()")
        position = write(daemon, number)
        read = request(daemon, "GET", f"note?select=id,_server&id=eq.{number}", Dataapi_LSN=position)
        assert [row["id"] for row in read.json] == [number]
        completed.add(read.json[0]["_server"])
        query = f"{{ noteCollection(filter: {{id: {{eq: {number}}}}}) {{ edges {{ node {{ id }} }} }} }}"
        found = daemon.graphql(query, **{"Dataapi-LSN": position}).json
        assert found["data"]["noteCollection"]["edges"] == [{"node": {"id": number}}]
    resume(trio)
    assert trio.primary.port in completed
    assert server(daemon, Dataapi_LSN="nonsense") == trio.primary.port


def test_read_at_a_replayed_position_uses_replicas(trio: Pair, daemon: Daemon) -> None:
    old, new = write(daemon, 2000), write(daemon, 2001)

    def by_replica() -> bool:
        # Standbys report a position only after they have received later WAL.
        write(daemon, random.randrange(10_000, 10_000_000))
        return server(daemon, Dataapi_LSN=f"{new}, {old}") != trio.primary.port

    wait_for(by_replica, "a read on a replica")
    for standby in trio.standbys:
        standby.admin.execute("select pg_wal_replay_pause()")
    # The position may be from an old primary, so the daemon cannot assume that replicas have replayed it.
    assert server(daemon, Dataapi_LSN="9:0/1") == trio.primary.port
    newest = write(daemon, 2002)
    assert server(daemon, Dataapi_LSN=f"{newest}, {old}") == trio.primary.port
    assert server(daemon, Dataapi_LSN=old) != trio.primary.port


def test_every_kind_of_write_returns_a_position(daemon: Daemon) -> None:
    mutation = "mutation { insertIntonoteCollection(objects: [{id: 3000}]) { affectedCount } }"
    assert "Dataapi-LSN" in daemon.graphql(mutation, SECRET_KEY).headers
    assert "Dataapi-LSN" in request(daemon, "POST", "rpc/volatile_server", "{}").headers
    batch = json.dumps({"requests": [{"method": "POST", "path": "/note", "body": {"id": 3001}}]})
    response = request(daemon, "POST", "", batch, Content_Type="application/vnd.dataapi.batch+json",
                     Origin="https://example.org")  # fmt: skip
    assert response.status == 200, response.body
    assert "Dataapi-LSN" in response.headers
    assert "Dataapi-LSN" in response.headers["Access-Control-Expose-Headers"]
    assert "Dataapi-LSN" not in request(daemon, "GET", "note?limit=1").headers


def test_lagging_replica_serves_no_reads(trio: Pair, database: Database, tmp_path: Path) -> None:
    project = {"db-read-uri": trio.read_uri(database.name), "db-read-max-lag": "1"}
    with Daemon(tmp_path, database.uri, project=project) as daemon:
        daemon.wait_ready()
        try:
            check_lag(trio, daemon)
        finally:
            resume(trio)
        wait_available(daemon, trio.standbys)


def check_lag(trio: Pair, daemon: Daemon) -> None:
    """Pause replay on one standby after the other and check which servers run reads."""
    number = iter(range(4000, 1_000_000))

    def written(standbys: list[Server]) -> bool:
        write(daemon, next(number))
        return available(daemon) == {one.port for one in standbys}

    trio.standby.admin.execute("select pg_wal_replay_pause()")
    wait_for(lambda: written(trio.others), "the lag to be seen")
    wait_for(lambda: {server(daemon) for _ in range(20)} == {trio.others[0].port}, "the other one")
    trio.others[0].admin.execute("select pg_wal_replay_pause()")
    wait_for(lambda: written([]), "the other one's lag to be seen")
    assert {server(daemon) for _ in range(20)} == {trio.primary.port}
    label = f'project="abcdefghijklmnopqrst",server="127.0.0.1:{trio.standby.port}"'
    assert daemon.metric(f"dataapi_replica_lag_seconds{{{label}}}") > 1


def test_read_of_a_table_missing_on_replicas_uses_the_primary(
    trio: Pair, database: Database, daemon: Daemon
) -> None:
    for standby in trio.standbys:
        standby.admin.execute("select pg_wal_replay_pause()")
    database.execute("create table later (id int); grant select on later to service_role")
    database.execute("notify pgrst, 'reload schema'")
    wait_for(lambda: request(daemon, "GET", "later").status == 200, "the table")


def test_killed_replicas_cause_no_failed_reads(trio: Pair, daemon: Daemon) -> None:
    over = Event()

    def load() -> list[Answer]:
        responses = []
        while not over.is_set():
            responses.append(request(daemon, "GET", "note?select=id&limit=5"))
            responses.append(
                request(daemon, "GET", "note?select=_server&limit=50", Accept="application/x-ndjson")
            )
        return responses

    with ThreadPoolExecutor(4) as threads:
        clients = [threads.submit(load) for _ in range(4)]
        try:
            for standby in trio.standbys:
                come_back = crashed(standby)
                wait_for(lambda: len(available(daemon)) == 1, "the end to be seen")
                come_back()
                wait_available(daemon, trio.standbys)
            resume_all = [crashed(standby) for standby in trio.standbys]
            wait_available(daemon, [])
            assert server(daemon) == trio.primary.port
            assert daemon.admin("GET", "/ready").status == 200
        finally:
            over.set()
        responses = [response for client in clients for response in client.result()]
    for come_back in resume_all:
        come_back()
    assert {response.status for response in responses} == {200}
    wait_available(daemon, trio.standbys)


def test_reads_on_frozen_replicas_are_repeated_on_the_primary(
    trio: Pair, database: Database, tmp_path: Path
) -> None:
    project = {"db-read-uri": trio.read_uri(database.name), "db-pool": "1", "request-timeout": "15"}
    with Daemon(tmp_path, database.uri, project=project) as daemon, ThreadPoolExecutor(4) as threads:
        daemon.wait_ready()
        wait_available(daemon, trio.standbys)
        running = [threads.submit(request, daemon, "GET", "rpc/slow") for _ in range(4)]
        wait_for(lambda: all(one.admin.execute(NAPS) for one in trio.standbys), "the reads to run")
        come_back = [frozen(standby) for standby in trio.standbys]
        try:
            responses = [one.result() for one in running]
            assert [(response.status, response.json) for response in responses] == [
                (200, trio.primary.port)
            ] * 4
            assert daemon.stop() == 0
        finally:
            for resumes in come_back:
                resumes()
        assert [line for line in daemon.lines if line["level"] == "critical"] == []


def test_reads_continue_without_a_primary(trio: Pair, daemon: Daemon) -> None:
    """``/ready`` returns 200, so that proxies keep sending reads."""
    ready = daemon.admin("GET", "/ready")
    assert (ready.status, ready.json["writes"]) == (200, True)
    come_back = crashed(trio.primary)
    wait_for(lambda: daemon.admin("GET", "/ready").json["writes"] is False, "the end to be seen")
    ready = daemon.admin("GET", "/ready")
    [project] = ready.json["projects"]
    assert (ready.status, project["ready"], project["database_available"]) == (200, True, False)
    assert "the database cannot be reached" in project["reason"]
    assert request(daemon, "GET", "note?limit=1").status == 200
    assert daemon.graphql(SERVER).status == 200
    refused = request(daemon, "POST", "note", json.dumps({"id": 5000, "body": "x"}))
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    come_back()
    wait_for(lambda: daemon.admin("GET", "/ready").json["writes"] is True, "the primary")


def test_read_canceled_by_recovery_conflict_is_repeated(
    trio: Pair, database: Database, daemon: Daemon
) -> None:
    for standby in trio.standbys:
        standby.admin.execute("alter system set max_standby_streaming_delay = 0")
        standby.admin.execute("select pg_reload_conf()")
    before = repeated(trio, daemon)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(request, daemon, "GET", "rpc/slow")
        running = "select 1 from pg_stat_activity where wait_event = 'PgSleep'"
        wait_for(lambda: any(one.admin.execute(running) for one in trio.standbys), "the read to run")
        # The read is repeated on the other replica, and also canceled there.
        while not reading.done():
            database.execute("lock table note; alter table note alter body set statistics 7")
        response = reading.result()
    assert (response.status, response.json) == (200, trio.primary.port)
    assert repeated(trio, daemon) > before
    for standby in trio.standbys:
        standby.admin.execute("alter system reset max_standby_streaming_delay")
        standby.admin.execute("select pg_reload_conf()")
