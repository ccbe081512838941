"""A pooler before PostgreSQL: what works through it, and what is said of settings that are not for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.pool import Pool
from dataapi.database.pooler import pools_transactions
from dataapi.inspection import inspect
from dataapi.service.project import ProjectPart
from dataapi.service.webhooks import WebhooksPart
from dataapi.settings import Project, Settings, Webhooks
from support.messages import message, running, until
from support.pooler import pooled
from support.receiver import Receiver, World
from support.service import serving
from support.webhooks import ACME, KEY, REF, add_endpoint, allow_migrations, publish
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.postgres import Database, Server

SCHEMA = """
create table note (id int primary key, owner name not null default current_user);
alter table note enable row level security;
create policy own on note using (owner = current_user);
insert into note values (1, 'anon'), (2, 'authenticated');
grant all on note to anon, authenticated;
"""
ADVICE = "db-uri leads to a pooler in transaction mode, which needs {}"


@pytest.fixture(params=["session", "transaction"])
def mode(request: pytest.FixtureRequest) -> str:
    """Give each of PgBouncer's modes that can be used."""
    return str(request.param)


@pytest.fixture
def behind(server: Server, database: Database, mode: str) -> Iterator[Database]:
    """Give this test's database, reached through a pooler in that mode."""
    with pooled(server, database, mode) as found:
        yield found


async def test_a_pooler_in_transaction_mode_is_recognised(
    behind: Database, database: Database, mode: str, reactor: Any
) -> None:
    """One in session mode, and PostgreSQL itself, are none."""
    assert await pools_transactions(reactor, behind.uri) == (mode == "transaction")
    assert not await pools_transactions(reactor, database.uri)
    assert not await pools_transactions(reactor, "postgresql://nobody@127.0.0.1:1/nowhere")


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
    """Many messages at a time on shared server connections each run as their own role."""
    database.execute(SCHEMA)
    pool = make_pool(uri=behind.uri, size=5, prepared_statements=mode == "session", search_path=("public",))
    await pool.start()
    roles = ("anon", "authenticated", "service_role") * 40
    asked = [running(pool.run(message("select current_user::text, $1", role, role=role))) for role in roles]
    assert [(await answer)[0] for answer in asked] == [(role, role) for role in roles]
    [(count,)] = await pool.run(message("select count(*) from note"))
    assert count == 1


@pytest.fixture(scope="module")
def lent(server: Server, reactor: Any) -> Iterator[Any]:
    """Serve through a pooler in transaction mode, set up as one needs it."""
    with (
        pooled(server, server.create_database(SCHEMA), "transaction") as behind,
        serving(reactor, behind, db_prepared_statements=False, db_channel_enabled=False) as service,
    ):
        assert inspect(service.project) == []
        yield service


async def test_both_apis_work_through_transaction_mode(lent: Any) -> None:
    """Reads, changes, pages in pieces and batches, each under its role."""
    for role, number in (("anon", 1), ("authenticated", 2)):
        assert (await lent.rest("GET", "note?select=id", role=role)).body == [{"id": number}]
        data = (await lent.ask("{ noteCollection { edges { node { id } } } }", role=role)).data
        assert data["noteCollection"]["edges"] == [{"node": {"id": number}}]
    written = await lent.rest("POST", "note", {"id": 3}, headers={"Prefer": "return=representation"})
    assert written.body == [{"id": 3, "owner": "anon"}]
    streamed = await lent.rest("GET", "note?order=id", headers={"Accept": "text/csv"})
    assert streamed.text.splitlines() == ["id,owner", "1,anon", "3,anon"]


async def test_what_a_pooler_in_transaction_mode_needs_is_said(
    server: Server, database: Database, reactor: Any
) -> None:
    """At start, by ``/ready``, and by ``dataapi check-config``."""
    with pooled(server, database, "transaction") as behind:
        project = Project(REF, "acme", behind.uri, jwt_secret="s" * 32)
        part = ProjectPart(reactor, project)
        await part.start()
        try:
            await until(reactor, lambda: bool(part.state().problems))
            wanted = ADVICE.format("db-prepared-statements = no and db-channel-enabled = no")
            assert part.state().problems == (wanted,)
        finally:
            await part.stop()
        assert wanted in [finding.text for finding in inspect(project)]


@pytest.fixture
def world(reactor: Any) -> Iterator[World]:
    """Give what makes receivers."""
    made = World(reactor)
    yield made
    made.end()


async def test_webhooks_are_delivered_without_notifications(
    server: Server, database: Database, world: World, reactor: Any
) -> None:
    """LISTEN does not work through transaction mode: the queue is looked at every second instead."""
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
            await publish(part.store)
            began = reactor.seconds()
            await until(reactor, lambda: bool(receiver.received))
            assert reactor.seconds() - began < 5
        finally:
            await part.drain(1)
            await part.stop()
