"""Behavior behind PgBouncer, and findings about settings that do not work with PgBouncer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database import address
from dataapi.database.message import Bound, Message, Statement
from dataapi.database.pool import Pool
from dataapi.database.pooler import loses_statements, share_processes
from dataapi.database.script import connected
from dataapi.database.server_watch import ServerWatch
from dataapi.service.database_settings import read_stored
from dataapi.service.inspection import SETTINGS_PASSED_ON, inspect
from dataapi.service.project import ProjectPart
from dataapi.service.webhooks import WebhooksPart
from dataapi.settings import Project, Settings, Webhooks
from support.clocks import FOR_EVER
from support.messages import message, running, until
from support.pooler import RESETTING, pooled
from support.receiver import Receiver, World
from support.service import serving
from support.webhooks import ACME, KEY, PAUSED, REF, add_endpoint, allow_migrations, publish
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.postgres import Database, Server

pytestmark = pytest.mark.direct("these tests start their own poolers")

SCHEMA = """
create table note (id int primary key, owner name not null default current_user);
alter table note enable row level security;
create policy own on note using (owner = current_user);
insert into note values (1, 'anon'), (2, 'authenticated');
grant all on note to anon, authenticated;
"""
ADVICE = "db-uri connects to a pooler in transaction mode: set {}"


@pytest.fixture(params=["session", "transaction"])
def mode(request: pytest.FixtureRequest) -> str:
    """Run the test in each supported pool mode of PgBouncer."""
    return str(request.param)


@pytest.fixture
def through_pooler(server: Server, database: Database, mode: str) -> Iterator[Database]:
    """Return this test's database behind PgBouncer in the test's pool mode."""
    with pooled(server, database, mode) as pooler:
        yield pooler


async def test_pooler_that_loses_prepared_statements_is_detected(
    through_pooler: Database, database: Database, mode: str, reactor: Any
) -> None:
    assert await loses_statements(reactor, through_pooler.uri) == (mode == "transaction")
    assert not await loses_statements(reactor, database.uri)
    assert not await loses_statements(reactor, "postgresql://nobody@127.0.0.1:1/nowhere")


async def test_statement_of_a_disconnected_caller_is_cancelled(
    through_pooler: Database, database: Database, mode: str, make_pool: Callable[..., Pool], reactor: Any
) -> None:
    """A pooler has its own process numbers, so the cancel request must go through the pooler."""
    pool = make_pool(
        uri=through_pooler.uri, size=1, prepared_statements=mode == "session", search_path=("public",)
    )
    await pool.start()
    slow = running(pool.run(message("select pg_sleep(50)")))
    sleeping = "select count(*) from pg_stat_activity where state = 'active' and query like '%pg_sleep(50)%'"
    mine = f"{sleeping} and pid <> pg_backend_pid()"
    await until(reactor, lambda: database.execute(mine) == [(1,)])
    slow.cancel()
    with pytest.raises(defer.CancelledError):
        await slow
    await until(reactor, lambda: database.execute(mine) == [(0,)])
    assert await pool.run(message("select 1")) == [(1,)]


async def test_roles_of_callers_stay_separate(
    through_pooler: Database, database: Database, mode: str, make_pool: Callable[..., Pool]
) -> None:
    database.execute(SCHEMA)
    pool = make_pool(
        uri=through_pooler.uri, size=5, prepared_statements=mode == "session", search_path=("public",)
    )
    await pool.start()
    roles = ("anon", "authenticated", "service_role") * 40
    pending = [running(pool.run(message("select current_user::text, $1", role, role=role))) for role in roles]
    assert [(await result)[0] for result in pending] == [(role, role) for role in roles]
    [(count,)] = await pool.run(message("select count(*) from note"))
    assert count == 1


async def test_daemons_do_not_execute_each_others_prepared_statements(
    server: Server, database: Database, make_pool: Callable[..., Pool]
) -> None:
    database.execute(
        """
        create table one (id int); insert into one select generate_series(1, 300);
        create table two (id int); insert into two select generate_series(1, 300);
        grant all on one, two to anon;
        """
    )
    with pooled(server, database, "transaction", "default_pool_size = 2") as through_pooler:
        pools = [make_pool(uri=through_pooler.uri, size=4) for _ in range(2)]
        for each in pools:
            await each.start()
        deletes = [
            Statement(f"delete from {table} where id = $1 returning tableoid::regclass::text, id", ("int",))
            for table in ("one", "two")
        ]
        pending = [
            (
                table,
                number,
                running(pool.run(Message("anon", (), (Bound(delete, (number,)),), read_only=False))),
            )
            for number in map(str, range(1, 151))
            for table, pool, delete in zip(("one", "two"), pools, deletes, strict=True)
        ]
        for table, number, result in pending:
            assert await result == [(table, int(number))]


async def test_forced_prepared_statements_fail_but_are_never_confused(
    server: Server, database: Database, make_pool: Callable[..., Pool]
) -> None:
    with pooled(server, database, "transaction", "default_pool_size = 3") as through_pooler:
        pools = [make_pool(uri=through_pooler.uri, size=4, prepared_statements=True) for _ in range(2)]
        for each in pools:
            await each.start()
        statements = [Statement(f"select {number}", ()) for number in range(len(pools))]
        pending = [
            (number, running(pool.run(Message("anon", (), (Bound(statements[number]),)))))
            for _ in range(60)
            for number, pool in enumerate(pools)
        ]
        results = await defer.DeferredList([result for _, result in pending], consumeErrors=True)
        for (number, _), (success, outcome) in zip(pending, results, strict=True):
            assert outcome == [(number,)] if success else outcome.value.code == "26000"
        assert any(success for success, _ in results)


async def test_each_new_connection_detects_a_pooler(
    server: Server, database: Database, make_pool: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host of ``db-uri`` may later lead to a pooler instead of PostgreSQL."""
    prepared = message("select count(*)::int from pg_prepared_statements where name like 'p%'")
    detected: list[bool] = []
    with pooled(server, database, "transaction") as through_pooler:
        pool = make_pool(size=1)
        pool.on_pooler = lambda: detected.append(pool.pooled)
        await pool.start()
        assert await pool.run(prepared) == [(3,)]
        assert not detected
        monkeypatch.setattr(pool._connector, "_parameters", address.parameters(through_pooler.uri))
        await pool.renew()
        assert await pool.run(prepared) == [(0,)]
        assert detected == [True]


