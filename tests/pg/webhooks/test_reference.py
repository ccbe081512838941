"""Webhooks from endpoint creation to delivery and history.

The rules are in docs/reference/webhooks.md, Delivery states and Retries.
"""

from __future__ import annotations

import itertools
import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from dataapi.database.listener import Listener
from dataapi.database.pool import Pool
from dataapi.settings import Webhooks
from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.delivery.attempt import AttemptSender
from dataapi.webhooks.delivery.destinations import networks
from dataapi.webhooks.delivery.dispatcher import CHANGED, CHANNELS, Dispatcher
from dataapi.webhooks.delivery.headers import MAX_SECRET_LENGTH, MIN_SECRET_LENGTH, verify
from dataapi.webhooks.delivery.outcomes import MAX_ATTEMPTS
from dataapi.webhooks.delivery.resolver import AddressCheck
from dataapi.webhooks.model import Status
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store import make_store
from support.management import (
    ORGANIZATION,
    OTHER,
    SCOPES,
    Management,
    document,
    event,
)
from support.receiver import OK, Names, Received, Receiver, World, attempt, pause
from support.service import run
from support.webhooks import ACME, KEY, PAUSED, REF, SECRET, claim, failure
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from support.postgres import Database

RESTORED = "v1.project.restored"
TRANSFERRED = "v1.project.transferred"
QUICK = Webhooks(retry_waits=(0.05, 0.05, 0.05, 0.05), timeout=60.0)
"""A shortened retry schedule."""
REFUSAL = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops"


class Platform:
    """The management API, a dispatcher on its store, and a receiver.

    :ivar url: URL of the receiver.
    :ivar notified_channels: channels that have received a notification.
    """

    def __init__(self, reactor: Any, api: Management, world: World) -> None:
        self._reactor = reactor
        self.api = api
        self.receiver = Receiver()
        self.port = world.listen(self.receiver)
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self.notified_channels: set[str] = set()
        self._cleanups: list[Callable[[], Any]] = []

    async def deliver(
        self, now: Callable[[], float] = lambda: 1.0, *, names: Any = None, rules: Webhooks = QUICK
    ) -> Dispatcher:
        """Start a dispatcher with its own connections.

        :param now: clock for timestamps of signatures.
        """
        uri = self.api.database.uri
        pool = Pool(self._reactor, uri, size=2)
        address_check = AddressCheck(names or Names(["127.0.0.1"]), networks(["127.0.0.0/8"]))
        sender = AttemptSender(self._reactor, address_check, now, timeout=rules.timeout)
        queue = make_store(pool, Cipher([KEY]), 14).queue
        made = Dispatcher(self._reactor, queue, sender, Catalogue().render, rules)
        listener = Listener(
            self._reactor,
            uri,
            CHANNELS,
            on_notification=lambda channel, _payload: self._on_notification(made, channel),
            on_reconnect=made.reclaim,
        )
        self._cleanups += [
            lambda: run(pool.stop()),
            lambda: run(listener.stop()),
            sender.close,
            lambda: run(made.drain(0.2)),
        ]
        await pool.start()
        await listener.start()
        made.start()
        return made

    def _on_notification(self, dispatcher: Dispatcher, channel: str) -> None:
        dispatcher.notified(channel)
        self.notified_channels.add(channel)

    async def publish(self, event_type: str = PAUSED, **payload: Any) -> None:
        """Publish an event of acme's project over HTTP."""
        content = payload or ({"reason": "other"} if event_type == PAUSED else {})
        sent = event(str(uuid4()), type=event_type, payload=content)
        assert (await self.api.send("POST", "/v1/webhooks/events", sent)).status == 201

    async def finish_all(self) -> list[dict[str, Any]]:
        """Wait until no attempts are due and return acme's delivery records, oldest first."""
        while self.api.database.execute("select 1 from webhooks.due limit 1"):
            await pause()
        records = (await self.api.send("GET", f"{ORGANIZATION}/deliveries?page[size]=100")).data
        return [one["attributes"] for one in reversed(records)]

    async def received(self, count: int = 1) -> Sequence[Received]:
        while len(self.receiver.received) < count:
            await pause()
        return self.receiver.received

    def stop(self) -> None:
        for cleanup in reversed(self._cleanups):
            cleanup()


@pytest.fixture
def platform(api: Management, reactor: Any, world: World) -> Iterator[Platform]:
    """Return a platform without endpoints, events and deliveries."""
    made = Platform(reactor, api, world)
    yield made
    made.stop()


