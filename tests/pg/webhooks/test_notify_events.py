"""Notifications of a real PostgreSQL become events (docs/webhooks.md, Events from NOTIFY)."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.service.webhooks import WebhooksPart
from dataapi.settings import NotifyChannel, Project, Settings, Webhooks
from dataapi.testing import RecordingPublisher
from dataapi.webhooks.interfaces import IEventSource
from dataapi.webhooks.plugins import installed_catalogue, installed_sources
from support.freezing_proxy import FreezingProxy
from support.messages import until
from support.pooler import pooled
from support.receiver import Receiver, World
from support.service import run
from support.webhooks import ACME, KEY, REF, add_endpoint, allow_migrations
from twisted.internet import defer, threads
from twisted.logger import LogLevel, capturedLogs, formatEvent
from zope.interface.verify import verifyObject

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.postgres import Database, Server

pytestmark = [pytest.mark.direct("a pooler forwards no notifications"), pytest.mark.empty_database]

NotifyEvents: Any = import_module("dataapi.plugins.notify_events").NotifyEvents
ORDER = "v1.shop.order"
CHANNEL = NotifyChannel("notify:orders", "", "orders", ORDER, organization="acme")
SESSIONS = (
    "select count(*) from pg_stat_activity where datname = current_database() and usename = 'authenticator'"
)
LONGEST = 7999
"""Maximum length of a payload, in bytes."""


class Listening:
    """Several event sources that share a publisher, like processes that share a database.

    :ivar publisher: records events, but only one per idempotency key.
    :ivar logged: events of the log.
    """

    def __init__(self, reactor: Any, uri: str, logged: Sequence[dict[str, Any]]) -> None:
        self.reactor = reactor
        self.logged = logged
        self._uri = uri
        self._sources: list[Any] = []
        self.publisher = self.configured(CHANNEL)

    def configured(self, *channels: NotifyChannel) -> RecordingPublisher:
        """Make new sources listen on these channels and return their publisher."""
        notify = tuple(replace(channel, db_uri=channel.db_uri or self._uri) for channel in channels)
        catalogue = installed_catalogue((), [channel.event_type for channel in notify])
        self.publisher = RecordingPublisher(catalogue, Settings((), notify=notify), self.reactor)
        return self.publisher

    def start(self) -> Any:
        source = NotifyEvents()
        source.start(self.publisher)
        self._sources.append(source)
        return source

    async def listen(self) -> Any:
        """Start a source and wait until it listens."""
        before = self.count("listening")
        source = self.start()
        await until(
            self.reactor, lambda: self.count("listening") == before + len(self.publisher.settings.notify)
        )
        return source

    def count(self, text: str) -> int:
        """Return the number of log lines of listeners that contain a text."""
        return sum(text in line for line in self.lines)

    @property
    def lines(self) -> list[str]:
        return [formatEvent(event) for event in self.logged if "notify" in str(event.get("source"))]

    @property
    def numbers(self) -> list[int]:
        return [event.payload["number"] for event in self.publisher.events]

    async def received(self, *numbers: int) -> None:
        """Wait for events with exactly these numbers, in this order."""
        await until(self.reactor, lambda: len(self.numbers) >= len(numbers))
        assert self.numbers == list(numbers)

    async def stop(self) -> None:
        for source in self._sources:
            await source.stop()


@pytest.fixture
def listening(reactor: Any, database: Database) -> Iterator[Listening]:
    with capturedLogs() as logged:
        made = Listening(reactor, database.uri, logged)
        yield made
        run(made.stop())


def send(database: Database, *numbers: int, channel: str = "orders") -> None:
    """Send a notification for each number."""
    for number in numbers:
        database.execute("select pg_notify(%s, %s)", (channel, json.dumps({"number": number})))


def test_plugin_is_an_installed_event_source() -> None:
    [source] = [one for one in installed_sources() if isinstance(one, NotifyEvents)]
    assert verifyObject(IEventSource, source)


async def test_notifications_become_events_in_order(listening: Listening, database: Database) -> None:
    await listening.listen()
    send(database, 1, 2)
    send(database, 3, channel="other")
    database.execute("begin; select pg_notify('orders', '{\"number\": 4}'); rollback")
    send(database, 5)
    await listening.received(1, 2, 5)
    [event, *_] = listening.publisher.events
    assert (event.type, event.scope.organization, event.scope.project) == (ORDER, "acme", None)
    assert len({event.idempotency_key for event in listening.publisher.events}) == 3


async def test_members_of_the_payload_name_organization_and_project(
    listening: Listening, database: Database
) -> None:
    named = NotifyChannel(
        "notify:named", "", 'Odd "channel" %s', ORDER, organization_member="tenant", project_member="project"
    )
    fixed = replace(CHANNEL, project=REF)
    publisher = listening.configured(named, fixed)
    await listening.listen()
    payloads = [
        {"tenant": "acme", "project": REF},
        {"tenant": "globex", "project": None},
        {"tenant": "initech"},
    ]
    for payload in payloads:
        database.execute("select pg_notify(%s, %s)", (named.channel, json.dumps(payload)))
    await until(listening.reactor, lambda: len(publisher.events) == 3)
    send(database, 1)
    await until(listening.reactor, lambda: len(publisher.events) == 4)
    scopes = [(event.scope.organization, event.scope.project) for event in publisher.events]
    assert scopes == [("acme", REF), ("globex", None), ("initech", None), ("acme", REF)]
    assert [event.payload for event in publisher.events[:3]] == payloads


async def test_event_types_with_one_channel_receive_each_notification(
    listening: Listening, database: Database
) -> None:
    listening.configured(CHANNEL, replace(CHANNEL, section="notify:copies", event_type="v1.shop.copy"))
    await listening.listen()
    send(database, 1)
    await listening.received(1, 1)
    assert {event.type for event in listening.publisher.events} == {ORDER, "v1.shop.copy"}


async def test_several_processes_publish_each_notification_once(
    listening: Listening, server: Server, database: Database
) -> None:
    first = await listening.listen()
    send(database, 1, 1)
    await listening.received(1, 1)
    await listening.listen()
    send(database, 2, 2, 3)
    await listening.received(1, 1, 2, 2, 3)
    # All connections are lost. Later, one process stops.
    server.terminate_backends(database)
    await until(listening.reactor, lambda: listening.count("listening") == 4)
    send(database, 4)
    await listening.received(1, 1, 2, 2, 3, 4)
    await first.stop()
    send(database, 5, 5)
    await listening.received(1, 1, 2, 2, 3, 4, 5, 5)


async def test_listener_listens_again_after_its_backend_was_killed(
    listening: Listening, server: Server, database: Database
) -> None:
    await listening.listen()
    send(database, 1)
    await listening.received(1)
    assert server.terminate_backends(database) == 1
    send(database, 2)
    await until(listening.reactor, lambda: listening.count("listening") == 2)
    send(database, 3)
    await listening.received(1, 3)
    [lost] = [line for line in listening.lines if "being lost" in line]
    assert lost.startswith("notify:orders: notifications are being lost: ")
    assert "server closed the connection" in lost
    assert not [event for event in listening.logged if event["log_level"] > LogLevel.warn]


async def test_listener_listens_again_after_a_server_restart(
    listening: Listening, server: Server, database: Database
) -> None:
    await listening.listen()
    await threads.deferToThread(server.stop)
    try:
        await until(listening.reactor, lambda: listening.count("Connection refused") == 1)
    finally:
        await threads.deferToThread(server.start)
    await until(listening.reactor, lambda: listening.count("listening") == 2)
    send(database, 1)
    await listening.received(1)
    assert not [event for event in listening.logged if event["log_level"] > LogLevel.warn]


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("postgresql://authenticator@no-such-host.invalid/app", "could not translate host name"),
        ("postgresql://no_such_role@127.0.0.1:{port}/postgres", 'role "no_such_role" does not exist'),
        ("postgresql://authenticator@127.0.0.1:1/app", "Connection refused"),
    ],
)
async def test_failed_connections_are_logged_once(
    listening: Listening, server: Server, uri: str, reason: str
) -> None:
    listening.configured(replace(CHANNEL, db_uri=uri.format(port=server.port)))
    source = listening.start()
    [listener] = source._listeners
    await until(listening.reactor, lambda: listener._retry.failures == 3)
    [line] = listening.lines
    assert line.startswith("notify:orders: notifications are being lost: ")
    assert reason in line


async def test_second_host_is_tried_after_the_first(listening: Listening, server: Server) -> None:
    hosts = f"127.0.0.1:1,127.0.0.1:{server.port}"
    listening.configured(replace(CHANNEL, db_uri=f"postgresql://authenticator@{hosts}/postgres"))
    await listening.listen()
    assert listening.count("Connection refused") == 1
    send(server.admin, 1)
    await listening.received(1)


async def test_server_that_does_not_respond_is_left(listening: Listening, database: Database) -> None:
    proxy = FreezingProxy(listening.reactor, database)
    try:
        proxy.freeze(new=True)
        listening.configured(replace(CHANNEL, db_uri=proxy.uri.replace("timeout=3", "timeout=1")))
        listening.start()
        await until(listening.reactor, lambda: listening.count("does not respond") == 1)
        proxy.thaw()
        await until(listening.reactor, lambda: listening.count("listening") == 1)
        send(database, 1)
        await listening.received(1)
    finally:
        await proxy.stop()


async def test_pooler_in_transaction_mode_is_reported(
    listening: Listening, server: Server, database: Database
) -> None:
    with pooled(server, database, "transaction") as behind:
        listening.configured(replace(CHANNEL, db_uri=f"{behind.uri}?connect_timeout=1"))
        source = listening.start()
        await until(
            listening.reactor, lambda: listening.count("a pooler does not forward notifications") == 1
        )
        await source.stop()


INVALID = {
    "not_json": ["", "sensitive", "{'number': 1}", '{"number": NaN}', "{} sensitive", "{" * LONGEST],
    "not_an_object": ["null", "[1]", '"sensitive"', "12", "[" * 900 + "]" * 900],
    "names_no_organization": ['{"tenant": 1}', "{}", '{"tenant": null, "note": "sensitive"}'],
    "names_no_project": ['{"tenant": "acme", "project": 7, "note": "sensitive"}'],
    "invalid_payload": [
        '{"tenant": "acme", "project": "sensitive"}', '{"tenant": "sensitive acme"}',
        '{"tenant": "acme", "actor": "sensitive"}', '{"tenant": "acme", "is_test": "sensitive"}',
    ],
}  # fmt: skip
"""Invalid payloads, by the reason for their rejection."""


async def test_invalid_payloads_are_counted_and_logged_once_without_their_content(
    listening: Listening, database: Database
) -> None:
    channel = replace(CHANNEL, organization=None, organization_member="tenant", project_member="project")
    publisher = listening.configured(channel)
    await listening.listen()
    for payloads in INVALID.values():
        for payload in payloads:
            database.execute("select pg_notify('orders', %s)", (payload,))
    database.execute("select pg_notify('orders', %s)", ('{"tenant": "acme", "number": 1}',))
    await listening.received(1)
    assert publisher.rejections == {("notify:orders", reason): len(INVALID[reason]) for reason in INVALID}
    rejections = [line for line in listening.lines if "could not be published" in line]
    assert rejections == [
        f"notify:orders: an event could not be published: {reason}. Further ones are only counted"
        " (dataapi_webhooks_rejected_total)"
        for reason in INVALID
    ]
    assert "sensitive" not in str(
        [event for event in listening.logged if event["log_level"] > LogLevel.debug]
    )


async def test_listener_survives_bytes_that_are_not_utf8(listening: Listening, server: Server) -> None:
    """PostgreSQL closes the listener's connection if a notification cannot be converted to UTF-8."""
    server.admin.execute("create database bytes template template0 encoding 'SQL_ASCII' locale 'C'")
    database = server.database("bytes")
    listening.configured(replace(CHANNEL, db_uri=database.direct_uri))
    source = await listening.listen()
    database.execute("select pg_notify('orders', E'{\"number\": \"\\xff\"}')")
    await until(listening.reactor, lambda: listening.count("listening") == 2)
    send(database, 1)
    await listening.received(1)
    await source.stop()
    server.drop_database(database)