@pytest.fixture(scope="module")
def service_through_pooler(server: Server, reactor: Any) -> Iterator[Any]:
    with (
        pooled(server, server.create_database(SCHEMA), "transaction") as through_pooler,
        serving(reactor, through_pooler) as service,
    ):
        assert not any(finding.wrong for finding in inspect(service.project))
        yield service


async def test_nothing_is_prepared_if_the_pooler_cannot_be_identified(
    server: Server, database: Database, make_pool: Callable[..., Pool]
) -> None:
    database.execute("revoke select on pg_prepared_statements from public")
    with pooled(server, database, "transaction", "default_pool_size = 1") as through_pooler:
        pool = make_pool(uri=through_pooler.uri, size=2)
        await pool.start()
        assert pool.trouble is None
        assert [await pool.run(message("select 1")) for _ in range(3)] == [[(1,)]] * 3
        assert inspect(
            Project(REF, "acme", through_pooler.uri, jwt_secret="s" * 32, db_prepared_statements=True)
        )


async def test_both_apis_work_through_transaction_mode(service_through_pooler: Any) -> None:
    for role, number in (("anon", 1), ("authenticated", 2)):
        assert (await service_through_pooler.rest("GET", "note?select=id", role=role)).body == [
            {"id": number}
        ]
        data = (
            await service_through_pooler.ask("{ noteCollection { edges { node { id } } } }", role=role)
        ).data
        assert data["noteCollection"]["edges"] == [{"node": {"id": number}}]
    written = await service_through_pooler.rest(
        "POST", "note", {"id": 3}, headers={"Prefer": "return=representation"}
    )
    assert written.body == [{"id": 3, "owner": "anon"}]
    streamed = await service_through_pooler.rest("GET", "note?order=id", headers={"Accept": "text/csv"})
    assert streamed.text.splitlines() == ["id,owner", "1,anon", "3,anon"]


@pytest.mark.parametrize("forced", ["db_prepared_statements", "db_channel_enabled"])
async def test_forced_settings_that_cannot_work_are_reported(
    through_pooler: Database, mode: str, forced: str, reactor: Any
) -> None:
    settings: dict[str, Any] = {"jwt_secret": "s" * 32, forced: True}
    project = Project(REF, "acme", through_pooler.uri, **settings)
    expected = ADVICE.format(f"{forced.replace('_', '-')} = auto") if mode == "transaction" else None
    part = ProjectPart(reactor, project)
    await part.start()
    try:
        state = part.state()
        assert (state.generation, state.fault, state.ready) == (1, expected, expected is None)
    finally:
        await part.stop()
    assert [finding.text for finding in inspect(project) if finding.wrong] == ([expected] if expected else [])


