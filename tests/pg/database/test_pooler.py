"""A pooler before PostgreSQL: what works through it, and what is said of settings that are not for it."""

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

pytestmark = pytest.mark.direct("these tests have poolers of their own")

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
    """Give each of PgBouncer's modes that can be used."""
    return str(request.param)


@pytest.fixture
def behind(server: Server, database: Database, mode: str) -> Iterator[Database]:
    """Give this test's database, reached through a pooler in that mode."""
    with pooled(server, database, mode) as found:
        yield found


async def test_a_pooler_that_loses_statements_is_recognised(
    behind: Database, database: Database, mode: str, reactor: Any
) -> None:
    """One in session mode, and PostgreSQL itself, are none."""
    assert await loses_statements(reactor, behind.uri) == (mode == "transaction")
    assert not await loses_statements(reactor, database.uri)
    assert not await loses_statements(reactor, "postgresql://nobody@127.0.0.1:1/nowhere")


async def test_the_statement_of_a_caller_that_is_gone_ends(
    behind: Database, database: Database, mode: str, make_pool: Callable[..., Pool], reactor: Any
) -> None:
    """The pooler's process numbers are its own, so that the request to cancel goes through it."""
    pool = make_pool(uri=behind.uri, size=1, prepared_statements=mode == "session", search_path=("public",))
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


async def test_callers_keep_apart_through_a_pooler(
    behind: Database, database: Database, mode: str, make_pool: Callable[..., Pool]
) -> None:
    database.execute(SCHEMA)
    pool = make_pool(uri=behind.uri, size=5, prepared_statements=mode == "session", search_path=("public",))
    await pool.start()
    roles = ("anon", "authenticated", "service_role") * 40
    asked = [running(pool.run(message("select current_user::text, $1", role, role=role))) for role in roles]
    assert [(await answer)[0] for answer in asked] == [(role, role) for role in roles]
    [(count,)] = await pool.run(message("select count(*) from note"))
    assert count == 1


async def test_daemons_do_not_run_each_others_statements(
    server: Server, database: Database, make_pool: Callable[..., Pool]
) -> None:
    database.execute(
        """
        create table one (id int); insert into one select generate_series(1, 300);
        create table two (id int); insert into two select generate_series(1, 300);
        grant all on one, two to anon;
        """
    )
    with pooled(server, database, "transaction", "default_pool_size = 2") as behind:
        pools = [make_pool(uri=behind.uri, size=4) for _ in range(2)]
        for each in pools:
            await each.start()
        deletes = [
            Statement(f"delete from {table} where id = $1 returning tableoid::regclass::text, id", ("int",))
            for table in ("one", "two")
        ]
        asked = [
            (
                table,
                number,
                running(pool.run(Message("anon", (), (Bound(delete, (number,)),), read_only=False))),
            )
            for number in map(str, range(1, 151))
            for table, pool, delete in zip(("one", "two"), pools, deletes, strict=True)
        ]
        for table, number, answer in asked:
            assert await answer == [(table, int(number))]


async def test_forced_statements_fail_rather_than_be_anothers(
    server: Server, database: Database, make_pool: Callable[..., Pool]
) -> None:
    with pooled(server, database, "transaction", "default_pool_size = 3") as behind:
        pools = [make_pool(uri=behind.uri, size=4, prepared_statements=True) for _ in range(2)]
        for each in pools:
            await each.start()
        statements = [Statement(f"select {number}", ()) for number in range(len(pools))]
        asked = [
            (number, running(pool.run(Message("anon", (), (Bound(statements[number]),)))))
            for _ in range(60)
            for number, pool in enumerate(pools)
        ]
        answers = await defer.DeferredList([answer for _, answer in asked], consumeErrors=True)
        for (number, _), (answered, outcome) in zip(asked, answers, strict=True):
            assert outcome == [(number,)] if answered else outcome.value.code == "26000"
        assert any(answered for answered, _ in answers)