@pytest.fixture
def logged() -> Iterator[list[str]]:
    texts: list[str] = []

    def observe(entry: LogEvent) -> None:
        failure = entry.get("log_failure")
        texts.append(f"{formatEvent(entry)} {entry!r} {failure.getTraceback() if failure else ''}")

    globalLogPublisher.addObserver(observe)  # type: ignore[arg-type]
    yield texts
    globalLogPublisher.removeObserver(observe)  # type: ignore[arg-type]


# ---------------------------------------------------------------- signing


async def test_attempts_have_their_own_timestamp_and_the_same_id_and_body(platform: Platform) -> None:
    hours = itertools.count(1_800_000_000, 3600)
    platform.receiver.sends(REFUSAL)
    await platform.api.create(url=platform.url, signing_secret=SECRET)
    await platform.deliver(lambda: next(hours) + 0.75)
    await platform.publish()
    records = await platform.finish_all()
    requests = platform.receiver.received
    stamps = [int(one.headers["webhook-timestamp"]) for one in requests]
    assert len(set(stamps)) == len(requests) == 5
    assert [datetime.fromisoformat(one["attempt_timestamp"]).timestamp() - 0.75 for one in records] == stamps
    assert {one.headers["webhook-id"] for one in requests} == {one["event_id"] for one in records}
    assert len({(one.headers["webhook-id"], one.body) for one in requests}) == 1
    for one, stamp in zip(requests, stamps, strict=True):
        identifier, signature = one.headers["webhook-id"], one.headers["webhook-signature"]
        assert verify(SECRET, identifier, stamp, one.body, signature)
        assert not verify(SECRET, identifier, stamp + 1, one.body, signature)


@pytest.mark.parametrize("scope", SCOPES)
async def test_new_secret_signs_all_later_attempts(platform: Platform, scope: str) -> None:
    secrets = {"old": "the old secret", "new": "whsec_bmV3IG5ldyBuZXcgbmV3"}
    made = await platform.api.create(scope, url=platform.url, signing_secret=secrets["old"])
    platform.receiver.sends(REFUSAL)
    await platform.deliver(rules=Webhooks(retry_waits=(0.5,), timeout=60.0))
    await platform.publish()
    await platform.received()
    changed = await platform.api.send(
        "PATCH", f"{scope}/endpoints/{made['id']}", document("endpoint", signing_secret=secrets["new"])
    )
    assert changed.status == 200
    platform.receiver.sends(OK)
    await platform.received(2)
    await platform.publish()
    signed_with = [
        [name for name, secret in secrets.items() if verify(
            secret, one.headers["webhook-id"], int(one.headers["webhook-timestamp"]), one.body,
            one.headers["webhook-signature"],
        )]
        for one in await platform.received(3)
    ]  # fmt: skip
    assert signed_with == [["old"], ["new"], ["new"]]


# ---------------------------------------------------------------- timeouts


@pytest.mark.parametrize(("seconds", "success"), [(19.9, True), (20.0, False)])
async def test_response_must_arrive_within_20_seconds(world: World, seconds: float, success: bool) -> None:
    receiver, clock = Receiver(answer=lambda _request: None), Clock()
    sending = Deferred.fromCoroutine(
        world.sender(clock=clock, timeout=20.0).send(attempt(world.listen(receiver)))
    )
    while not receiver.received:
        await pause()
    clock.advance(seconds)
    receiver.received[0].connection.write(OK)
    outcome = await sending
    assert (outcome.success, outcome.error) == (success, None if success else "timeout")
    assert outcome.duration_ms == seconds * 1000


async def test_status_410_and_retry_after_do_not_change_the_schedule(platform: Platform) -> None:
    platform.receiver.sends(b"HTTP/1.1 410 Gone\r\nRetry-After: 86400\r\nContent-Length: 0\r\n\r\n")
    made = await platform.api.create(url=platform.url)
    await platform.deliver()
    await platform.publish()
    records = await platform.finish_all()
    assert [one["status"] for one in records] == ["failed"] * 5
    assert [one["attempt_number"] for one in records] == [1, 2, 3, 4, 5]
    assert {one["response_code"] for one in records} == {410}
    assert records[0]["response_headers"]["retry-after"] == "86400"
    assert records[-1]["next_attempt_at"] is None
    shown = await platform.api.send("GET", f"{ORGANIZATION}/endpoints/{made['id']}")
    assert shown.data["attributes"]["enabled"] is True


