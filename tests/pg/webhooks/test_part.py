"""Webhooks as a part of the daemon: schema, deliveries, metrics and readiness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.concurrency.timers import Backoff
from dataapi.http.errors import DatabaseUnavailable
from dataapi.service.webhooks import CONNECTIONS, DENIED_BACKOFF, WebhooksPart
from dataapi.settings import Project, Settings, Webhooks
from dataapi.telemetry.metrics import FAMILIES, exposition
from dataapi.telemetry.readiness import WebhooksState
from support.freezing_proxy import FreezingProxy
from support.messages import until
from support.receiver import Receiver, World, pause
from support.service import run
from support.webhooks import ACME, KEY, REF, add_endpoint, allow_migrations, publish
from twisted.internet import threads
from twisted.logger import LogLevel, capturedLogs, formatEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database, Server

pytestmark = pytest.mark.empty_database

SECTION = Webhooks(encryption_key=(KEY,), allow_addresses=("127.0.0.0/8",), retry_waits=(0.1,))


@pytest.fixture
def part(reactor: Any, database: Database) -> Iterator[WebhooksPart]:
    """Yield the webhooks part before it is started. It is stopped after the test."""
    made = WebhooksPart(reactor, Settings((Project(REF, "acme", database.uri),), webhooks=SECTION))
    yield made
    run(made.drain(0.5))
    run(made.stop())


@pytest.fixture
def proxy(reactor: Any, database: Database) -> Iterator[FreezingProxy]:
    """Return a proxy for the database that can freeze connections."""
    made = FreezingProxy(reactor, database)
    yield made
    run(made.stop())


@pytest.mark.direct("a pooler holds its clients while the server is down")
async def test_frozen_connections_are_reported_and_deliveries_continue(
    proxy: FreezingProxy, database: Database, world: World, reactor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataapi.service.webhooks.QUEUE_TIMEOUT", 0.3)
    monkeypatch.setattr("dataapi.service.webhooks.STALLED_AFTER", 0.5)
    allow_migrations(database)
    part = WebhooksPart(reactor, Settings((Project(REF, "acme", proxy.uri),), webhooks=SECTION))
    try:
        await part.start()
        await create_organization(part)
        receiver = Receiver()
        await add_endpoint(part.store, url=f"http://127.0.0.1:{world.listen(receiver)}/")
        publishing = "select webhooks.publish('v1.project.paused', 'acme', null, '{}', %s)"
        database.execute(publishing, ("first",))
        await until(reactor, lambda: len(receiver.received) == 1)
        proxy.freeze(new=True)
        await until(reactor, lambda: "no progress for" in (part.state().reason or ""))
        assert not part.state().ready
        [(_, stalled)] = (await part.snapshot())["dataapi_webhooks_stalled_seconds"].items()
        assert isinstance(stalled, float)
        assert stalled > 0.5
        proxy.thaw()
        database.execute(publishing, ("second",))
        await until(reactor, lambda: len(receiver.received) == 2)
        await until(reactor, lambda: part.state().ready)
    finally:
        await part.drain(0.5)
        await part.stop()


async def create_organization(part: WebhooksPart) -> None:
    await part.store.directory.create_organization(ACME.organization, early_access=True)
    await part.store.directory.create_project(REF, ACME.organization)


async def test_start_creates_the_schema_and_delivers(
    part: WebhooksPart, database: Database, world: World, reactor: Any
) -> None:
    allow_migrations(database)
    await part.start()
    assert part.state() == WebhooksState(database_available=True, migrated=True, reason=None)
    await create_organization(part)
    receiver = Receiver()
    await add_endpoint(part.store, url=f"http://127.0.0.1:{world.listen(receiver)}/")
    await publish(part.store)
    await until(reactor, lambda: bool(receiver.received))


async def test_webhooks_wait_until_the_role_can_create_the_schema(
    part: WebhooksPart, database: Database, reactor: Any
) -> None:
    await part.start()
    state = part.state()
    assert not state.ready
    assert state.database_available
    assert "create schema webhooks authorization" in (state.reason or "")
    allow_migrations(database)
    await until(reactor, lambda: part.reason is None)
    assert part.state().ready


async def test_missing_privilege_is_reported_once_and_retried_with_backoff(
    part: WebhooksPart, server: Server, reactor: Any
) -> None:
    """Retries must not fill PostgreSQL's log with permission errors."""
    log = server.folder / "log"
    before = log.read_text().count("permission denied")
    with capturedLogs() as events:
        await part.start()
        await until(reactor, lambda: part._denied_retry.failures == 2)
    [refused] = [event for event in events if event["log_level"] is LogLevel.warn]
    assert formatEvent(refused) == (
        "webhooks do not work, trying again in 1.0 s: the schema webhooks cannot be created or upgraded:"
        " authenticator lacks the privilege to create it. Have a database administrator run:"
        " create schema webhooks authorization authenticator"
    )
    assert log.read_text().count("permission denied") == before
    assert [DENIED_BACKOFF.after(failures) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_only_one_process_retries_migrations(
    part: WebhooksPart, database: Database, reactor: Any
) -> None:
    settings = Settings((Project(REF, "acme", database.uri),), webhooks=SECTION)
    other = WebhooksPart(reactor, settings, retries=False)
    try:
        await other.start()
        allow_migrations(database)
        await until(reactor, lambda: other._denied_retry.failures == 2)
        assert other.state().reason == "another process has not created or upgraded the schema webhooks yet"
        assert database.execute("select to_regclass('webhooks.migration')") == [(None,)]
        await part.start()
        await until(reactor, lambda: other.reason is None)
    finally:
        await other.drain(0.5)
        await other.stop()


async def test_missing_encryption_key_is_reported(reactor: Any, database: Database) -> None:
    allow_migrations(database)
    part = WebhooksPart(reactor, Settings((Project(REF, "acme", database.uri),), webhooks=Webhooks()))
    try:
        with capturedLogs() as events:
            await part.start()
        missing = "[webhooks] encryption-key is not configured. Run dataapi keys to create one."
        assert part.state() == WebhooksState(database_available=True, migrated=True, reason=missing)
        assert f"endpoints cannot be created: {missing}" in map(formatEvent, events)
        assert part.reason is None
    finally:
        await part.drain(0.5)
        await part.stop()


async def test_start_survives_an_unavailable_database(
    part: WebhooksPart, database: Database, server: Server, reactor: Any
) -> None:
    allow_migrations(database)
    await threads.deferToThread(server.stop)
    try:
        await part.start()
        assert not part.state().database_available
        assert "dataapi_webhooks_due" not in await part.snapshot()
    finally:
        await threads.deferToThread(server.start)
    await until(reactor, lambda: part.reason is None)


async def test_deliveries_resume_soon_after_a_long_outage(
    part: WebhooksPart,
    database: Database,
    server: Server,
    world: World,
    reactor: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allow_migrations(database)
    await part.start()
    await create_organization(part)
    receiver = Receiver()
    await add_endpoint(part.store, url=f"http://127.0.0.1:{world.listen(receiver)}/")
    # Make the first wait as long as the wait after many failures.
    monkeypatch.setattr(Backoff, "after", lambda backoff, _failures: backoff.longest)
    await threads.deferToThread(server.stop)
    try:
        await until(reactor, lambda: not part.state().database_available)
        await pause(0.2)
    finally:
        await threads.deferToThread(server.start)
    # A completed wait would exceed the test's time limit.
    await until(reactor, lambda: part.state().database_available)
    await publish(part.store)
    await until(reactor, lambda: bool(receiver.received))


@pytest.mark.direct("a pooler forwards no notifications")
async def test_process_reports_its_lost_session_until_it_succeeds(
    part: WebhooksPart, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, other processes would repeat deliveries that this process is still making."""
    allow_migrations(database)
    await part.start()
    leave, failures = part.store.queue.leave, [DatabaseUnavailable(503, "PGRST001", "away")] * 2

    async def failing_first(number: int) -> None:
        if failures:
            raise failures.pop()
        await leave(number)

    monkeypatch.setattr(part.store.queue, "leave", failing_first)
    known = "select count(*) from webhooks.dispatcher"
    assert database.execute(known) == [(1,)]
    await part._listener.stop()
    await part._leave()
    assert database.execute(known) == [(0,)]


async def test_metrics_count_due_deliveries_and_outcomes(
    part: WebhooksPart, database: Database, world: World, reactor: Any
) -> None:
    allow_migrations(database)
    await part.start()
    await create_organization(part)
    good, hanging = Receiver(), Receiver(lambda _request: None)
    await add_endpoint(part.store, url=f"http://127.0.0.1:{world.listen(good)}/")
    await publish(part.store)
    await until(reactor, lambda: bool(good.received))
    await add_endpoint(part.store, url=f"http://127.0.0.2:{world.listen(hanging, '127.0.0.2')}/")
    await publish(part.store)
    await until(reactor, lambda: bool(hanging.received) and len(good.received) == 2)
    while (await part.store.queue.statistics()).waiting > 1:
        await pause()
    snapshot = await part.snapshot()
    assert set(snapshot) <= set(FAMILIES)
    assert snapshot["dataapi_webhooks_due"] == {("waiting",): 0.0, ("ready",): 0.0, ("leased",): 1.0}
    assert snapshot["dataapi_webhooks_in_flight"] == {(): 1.0}
    assert snapshot["dataapi_webhooks_attempts_total"] == {("success",): 2.0}
    oldest: Any = snapshot["dataapi_webhooks_oldest_due_seconds"][()]
    assert 0 < oldest < 10
    assert snapshot["dataapi_pool_size"] == {("webhooks",): CONNECTIONS}
    assert b"dataapi_webhooks_first_attempt_seconds_count 3.0" in exposition(snapshot)