async def test_each_connection_finds_the_pooler_out_by_itself(
    server: Server, database: Database, make_pool: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address may lead to PostgreSQL today and to a pooler tomorrow."""
    prepared = message("select count(*)::int from pg_prepared_statements where name like 'p%'")
    met: list[bool] = []
    with pooled(server, database, "transaction") as behind:
        pool = make_pool(size=1)
        pool.on_pooler = lambda: met.append(pool.pooled)
        await pool.start()
        assert await pool.run(prepared) == [(3,)]
        assert not met
        monkeypatch.setattr(pool._connector, "_parameters", address.parameters(behind.uri))
        await pool.renew()
        assert await pool.run(prepared) == [(0,)]
        assert met == [True]


@pytest.fixture(scope="module")
def lent(server: Server, reactor: Any) -> Iterator[Any]:
    with (
        pooled(server, server.create_database(SCHEMA), "transaction") as behind,
        serving(reactor, behind) as service,
    ):
        assert not any(finding.wrong for finding in inspect(service.project))
        yield service


async def test_a_pooler_of_which_nothing_can_be_found_out_keeps_no_statements(
    server: Server, database: Database, make_pool: Callable[..., Pool]
) -> None:
    database.execute("revoke select on pg_prepared_statements from public")
    with pooled(server, database, "transaction", "default_pool_size = 1") as behind:
        pool = make_pool(uri=behind.uri, size=2)
        await pool.start()
        assert pool.trouble is None
        assert [await pool.run(message("select 1")) for _ in range(3)] == [[(1,)]] * 3
        assert inspect(Project(REF, "acme", behind.uri, jwt_secret="s" * 32, db_prepared_statements=True))


async def test_both_apis_work_through_transaction_mode(lent: Any) -> None:
    for role, number in (("anon", 1), ("authenticated", 2)):
        assert (await lent.rest("GET", "note?select=id", role=role)).body == [{"id": number}]
        data = (await lent.ask("{ noteCollection { edges { node { id } } } }", role=role)).data
        assert data["noteCollection"]["edges"] == [{"node": {"id": number}}]
    written = await lent.rest("POST", "note", {"id": 3}, headers={"Prefer": "return=representation"})
    assert written.body == [{"id": 3, "owner": "anon"}]
    streamed = await lent.rest("GET", "note?order=id", headers={"Accept": "text/csv"})
    assert streamed.text.splitlines() == ["id,owner", "1,anon", "3,anon"]


@pytest.mark.parametrize("forced", ["db_prepared_statements", "db_channel_enabled"])
async def test_forced_settings_that_cannot_work_are_said(
    behind: Database, mode: str, forced: str, reactor: Any
) -> None:
    settings: dict[str, Any] = {"jwt_secret": "s" * 32, forced: True}
    project = Project(REF, "acme", behind.uri, **settings)
    wanted = ADVICE.format(f"{forced.replace('_', '-')} = auto") if mode == "transaction" else None
    part = ProjectPart(reactor, project)
    await part.start()
    try:
        state = part.state()
        assert (state.generation, state.fault, state.ready) == (1, wanted, wanted is None)
    finally:
        await part.stop()
    assert [finding.text for finding in inspect(project) if finding.wrong] == ([wanted] if wanted else [])


async def test_what_is_not_forced_adapts_itself(behind: Database, mode: str, reactor: Any) -> None:
    project = Project(REF, "acme", behind.uri, jwt_secret="s" * 32)
    part = ProjectPart(reactor, project)
    await part.start()
    try:
        assert part.state().ready
        behind.execute("notify pgrst, 'reload schema'")
        if mode == "session":
            await until(reactor, lambda: part.state().generation == 2)
    finally:
        await part.stop()
    assert not any(finding.wrong for finding in inspect(project))


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("first", [0, -1])
async def test_lent_processes_are_seen_whichever_one_is_lent_next(processes: int, first: int) -> None:
    free = list(range(processes))

    async def ask() -> int:
        process = free.pop(first)
        free.append(process)
        return process

    assert await share_processes(ask, ask)


async def test_processes_that_are_kept_are_not_lent() -> None:
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
    """LISTEN does not work through transaction mode: what others publish is looked for, its own is known."""
    if own:
        monkeypatch.setattr("dataapi.webhooks.delivery.dispatcher.POLL_INTERVAL", FOR_EVER)
    allow_migrations(database)
    section = Webhooks(encryption_key=(KEY,), allow_addresses=("127.0.0.0/8",))
    with pooled(server, database, "transaction") as behind:
        part = WebhooksPart(reactor, Settings((Project(REF, "acme", behind.uri),), webhooks=section))
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


async def test_a_pooler_in_statement_mode_is_refused(
    server: Server, database: Database, make_pool: Callable[..., Pool]
) -> None:
    with pooled(server, database, "statement") as behind:
        pool = make_pool(uri=behind.uri, size=1)
        await pool.start()
        assert not pool.available
        assert "statement pooling" in (pool.trouble or "")
        findings = inspect(Project(REF, "acme", behind.uri, jwt_secret="s" * 32))
    wrong = [finding.text for finding in findings if finding.wrong]
    assert wrong == ["db-uri names a pooler in statement mode: this is not supported"]


@pytest.fixture
def shared(server: Server, database: Database) -> Iterator[Database]:
    database.execute("grant pg_read_all_stats to authenticator")
    with pooled(server, database, "transaction", "default_pool_size = 1") as found:
        yield found
    database.execute("revoke pg_read_all_stats from authenticator")


def settings_of(database: Database) -> object:
    """Return as whom another client's SQL runs, and which settings of its session it finds."""
    # The pooler itself passes the last program's name on.
    asked = "select name, setting from pg_settings where source = 'session' and name <> 'application_name'"
    with connected(database.uri) as fetch:
        return fetch("select current_user", ()), fetch(asked, ())


async def test_a_look_at_the_server_leaves_others_their_role(shared: Database, reactor: Any) -> None:
    before = settings_of(shared)
    watch = ServerWatch(reactor, shared.uri)
    await watch.poll()
    assert watch.state is not None
    assert settings_of(shared) == before
    watch.close()


def test_reading_settings_in_the_database_leaves_others_theirs(shared: Database) -> None:
    """Its time limit would end what other programs do through the same pooler."""
    shared.execute("create function made() returns void language sql as $$ select $$")
    before = settings_of(shared)
    for function in (None, "made"):
        read_stored(Project(REF, "acme", shared.uri, db_config=True, db_pre_config=function))
        assert settings_of(shared) == before


@pytest.mark.parametrize("resets", [True, False])
async def test_what_functions_set_for_their_session_is_said_to_be_passed_on(
    server: Server, database: Database, resets: bool
) -> None:
    with pooled(server, database, "transaction", *(RESETTING if resets else ())) as behind:
        findings = inspect(Project(REF, "acme", behind.uri, jwt_secret="s" * 32))
    assert (SETTINGS_PASSED_ON in [finding.text for finding in findings]) != resets
    assert not any(finding.wrong for finding in findings if finding.text == SETTINGS_PASSED_ON)