async def test_response_status_headers_and_16_kib_of_body_are_recorded(platform: Platform) -> None:
    body = b"x" * 20_000
    platform.receiver.sends(b"HTTP/1.1 404 X\r\nX-Why: because\r\nContent-Length: 20000\r\n\r\n" + body)
    made = await platform.api.create(url=platform.url)
    await platform.deliver()
    await platform.api.send("POST", f"{ORGANIZATION}/endpoints/{made['id']}/test")
    [record] = await platform.finish_all()
    assert (record["status"], record["response_code"], record["error"]) == ("failed", 404, None)
    assert record["response_headers"]["x-why"] == "because"
    assert record["response_body"] == "x" * 16_384


async def test_name_that_later_resolves_to_a_reserved_address_is_rejected(platform: Platform) -> None:
    await platform.api.create(url=f"http://receiver.example:{platform.port}/hook")
    await platform.deliver(names=Names(["10.0.0.7"], ["93.184.216.34", "169.254.169.254"]))
    await platform.publish()
    records = await platform.finish_all()
    assert [one["error"] for one in records] == ["refused_address"] * 5
    assert {(one["response_code"], one["response_body"]) for one in records} == {(0, None)}
    assert platform.receiver.connections == []


# ---------------------------------------------------------------- states


@pytest.mark.parametrize("scope", SCOPES)
async def test_disabling_skips_queued_attempts_and_enabling_does_not_revive_them(
    platform: Platform, scope: str
) -> None:
    made = await platform.api.create(scope, url=platform.url)
    one = f"{scope}/endpoints/{made['id']}"
    await platform.publish()
    await platform.api.send("PATCH", one, document("endpoint", enabled=False))
    await platform.publish(RESTORED)
    await platform.api.send("PATCH", one, document("endpoint", enabled=True))
    await platform.publish("v1.project.restarted")
    await platform.deliver()
    await platform.finish_all()
    target = f"{scope}/deliveries?filter[status]"
    [skipped] = (await platform.api.send("GET", f"{target}=skipped")).data
    [delivered] = (await platform.api.send("GET", f"{target}=success")).data
    shown = skipped["attributes"]
    assert (shown["event_type"], shown["attempt_number"]) == (PAUSED, 1)
    assert (shown["response_code"], shown["error"], shown["attempt_timestamp"]) == (0, None, None)
    assert (shown["duration_ms"], shown["next_attempt_at"]) == (None, None)
    assert delivered["attributes"]["event_type"] == "v1.project.restarted"
    assert len((await platform.api.send("GET", f"{scope}/deliveries")).data) == 2
    [request] = platform.receiver.received
    assert json.loads(request.body)["type"] == "v1.project.restarted"


async def test_skipped_delivery_can_be_retried(platform: Platform) -> None:
    made = await platform.api.create(url=platform.url)
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    await platform.publish()
    await platform.api.send("PATCH", one, document("endpoint", enabled=False))
    await platform.deliver()
    [skipped] = await platform.finish_all()
    await platform.api.send("PATCH", one, document("endpoint", enabled=True))
    retry = await platform.api.send("POST", f"{ORGANIZATION}/deliveries/{skipped['id']}/retry")
    assert (retry.status, retry.data["id"]) == (201, skipped["event_id"])
    _, retried = await platform.finish_all()
    assert (retried["status"], retried["trigger"]) == ("success", "manual")
    expires, created = map(datetime.fromisoformat, (retried["expires_at"], retried["created_at"]))
    assert expires - created == timedelta(days=14)
    [request] = platform.receiver.received
    assert request.headers["webhook-id"] == skipped["event_id"]


async def test_concurrent_recoveries_do_not_overlap(
    platform: Platform, make_pool: Callable[..., Pool]
) -> None:
    platform.receiver.sends(REFUSAL)
    made = await platform.api.create(url=platform.url)
    platform.api.database.execute(
        "select webhooks.publish(%s, 'acme', %s, '{}', n::text) from generate_series(1, 50) n", (PAUSED, REF)
    )
    for work in await claim(platform.api.store):
        await platform.api.store.queue.finish([failure(work)])
    since = datetime.now(UTC) - timedelta(hours=1)
    daemons = [make_pool(uri=platform.api.database.uri, size=1) for _ in range(4)]
    for pool in daemons:
        await pool.start()
    recoveries: Any = await gatherResults(
        [
            Deferred.fromCoroutine(
                make_store(pool, Cipher([KEY]), 14).manual_deliveries.recover(ACME, UUID(made["id"]), since)
            )
            for pool in daemons
        ]
    )
    assert sorted(one.matched for one in recoveries) == [0, 0, 0, 50]
    assert platform.api.database.execute("select count(*) from webhooks.due") == [(50,)]