async def test_automatic_settings_adapt_to_the_pooler(
    through_pooler: Database, mode: str, reactor: Any
) -> None:
    project = Project(REF, "acme", through_pooler.uri, jwt_secret="s" * 32)
    part = ProjectPart(reactor, project)
    await part.start()
    try:
        assert part.state().ready
        through_pooler.execute("notify pgrst, 'reload schema'")
        if mode == "session":
            await until(reactor, lambda: part.state().generation == 2)
    finally:
        await part.stop()
    assert not any(finding.wrong for finding in inspect(project))


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("first", [0, -1])
async def test_shared_server_processes_are_detected_in_any_order(processes: int, first: int) -> None:
    free = list(range(processes))

    async def next_process() -> int:
        process = free.pop(first)
        free.append(process)
        return process

    assert await share_processes(next_process, next_process)


async def test_dedicated_server_processes_are_not_shared() -> None:
    async def one() -> int:
        return 1

    async def other() -> int:
        return 2

    assert not await share_processes(one, other)


@pytest.mark.parametrize("own", [True, False])
async def test_webhooks_are_delivered_without_notifications(
    server: Server,
    database: Database,
    world: World,
    reactor: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    own: bool,
) -> None:
    """LISTEN does not work in transaction mode: the dispatcher polls for events of other publishers."""
    if own:
        monkeypatch.setattr("dataapi.webhooks.delivery.dispatcher.POLL_INTERVAL", FOR_EVER)
    allow_migrations(database)
    section = Webhooks(encryption_key=(KEY,), allow_addresses=("127.0.0.0/8",))
    with pooled(server, database, "transaction") as through_pooler:
        part = WebhooksPart(reactor, Settings((Project(REF, "acme", through_pooler.uri),), webhooks=section))
        await part.start()
        try:
            await part.store.directory.create_organization(ACME.organization, early_access=True)
            await part.store.directory.create_project(REF, ACME.organization)
            receiver = Receiver()
            await add_endpoint(part.store, url=f"http://127.0.0.1:{world.listen(receiver)}/")
            if own:
                await publish(part.store)
            else:
                database.execute(f"select webhooks.publish('{PAUSED}', 'acme', null, '{{}}', 'key')")
            await until(reactor, lambda: bool(receiver.received))
        finally:
            await part.drain(1)
            await part.stop()


async def test_pooler_in_statement_mode_is_rejected(
    server: Server, database: Database, make_pool: Callable[..., Pool]
) -> None:
    with pooled(server, database, "statement") as through_pooler:
        pool = make_pool(uri=through_pooler.uri, size=1)
        await pool.start()
        assert not pool.available
        assert "statement pooling" in (pool.trouble or "")
        findings = inspect(Project(REF, "acme", through_pooler.uri, jwt_secret="s" * 32))
    wrong = [finding.text for finding in findings if finding.wrong]
    assert wrong == ["db-uri names a pooler in statement mode: this is not supported"]


@pytest.fixture
def one_session(server: Server, database: Database) -> Iterator[Database]:
    database.execute("grant pg_read_all_stats to authenticator")
    with pooled(server, database, "transaction", "default_pool_size = 1") as pooler:
        yield pooler
    database.execute("revoke pg_read_all_stats from authenticator")


def session_state(database: Database) -> object:
    """Return the role and session settings of the pooler's next client."""
    # PgBouncer itself sets the application name of the last client.
    query = "select name, setting from pg_settings where source = 'session' and name <> 'application_name'"
    with connected(database.uri) as fetch:
        return fetch("select current_user", ()), fetch(query, ())


async def test_server_watch_does_not_change_the_role_of_others(one_session: Database, reactor: Any) -> None:
    before = session_state(one_session)
    watch = ServerWatch(reactor, one_session.uri)
    await watch.poll()
    assert watch.state is not None
    assert session_state(one_session) == before
    watch.close()


def test_reading_stored_settings_does_not_change_those_of_others(one_session: Database) -> None:
    """Our statement timeout would otherwise cancel statements of other clients of the pooler."""
    one_session.execute("create function made() returns void language sql as $$ select $$")
    before = session_state(one_session)
    for function in (None, "made"):
        read_stored(Project(REF, "acme", one_session.uri, db_config=True, db_pre_config=function))
        assert session_state(one_session) == before


@pytest.mark.parametrize("resets", [True, False])
async def test_check_config_warns_if_the_pooler_does_not_reset_sessions(
    server: Server, database: Database, resets: bool
) -> None:
    with pooled(server, database, "transaction", *(RESETTING if resets else ())) as through_pooler:
        findings = inspect(Project(REF, "acme", through_pooler.uri, jwt_secret="s" * 32))
    assert (SETTINGS_PASSED_ON in [finding.text for finding in findings]) != resets
    assert not any(finding.wrong for finding in findings if finding.text == SETTINGS_PASSED_ON)