async def test_longest_payloads_are_published_unchanged(listening: Listening, database: Database) -> None:
    publisher = listening.publisher
    await listening.listen()
    texts = [
        '{"number": "%s"}' % ("é" * ((LONGEST - 14) // 2)),
        '{"number": %s}' % ("9" * (LONGEST - 12)),
        '{{"number": {}{}}}'.format("[" * 900, "]" * 900),
        '{{{}, "number": 1}}'.format(", ".join(f'"{name}": 1' for name in range(700))),
    ]
    for text in texts:
        assert len(text.encode()) <= LONGEST
        database.execute("select pg_notify('orders', %s)", (text,))
    await until(listening.reactor, lambda: len(publisher.events) + publisher.rejections.total() == len(texts))
    assert publisher.rejections == {}


async def test_server_stores_notifications_while_events_wait(
    listening: Listening, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon's memory is bounded while the webhooks database is unavailable."""
    source = await listening.listen()
    [listener] = source._listeners
    publish, waiting = listening.publisher.submit, list[defer.Deferred[None]]()

    def submit(*event: Any) -> defer.Deferred[None]:
        waiting.append(defer.Deferred())
        return waiting[-1].addCallback(lambda _: publish(*event))

    monkeypatch.setattr(listening.publisher, "submit", submit)
    total, filler = 2000, 7000
    send(database, 0)
    await until(listening.reactor, lambda: len(waiting) == 1)
    numbered = f"jsonb_build_object('number', number, 'filler', repeat('x', {filler}))::text"
    database.execute(f"select pg_notify('orders', {numbered}) from generate_series(1, {total}) as number")
    [usage] = database.execute("select pg_notification_queue_usage() > 0")
    most = len(listener._waiting)
    monkeypatch.undo()
    waiting.pop().callback(None)
    await listening.received(*range(total + 1))
    assert usage == (True,)
    assert most < total / 4


async def test_stop_closes_the_connection_and_publishes_what_was_received(
    listening: Listening, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await listening.listen()
    publish, available = listening.publisher.submit, defer.Deferred[None]()
    monkeypatch.setattr(
        listening.publisher, "submit", lambda *event: available.addCallback(lambda _: publish(*event))
    )
    send(database, 1)
    await until(listening.reactor, lambda: not source._listeners[0]._publishing.called)
    stopped = source.stop()
    assert not stopped.called
    available.callback(None)
    await stopped
    await listening.received(1)
    await until(listening.reactor, lambda: database.execute(SESSIONS) == [(0,)])


async def test_notification_is_delivered_as_a_webhook(
    database: Database, server: Server, world: World, reactor: Any
) -> None:
    """Notifications may come from another database than the webhooks database."""
    allow_migrations(database)
    section = Webhooks(encryption_key=(KEY,), allow_addresses=("127.0.0.0/8",))
    channel = replace(CHANNEL, db_uri=server.database("postgres").direct_uri)
    unstorable = '{"number": "\\u0000"}'
    part = WebhooksPart(
        reactor, Settings((Project(REF, "acme", database.uri),), webhooks=section, notify=(channel,))
    )
    try:
        with capturedLogs() as logged:
            await part.start()
            await part.store.directory.create_organization(ACME.organization, early_access=True)
            receiver = Receiver()
            port = world.listen(receiver)
            await add_endpoint(part.store, url=f"http://127.0.0.1:{port}/", event_types=(ORDER,))
            await until(reactor, lambda: "notify:orders: listening" in map(formatEvent, logged))
        server.admin.execute("select pg_notify('orders', %s)", (unstorable,))
        server.admin.execute("select pg_notify('orders', %s)", ('{"number": 1.10}',))
        await until(reactor, lambda: bool(receiver.received))
        [request] = receiver.received
        assert b'"number": 1.10' in request.body
        body = json.loads(request.body)
        assert body["type"] == ORDER
        assert body["payload"] == {
            "organization_slug": "acme", "project_ref": None, "actor": None, "number": 1.1,
        }  # fmt: skip
        rejected = (await part.snapshot())["dataapi_webhooks_rejected_total"]
        assert rejected == {("notify:orders", "not_storable"): 1}
    finally:
        await part.drain(0.5)
        await part.stop()