@pytest.mark.parametrize("everything", [False, True])
async def test_endpoint_deleted_during_an_attempt_leaves_no_rows(
    platform: Platform, everything: bool
) -> None:
    pending_requests: list[Received] = []
    platform.receiver.answer = pending_requests.append
    made = await platform.api.create(url=platform.url)
    dispatcher = await platform.deliver()
    await platform.publish()
    await platform.received()
    target = f"{ORGANIZATION}/endpoints" + ("" if everything else f"/{made['id']}")
    assert (await platform.api.send("DELETE", target)).status == 200
    pending_requests[0].connection.write(REFUSAL)
    while dispatcher.in_flight or not dispatcher.counters.lost:
        await pause()
    assert await platform.finish_all() == []
    for table in ("due", "event", "delivery", "endpoint"):
        assert platform.api.database.execute(f"select count(*) from webhooks.{table}") == [(0,)], table


@pytest.mark.direct("a pooler forwards no notifications")
@pytest.mark.parametrize(
    ("change", "sent", "status"),
    [
        ({"signing_secret": "the new secret"}, 40, "success"),
        ({"url": "elsewhere"}, 0, "success"),
        ({"enabled": False}, 0, "skipped"),
        (None, 0, None),
    ],
    ids=["secret", "url", "disabled", "deleted"],
)
async def test_endpoint_change_applies_to_claimed_attempts(
    platform: Platform, world: World, change: dict[str, Any] | None, sent: int, status: str | None
) -> None:
    """When the endpoint changes, all 80 attempts are claimed, and 40 of them are in flight or finished."""
    pending_requests: list[Received] = []

    def respond(request: Received) -> None:
        if len(platform.receiver.received) == 40:
            pending_requests.append(request)
        else:
            request.connection.write(OK)

    platform.receiver.answer = respond
    made = await platform.api.create(url=platform.url, signing_secret="the old secret")
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    await platform.deliver(rules=Webhooks(retry_waits=(), timeout=60.0, concurrency_per_host=1))
    platform.api.database.execute(
        "select webhooks.publish(%s, 'acme', %s, '{}', n::text) from generate_series(1, 80) n", (PAUSED, REF)
    )
    while not pending_requests:
        await pause()
    if change is None:
        await platform.api.send("DELETE", one)
    else:
        if "url" in change:
            change = {"url": f"http://127.0.0.1:{world.listen(Receiver())}/"}
        await platform.api.send("PATCH", one, document("endpoint", **change))
    while CHANGED not in platform.notified_channels:
        await pause()
    pending_requests[0].connection.write(OK)
    records = await platform.finish_all()
    later = platform.receiver.received[40:]
    assert len(later) == sent
    for request in later:
        stamp, signature = (request.headers[f"webhook-{name}"] for name in ("timestamp", "signature"))
        identifier = request.headers["webhook-id"]
        assert verify("the new secret", identifier, int(stamp), request.body, signature)
    assert [record["status"] for record in records[40:]] == ([] if status is None else [status] * 40)


async def test_change_replaces_event_types(platform: Platform) -> None:
    made = await platform.api.create(url=platform.url, event_types=[{"type": PAUSED}])
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    await platform.publish()
    change = document("endpoint", event_types=[{"type": RESTORED}])
    assert (await platform.api.send("PATCH", one, change)).data["attributes"]["event_types"] == [
        {"type": RESTORED}
    ]
    await platform.publish()
    await platform.publish(RESTORED)
    await platform.deliver()
    await platform.finish_all()
    assert [json.loads(one.body)["type"] for one in platform.receiver.received] == [PAUSED, RESTORED]


