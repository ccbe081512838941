"""Reads on replicas: they are shared, never stale for who wrote, and always answered."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING

import pytest
from support.daemon import KEY, SECRET_KEY, Daemon, wait_for
from support.outages import crashed
from support.replication import Pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.daemon import Answer
    from support.postgres import Database, Server

# Which server answers: its port.
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
    """Give a primary with two standbys."""
    made = Pair(others=1)
    try:
        made.create()
        yield made
    finally:
        made.remove()


@pytest.fixture
def database(trio: Pair) -> Database:
    """Give a database that has come to both standbys."""
    made = trio.primary.create_database(SCHEMA)
    trio.follow(made)
    return made


@pytest.fixture
def daemon(trio: Pair, database: Database, tmp_path: Path) -> Iterator[Daemon]:
    """Give a daemon that reads on both standbys."""
    project = {"db-read-uri": trio.read_uri(database.name), "db-read-max-lag": "4"}
    with Daemon(tmp_path, database.uri, project=project) as started:
        started.wait_ready()
        wait_available(started, trio.standbys)
        yield started


def available(daemon: Daemon) -> set[int]:
    """Return the ports of the replicas that get reads, as ``/ready`` tells them."""
    [project] = daemon.admin("GET", "/ready").json["projects"]
    return {int(one["server"].rpartition(":")[2]) for one in project["replicas"] if one["available"]}


def wait_available(daemon: Daemon, servers: list[Server]) -> None:
    """Wait until these replicas get reads, and no others."""
    expected = {server.port for server in servers}
    wait_for(lambda: available(daemon) == expected, f"the replicas {expected}")


def request(daemon: Daemon, method: str, target: str, body: str | None = None, **headers: str) -> Answer:
    """Send a REST request of a service."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return daemon.request(method, f"/rest/v1/{target}", body, {"apikey": SECRET_KEY, **named})


def server(daemon: Daemon, **headers: str) -> int:
    """Return the port of the server that answers a read."""
    return int(request(daemon, "GET", "rpc/server", **headers).json)


def repeated(trio: Pair, daemon: Daemon) -> float:
    """Return how many reads a replica could not answer, so that another server did."""
    label = 'outcome="repeated",project="abcdefghijklmnopqrst",server="127.0.0.1:{}"'
    return sum(
        daemon.metric(f"dataapi_replica_reads_total{{{label.format(one.port)}}}") for one in trio.standbys
    )


def write(daemon: Daemon, number: int) -> str:
    """Insert a row and return the position that the answer names."""
    answer = request(daemon, "POST", "note", json.dumps({"id": number, "body": "x"}))
    assert answer.status == 201
    return answer.headers["Dataapi-LSN"]


def test_reads_are_shared_by_the_replicas(trio: Pair, daemon: Daemon) -> None:
    """GET of tables and stable functions, and queries; all else is the primary's."""
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
    assert request(daemon, "GET", "rpc/volatile_server").json == primary
    assert request(daemon, "POST", "rpc/server", "{}").json == primary
    preferred = request(daemon, "GET", "rpc/server", Prefer="consistency=primary")
    assert preferred.json == primary
    assert preferred.headers["Preference-Applied"] == "consistency=primary"
    body = json.dumps({"query": SERVER, "extensions": {"consistency": "primary"}})
    answer = daemon.request("POST", "/graphql/v1", body, {"apikey": KEY})
    assert answer.json["data"]["noteCollection"]["edges"][0]["node"]["server"] == primary


def test_the_first_usable_host_answers_where_reads_are_not_balanced(
    trio: Pair, database: Database, tmp_path: Path
) -> None:
    """As libpq tries hosts in their order."""
    project = {"db-read-uri": trio.read_uri(database.name, "disable")}
    with Daemon(tmp_path, database.uri, project=project) as daemon:
        daemon.wait_ready()
        wait_available(daemon, trio.standbys)
        assert {server(daemon) for _ in range(20)} == {trio.standby.port}


def test_who_wrote_reads_it(trio: Pair, daemon: Daemon) -> None:
    """Whatever the replicas have replayed: by the position that came with the write, sent back."""
    chance = random.Random(13)
    paused: set[Server] = set()
    answered = set()
    for number in range(1000, 1120):
        if chance.random() < 0.2:
            standby = chance.choice(trio.standbys)
            paused ^= {standby}
            standby.admin.execute(f"select pg_wal_replay_{'pause' if standby in paused else 'resume'}()")
        position = write(daemon, number)
        read = request(daemon, "GET", f"note?select=id,_server&id=eq.{number}", Dataapi_LSN=position)
        assert [row["id"] for row in read.json] == [number]
        answered.add(read.json[0]["_server"])
        query = f"{{ noteCollection(filter: {{id: {{eq: {number}}}}}) {{ edges {{ node {{ id }} }} }} }}"
        found = daemon.graphql(query, **{"Dataapi-LSN": position}).json
        assert found["data"]["noteCollection"]["edges"] == [{"node": {"id": number}}]
    for standby in trio.standbys:
        standby.admin.execute("select pg_wal_replay_resume()")
    assert trio.primary.port in answered
    assert server(daemon, Dataapi_LSN="nonsense") == trio.primary.port