# ---------------------------------------------------------------- management


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://10.0.0.1/", "invalid"),
        ("https://inside.example/", "reserved_address"),
        ("https://nowhere.example/", "unresolvable"),
    ],
)
async def test_rejected_change_has_no_effect(platform: Platform, url: str, code: str) -> None:
    made = await platform.api.create()
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    before = (await platform.api.send("GET", one)).data
    change = document("endpoint", url=url, description="new", enabled=False)
    response = await platform.api.send("PATCH", one, change)
    assert response.refusal == (400, f"bad_request.endpoint.url.{code}")
    assert response.pointers == ["/data/attributes/url"]
    assert (await platform.api.send("GET", one)).data == before


async def test_default_page_of_deliveries_has_20_records(platform: Platform) -> None:
    made = await platform.api.create()
    platform.api.database.execute(
        "select webhooks.publish(%s, 'acme', %s, '{}', n::text) from generate_series(1, 101) n",
        (PAUSED, REF),
    )
    for target in (f"{ORGANIZATION}/deliveries", f"{ORGANIZATION}/endpoints/{made['id']}/deliveries"):
        assert len((await platform.api.send("GET", target)).data) == 20
        assert len((await platform.api.send("GET", f"{target}?page[size]=100")).data) == 100


async def test_secrets_are_not_stored_shown_or_logged_in_plain_text(
    platform: Platform, logged: list[str]
) -> None:
    secrets = {"signing": "a very private secret", "header": "a-private-value", "token": platform.api.token}
    made = await platform.api.create(
        url=platform.url, signing_secret=secrets["signing"], custom_headers={"X-Key": secrets["header"]}
    )
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    dispatcher = await platform.deliver()
    await platform.api.send("POST", f"{one}/test")
    await platform.finish_all()
    assert platform.receiver.received[0].headers["x-key"] == secrets["header"]
    platform.receiver.sends(b"garbage\r\n\r\n", close=True)
    await platform.publish()
    await platform.finish_all()
    for sent in (
        document("endpoint", signing_secret=secrets["signing"] * 9, custom_headers={"X-Key": "\n"}),
        document("endpoint", signing_secret=[secrets["signing"]], custom_headers={secrets["header"]: "\n"}),
    ):
        assert (await platform.api.send("PATCH", one, sent)).status == 400
    with rename_endpoint_table(platform.api.database):
        assert (await platform.api.send("GET", one)).status == 500
    tables = platform.api.database.execute(
        "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname = 'webhooks'"
    )
    stored = [
        text
        for (table,) in tables
        for (text,) in platform.api.database.execute(f"select t::text from {table} t")
    ]
    figures = str(dispatcher.counters.snapshot(0, await platform.api.store.queue.statistics()))
    assert any(made["id"] in text for text in stored)
    assert any("attempt 5" in text for text in logged), "log entries of attempts"
    for name, secret in secrets.items():
        shapes = (secret, secret.encode().hex())
        for text in (*stored, *logged, figures):
            assert not any(shape in text for shape in shapes), f"the {name} is disclosed: {text[:200]}"


@contextmanager
def rename_endpoint_table(database: Database) -> Iterator[None]:
    """Rename the table of endpoints, so that every query fails."""
    database.execute("alter table webhooks.endpoint rename to elsewhere")
    try:
        yield
    finally:
        database.execute("alter table webhooks.elsewhere rename to endpoint")


# ---------------------------------------------------------------- events


async def test_idempotency_key_is_valid_for_24_hours_over_http_and_sql(platform: Platform) -> None:
    await platform.api.create()
    sent = event("once")
    first = (await platform.api.send("POST", "/v1/webhooks/events", sent)).data
    by_sql = platform.api.database.execute(
        "select webhooks.publish(%s, 'acme', null, '{}', 'once')::text", ("v1.organization.member.added",)
    )
    assert by_sql == [(first["id"],)]
    age = "update webhooks.idempotency set created_at = now() - interval %s"
    platform.api.database.execute(age, ("23:59:59",))
    assert (await platform.api.send("POST", "/v1/webhooks/events", sent)).data == first
    assert platform.api.database.execute("select count(*) from webhooks.event") == [(1,)]
    platform.api.database.execute(age, ("24:00:00",))
    assert (await platform.api.send("POST", "/v1/webhooks/events", sent)).data != first
    assert platform.api.database.execute("select count(*) from webhooks.event") == [(2,)]