def test_a_position_that_was_replayed_leaves_the_read_to_replicas(trio: Pair, daemon: Daemon) -> None:
    """Of several positions, as of several writes, the furthest counts."""
    old, new = write(daemon, 2000), write(daemon, 2001)

    def by_replica() -> bool:
        # The standbys hear of a position only with what is written behind it.
        write(daemon, random.randrange(10_000, 10_000_000))
        return server(daemon, Dataapi_LSN=f"{new}, {old}") != trio.primary.port

    wait_for(by_replica, "a replica to answer")
    for standby in trio.standbys:
        standby.admin.execute("select pg_wal_replay_pause()")
    newest = write(daemon, 2002)
    assert server(daemon, Dataapi_LSN=f"{newest}, {old}") == trio.primary.port
    assert server(daemon, Dataapi_LSN=old) != trio.primary.port
    for standby in trio.standbys:
        standby.admin.execute("select pg_wal_replay_resume()")


def test_writes_of_every_kind_name_a_position(daemon: Daemon) -> None:
    """A mutation, a function and a batch; a browser's script may read it."""
    mutation = "mutation { insertIntonoteCollection(objects: [{id: 3000}]) { affectedCount } }"
    assert "Dataapi-LSN" in daemon.graphql(mutation, SECRET_KEY).headers
    assert "Dataapi-LSN" in request(daemon, "POST", "rpc/volatile_server", "{}").headers
    batch = json.dumps({"requests": [{"method": "POST", "path": "/note", "body": {"id": 3001}}]})
    answer = request(daemon, "POST", "", batch, Content_Type="application/vnd.dataapi.batch+json",
                     Origin="https://example.org")  # fmt: skip
    assert answer.status == 200, answer.body
    assert "Dataapi-LSN" in answer.headers
    assert "Dataapi-LSN" in answer.headers["Access-Control-Expose-Headers"]
    assert "Dataapi-LSN" not in request(daemon, "GET", "note?limit=1").headers


def test_a_replica_that_lags_gets_no_reads(trio: Pair, daemon: Daemon) -> None:
    """The other one does, and the primary where all lag; each comes back when it has caught up."""
    trio.standby.admin.execute("select pg_wal_replay_pause()")
    number = iter(range(4000, 1_000_000))

    def written(standbys: list[Server]) -> bool:
        write(daemon, next(number))
        return available(daemon) == {one.port for one in standbys}

    wait_for(lambda: written(trio.others), "the lag to be seen")
    assert {server(daemon) for _ in range(20)} == {trio.others[0].port}
    trio.others[0].admin.execute("select pg_wal_replay_pause()")
    wait_for(lambda: written([]), "the other one's lag to be seen")
    assert {server(daemon) for _ in range(20)} == {trio.primary.port}
    label = f'project="abcdefghijklmnopqrst",server="127.0.0.1:{trio.standby.port}"'
    assert daemon.metric(f"dataapi_replica_lag_seconds{{{label}}}") > 4
    for standby in trio.standbys:
        standby.admin.execute("select pg_wal_replay_resume()")
    wait_available(daemon, trio.standbys)


def test_what_a_replica_does_not_know_yet_the_primary_does(
    trio: Pair, database: Database, daemon: Daemon
) -> None:
    """A new table has come to the catalog before it comes to the replicas."""
    for standby in trio.standbys:
        standby.admin.execute("select pg_wal_replay_pause()")
    database.execute("create table later (id int); grant select on later to service_role")
    database.execute("notify pgrst, 'reload schema'")
    wait_for(lambda: request(daemon, "GET", "later").status == 200, "the table")
    for standby in trio.standbys:
        standby.admin.execute("select pg_wal_replay_resume()")


def test_killed_replicas_cost_no_answer(trio: Pair, daemon: Daemon) -> None:
    """Under load, one after the other, in the midst of reads, and both at last."""
    over = Event()

    def load() -> list[Answer]:
        answers = []
        while not over.is_set():
            answers.append(request(daemon, "GET", "note?select=id&limit=5"))
            answers.append(
                request(daemon, "GET", "note?select=_server&limit=50", Accept="application/x-ndjson")
            )
        return answers

    with ThreadPoolExecutor(4) as threads:
        clients = [threads.submit(load) for _ in range(4)]
        try:
            for standby in trio.standbys:
                come_back = crashed(standby)
                wait_for(lambda: len(available(daemon)) == 1, "the end to be seen")
                come_back()
                wait_available(daemon, trio.standbys)
            return_all = [crashed(standby) for standby in trio.standbys]
            wait_available(daemon, [])
            assert server(daemon) == trio.primary.port
            assert daemon.admin("GET", "/ready").status == 200
        finally:
            over.set()
        answers = [answer for client in clients for answer in client.result()]
    for come_back in return_all:
        come_back()
    assert {answer.status for answer in answers} == {200}
    wait_available(daemon, trio.standbys)


def test_a_read_that_conflicts_with_recovery_is_repeated(
    trio: Pair, database: Database, daemon: Daemon
) -> None:
    """What was replayed meanwhile takes from the replica what it reads."""
    for standby in trio.standbys:
        standby.admin.execute("alter system set max_standby_streaming_delay = 0")
        standby.admin.execute("select pg_reload_conf()")
    before = repeated(trio, daemon)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(request, daemon, "GET", "rpc/slow")
        running = "select 1 from pg_stat_activity where wait_event = 'PgSleep'"
        wait_for(lambda: any(one.admin.execute(running) for one in trio.standbys), "the read to run")
        # The other replica, on which the read is repeated, gives it up, too.
        while not reading.done():
            database.execute("lock table note; alter table note alter body set statistics 7")
        answer = reading.result()
    assert (answer.status, answer.json) == (200, trio.primary.port)
    assert repeated(trio, daemon) > before
    for standby in trio.standbys:
        standby.admin.execute("alter system reset max_standby_streaming_delay")
        standby.admin.execute("select pg_reload_conf()")