async def test_transfer_is_published_for_both_organizations(platform: Platform) -> None:
    globex = await platform.api.new_token(OTHER)
    other = f"/v2/organizations/{OTHER}/webhooks"
    await platform.api.create()
    sent = document("endpoint", url="https://receiver.example/", signing_secret=SECRET,
                    event_types=[{"type": TRANSFERRED}])  # fmt: skip
    assert (await platform.api.send("POST", f"{other}/endpoints", sent, token=globex)).status == 201
    payload = json.dumps({"source": {"organization_slug": "acme"}, "target": {"organization_slug": OTHER}})
    publish = "select webhooks.publish(%s, %s, %s, %s, 'transfer')"
    move = "update webhooks.project set organization_slug = %s where ref = %s"
    try:
        platform.api.database.execute(
            f"{publish}; {move}; {publish}",
            (TRANSFERRED, ACME.organization, REF, payload, OTHER, REF, TRANSFERRED, OTHER, REF, payload),
        )
        [received_here] = (await platform.api.send("GET", f"{ORGANIZATION}/deliveries")).data
        [received_there] = (await platform.api.send("GET", f"{other}/deliveries", token=globex)).data
        events = [
            (await platform.api.send("GET", f"{scope_path}/deliveries/{one['id']}", token=token)).data
            for scope_path, one, token in ((ORGANIZATION, received_here, ""), (other, received_there, globex))
        ]
        payloads = [one["attributes"]["event"]["payload"] for one in events]
        assert [one["organization_slug"] for one in payloads] == ["acme", OTHER]
        for one in payloads:
            assert (one["project_ref"], one["target"]) == (REF, {"organization_slug": OTHER})
            assert platform.api.catalogue.issues(TRANSFERRED, one) == ()
    finally:
        platform.api.database.execute(move, (ACME.organization, REF))
        await platform.api.send("DELETE", f"{other}/endpoints", token=globex)


async def test_delivery_shows_the_payload_of_its_own_version(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = "v2.project.paused"
    made = await platform.api.create(event_types=[{"type": PAUSED}])
    monkeypatch.setattr(
        platform.api.catalogue, "render", lambda *arguments: {"of": arguments[:2], **arguments[2]}
    )
    await platform.api.store.publisher.sync_event_types({newer: [PAUSED]})
    try:
        platform.api.database.execute(
            "select webhooks.publish(%s, 'acme', %s, '{\"why\": 1}', 'k')", (newer, REF)
        )
    finally:
        await platform.api.store.publisher.sync_event_types({})
    [pending] = (await platform.api.send("GET", f"{ORGANIZATION}/deliveries")).data
    target = f"{ORGANIZATION}/deliveries/{pending['id']}"
    for status, enabled in (("pending", False), ("skipped", True)):
        shown = (await platform.api.send("GET", target)).data["attributes"]
        assert (shown["status"], shown["event"]["type"]) == (status, PAUSED)
        assert (shown["event"]["payload"]["of"], shown["event"]["payload"]["why"]) == ([newer, PAUSED], 1)
        change = document("endpoint", enabled=enabled)
        await platform.api.send("PATCH", f"{ORGANIZATION}/endpoints/{made['id']}", change)
        await platform.deliver()
        await platform.finish_all()


def test_defaults_match_the_documented_limits() -> None:
    usual = Webhooks()
    assert (usual.timeout, usual.retry_waits, usual.retention_days) == (20, (10, 30, 90, 270), 14)
    assert (MAX_ATTEMPTS, MIN_SECRET_LENGTH, MAX_SECRET_LENGTH) == (5, 8, 64)
    assert (usual.allow_addresses, usual.require_https) == ((), False)


@pytest.mark.parametrize("scope", SCOPES)
async def test_test_event_is_signed_marked_and_not_retried(platform: Platform, scope: str) -> None:
    platform.receiver.sends(REFUSAL)
    made = await platform.api.create(scope, url=platform.url, signing_secret=SECRET)
    await platform.deliver()
    sent = document("event", type=PAUSED)
    accepted = await platform.api.send("POST", f"{scope}/endpoints/{made['id']}/test", sent)
    await platform.finish_all()
    [record] = (await platform.api.send("GET", f"{scope}/deliveries")).data
    assert (record["attributes"]["status"], record["attributes"]["trigger"]) == (Status.FAILED, "test")
    [request] = platform.receiver.received
    body = json.loads(request.body)
    assert body["id"] == accepted.data["id"] == request.headers["webhook-id"]
    assert (body["type"], body["payload"]["is_test"]) == (PAUSED, True)
    stamp, signature = int(request.headers["webhook-timestamp"]), request.headers["webhook-signature"]
    assert verify(SECRET, body["id"], stamp, request.body, signature)
