"""Webhooks from the request that creates them to what receivers and the history see of it.

The rules are those of docs/reference/webhooks.md, Delivery states and docs/reference/webhooks.md, Retries.
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
"""The schedule, much shortened."""
REFUSAL = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops"


class Platform:
    """The management API, a dispatcher on its store, and a receiver; ``end`` stops the dispatcher.

    :ivar url: the receiver's.
    :ivar heard: the channels on which there was a notification.
    """

    def __init__(self, reactor: Any, api: Management, world: World) -> None:
        self._reactor = reactor
        self.api = api
        self.receiver = Receiver()
        self.port = world.listen(self.receiver)
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self.heard: set[str] = set()
        self._ends: list[Callable[[], Any]] = []

    async def deliver(
        self, now: Callable[[], float] = lambda: 1.0, *, names: Any = None, rules: Webhooks = QUICK
    ) -> Dispatcher:
        """Begin to deliver, as a daemon does beside the API.

        :param now: the wall clock, for signatures.
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
            on_notification=lambda channel, _payload: self._hear(made, channel),
            on_reconnect=made.reclaim,
        )
        self._ends += [
            lambda: run(pool.stop()),
            lambda: run(listener.stop()),
            sender.close,
            lambda: run(made.drain(0.2)),
        ]
        await pool.start()
        await listener.start()
        made.start()
        return made

    def _hear(self, dispatcher: Dispatcher, channel: str) -> None:
        dispatcher.notified(channel)
        self.heard.add(channel)

    async def publish(self, event_type: str = PAUSED, **payload: Any) -> None:
        """Raise an event of acme's project over HTTP."""
        given = payload or ({"reason": "other"} if event_type == PAUSED else {})
        sent = event(str(uuid4()), type=event_type, payload=given)
        assert (await self.api.send("POST", "/v1/webhooks/events", sent)).status == 201

    async def settled(self) -> list[dict[str, Any]]:
        """Wait until no attempt is to be made; return the records of acme's endpoints, oldest first."""
        while self.api.database.execute("select 1 from webhooks.due limit 1"):
            await pause()
        records = (await self.api.send("GET", f"{ORGANIZATION}/deliveries?page[size]=100")).data
        return [one["attributes"] for one in reversed(records)]

    async def received(self, count: int = 1) -> Sequence[Received]:
        """Wait for so many requests."""
        while len(self.receiver.received) < count:
            await pause()
        return self.receiver.received

    def end(self) -> None:
        """Stop delivering."""
        for end in reversed(self._ends):
            end()


@pytest.fixture
def platform(api: Management, reactor: Any, world: World) -> Iterator[Platform]:
    """Give webhooks without any endpoints, events and deliveries."""
    made = Platform(reactor, api, world)
    yield made
    made.end()


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Give everything that is logged meanwhile, tracebacks and fields too."""
    texts: list[str] = []

    def observe(entry: LogEvent) -> None:
        failure = entry.get("log_failure")
        texts.append(f"{formatEvent(entry)} {entry!r} {failure.getTraceback() if failure else ''}")

    globalLogPublisher.addObserver(observe)  # type: ignore[arg-type]
    yield texts
    globalLogPublisher.removeObserver(observe)  # type: ignore[arg-type]


# ---------------------------------------------------------------- signing


async def test_every_attempt_has_its_own_time_and_the_same_id_and_bytes(platform: Platform) -> None:
    """``webhook-timestamp`` is when the attempt was signed; id and bytes never change."""
    hours = itertools.count(1_800_000_000, 3600)
    platform.receiver.sends(REFUSAL)
    await platform.api.create(url=platform.url, signing_secret=SECRET)
    await platform.deliver(lambda: next(hours) + 0.75)
    await platform.publish()
    records = await platform.settled()
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
async def test_a_secret_is_changed_without_a_gap(platform: Platform, scope: str) -> None:
    """A receiver that takes both secrets loses nothing while it is changed.

    Attempts after the change are signed with the new one, retries of earlier events too.
    """
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


# ---------------------------------------------------------------- the deadline


@pytest.mark.parametrize(("seconds", "success"), [(19.9, True), (20.0, False)])
async def test_an_answer_counts_within_20_seconds(world: World, seconds: float, success: bool) -> None:
    """A 2xx response within 20 seconds is a success, a later one is none."""
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


async def test_what_a_receiver_asks_for_does_not_change_the_schedule(platform: Platform) -> None:
    """410 and ``Retry-After`` are failures like others: five attempts at their times."""
    platform.receiver.sends(b"HTTP/1.1 410 Gone\r\nRetry-After: 86400\r\nContent-Length: 0\r\n\r\n")
    made = await platform.api.create(url=platform.url)
    await platform.deliver()
    await platform.publish()
    records = await platform.settled()
    assert [one["status"] for one in records] == ["failed"] * 5
    assert [one["attempt_number"] for one in records] == [1, 2, 3, 4, 5]
    assert {one["response_code"] for one in records} == {410}
    assert records[0]["response_headers"]["retry-after"] == "86400"
    assert records[-1]["next_attempt_at"] is None
    shown = await platform.api.send("GET", f"{ORGANIZATION}/endpoints/{made['id']}")
    assert shown.data["attributes"]["enabled"] is True


async def test_an_answers_record(platform: Platform) -> None:
    """Status, headers and the first 16 KiB of a failure's body are recorded too."""
    body = b"x" * 20_000
    platform.receiver.sends(b"HTTP/1.1 404 X\r\nX-Why: because\r\nContent-Length: 20000\r\n\r\n" + body)
    made = await platform.api.create(url=platform.url)
    await platform.deliver()
    await platform.api.send("POST", f"{ORGANIZATION}/endpoints/{made['id']}/test")
    [record] = await platform.settled()
    assert (record["status"], record["response_code"], record["error"]) == ("failed", 404, None)
    assert record["response_headers"]["x-why"] == "because"
    assert record["response_body"] == "x" * 16_384


async def test_a_name_that_resolves_inside_later_is_not_sent_to(platform: Platform) -> None:
    """Addresses are checked again before every attempt; the record says why none was made."""
    await platform.api.create(url=f"http://receiver.example:{platform.port}/hook")
    await platform.deliver(names=Names(["10.0.0.7"], ["93.184.216.34", "169.254.169.254"]))
    await platform.publish()
    records = await platform.settled()
    assert [one["error"] for one in records] == ["refused_address"] * 5
    assert {(one["response_code"], one["response_body"]) for one in records} == {(0, None)}
    assert platform.receiver.connections == []


# ---------------------------------------------------------------- states


@pytest.mark.parametrize("scope", SCOPES)
async def test_disabling_skips_what_waits_and_enabling_does_not_revive_it(
    platform: Platform, scope: str
) -> None:
    """What was enqueued is ``skipped`` when it comes due; what happens meanwhile leaves no record."""
    made = await platform.api.create(scope, url=platform.url)
    one = f"{scope}/endpoints/{made['id']}"
    await platform.publish()
    await platform.api.send("PATCH", one, document("endpoint", enabled=False))
    await platform.publish(RESTORED)
    await platform.api.send("PATCH", one, document("endpoint", enabled=True))
    await platform.publish("v1.project.restarted")
    await platform.deliver()
    await platform.settled()
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


async def test_a_skipped_delivery_is_retried_by_hand(platform: Platform) -> None:
    """Any delivery within retention can be retried, once its endpoint is enabled."""
    made = await platform.api.create(url=platform.url)
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    await platform.publish()
    await platform.api.send("PATCH", one, document("endpoint", enabled=False))
    await platform.deliver()
    [skipped] = await platform.settled()
    await platform.api.send("PATCH", one, document("endpoint", enabled=True))
    taken = await platform.api.send("POST", f"{ORGANIZATION}/deliveries/{skipped['id']}/retry")
    assert (taken.status, taken.data["id"]) == (201, skipped["event_id"])
    _, retried = await platform.settled()
    assert (retried["status"], retried["trigger"]) == ("success", "manual")
    expires, created = map(datetime.fromisoformat, (retried["expires_at"], retried["created_at"]))
    assert expires - created == timedelta(days=14)
    [request] = platform.receiver.received
    assert request.headers["webhook-id"] == skipped["event_id"]


async def test_recoveries_at_the_same_time_send_nothing_twice(
    platform: Platform, make_pool: Callable[..., Pool]
) -> None:
    """What one recovery has taken on is no other one's, whichever daemon is asked (operation 12)."""
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
    taken: Any = await gatherResults(
        [
            Deferred.fromCoroutine(
                make_store(pool, Cipher([KEY]), 14).manual_deliveries.recover(ACME, UUID(made["id"]), since)
            )
            for pool in daemons
        ]
    )
    assert sorted(one.matched for one in taken) == [0, 0, 0, 50]
    assert platform.api.database.execute("select count(*) from webhooks.due") == [(50,)]


@pytest.mark.parametrize("everything", [False, True])
async def test_an_endpoint_deleted_during_an_attempt(platform: Platform, everything: bool) -> None:
    """The attempt under way ends as a no-op: no record, no retry."""
    held: list[Received] = []
    platform.receiver.answer = held.append
    made = await platform.api.create(url=platform.url)
    dispatcher = await platform.deliver()
    await platform.publish()
    await platform.received()
    target = f"{ORGANIZATION}/endpoints" + ("" if everything else f"/{made['id']}")
    assert (await platform.api.send("DELETE", target)).status == 200
    held[0].connection.write(REFUSAL)
    while dispatcher.in_flight or not dispatcher.counters.lost:
        await pause()
    assert await platform.settled() == []
    for table in ("due", "event", "delivery", "endpoint"):
        assert platform.api.database.execute(f"select count(*) from webhooks.{table}") == [(0,)], table


@pytest.mark.direct("a pooler passes no notifications on")
@pytest.mark.parametrize(
    ("change", "sent", "taken"),
    [
        ({"signing_secret": "the new secret"}, 40, "success"),
        ({"url": "elsewhere"}, 0, "success"),
        ({"enabled": False}, 0, "skipped"),
        (None, 0, None),
    ],
    ids=["secret", "url", "disabled", "deleted"],
)
async def test_a_change_counts_for_what_waits_its_turn(
    platform: Platform, world: World, change: dict[str, Any] | None, sent: int, taken: str | None
) -> None:
    """A change counts for every attempt made after it, those too that a daemon had claimed before.

    Of 80 events the first 40 are on their way when the endpoint gets a new secret or url, or is disabled or
    deleted.
    """
    held: list[Received] = []

    def answer(request: Received) -> None:
        if len(platform.receiver.received) == 40:
            held.append(request)
        else:
            request.connection.write(OK)

    platform.receiver.answer = answer
    made = await platform.api.create(url=platform.url, signing_secret="the old secret")
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    await platform.deliver(rules=Webhooks(retry_waits=(), timeout=60.0, concurrency_per_host=1))
    platform.api.database.execute(
        "select webhooks.publish(%s, 'acme', %s, '{}', n::text) from generate_series(1, 80) n", (PAUSED, REF)
    )
    while not held:
        await pause()
    if change is None:
        await platform.api.send("DELETE", one)
    else:
        if "url" in change:
            change = {"url": f"http://127.0.0.1:{world.listen(Receiver())}/"}
        await platform.api.send("PATCH", one, document("endpoint", **change))
    while CHANGED not in platform.heard:
        await pause()
    held[0].connection.write(OK)
    records = await platform.settled()
    later = platform.receiver.received[40:]
    assert len(later) == sent
    for request in later:
        stamp, signature = (request.headers[f"webhook-{name}"] for name in ("timestamp", "signature"))
        identifier = request.headers["webhook-id"]
        assert verify("the new secret", identifier, int(stamp), request.body, signature)
    assert [record["status"] for record in records[40:]] == ([] if taken is None else [taken] * 40)


async def test_event_types_are_replaced(platform: Platform) -> None:
    """``event_types`` replaces the list on PATCH: what it no longer has is not sent."""
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
    await platform.settled()
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
async def test_a_change_that_is_refused_changes_nothing(platform: Platform, url: str, code: str) -> None:
    """A url is judged on PATCH as on POST, and nothing of a refused request is kept."""
    made = await platform.api.create()
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    before = (await platform.api.send("GET", one)).data
    change = document("endpoint", url=url, description="new", enabled=False)
    answer = await platform.api.send("PATCH", one, change)
    assert answer.refusal == (400, f"bad_request.endpoint.url.{code}")
    assert answer.pointers == ["/data/attributes/url"]
    assert (await platform.api.send("GET", one)).data == before


async def test_a_page_of_deliveries_has_20_records_by_default(platform: Platform) -> None:
    """``page[size]`` is 20 by default and 100 at most."""
    made = await platform.api.create()
    platform.api.database.execute(
        "select webhooks.publish(%s, 'acme', %s, '{}', n::text) from generate_series(1, 101) n",
        (PAUSED, REF),
    )
    for target in (f"{ORGANIZATION}/deliveries", f"{ORGANIZATION}/endpoints/{made['id']}/deliveries"):
        assert len((await platform.api.send("GET", target)).data) == 20
        assert len((await platform.api.send("GET", f"{target}?page[size]=100")).data) == 100


async def test_no_secret_is_stored_or_shown_in_the_clear(platform: Platform, logged: list[str]) -> None:
    """Signing secret, header values and tokens are in no table, log line or figure (issue, store).

    A delivery that works, one that fails, one that cannot be made, and refused requests are behind it.
    """
    secrets = {"signing": "a very private secret", "header": "a-private-value", "token": platform.api.token}
    made = await platform.api.create(
        url=platform.url, signing_secret=secrets["signing"], custom_headers={"X-Key": secrets["header"]}
    )
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    dispatcher = await platform.deliver()
    await platform.api.send("POST", f"{one}/test")
    await platform.settled()
    assert platform.receiver.received[0].headers["x-key"] == secrets["header"]
    platform.receiver.sends(b"garbage\r\n\r\n", close=True)
    await platform.publish()
    await platform.settled()
    for sent in (
        document("endpoint", signing_secret=secrets["signing"] * 9, custom_headers={"X-Key": "\n"}),
        document("endpoint", signing_secret=[secrets["signing"]], custom_headers={secrets["header"]: "\n"}),
    ):
        assert (await platform.api.send("PATCH", one, sent)).status == 400
    with misplaced(platform.api.database):
        assert (await platform.api.send("GET", one)).status == 500
    tables = platform.api.database.execute(
        "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname = 'webhooks'"
    )
    kept = [
        text
        for (table,) in tables
        for (text,) in platform.api.database.execute(f"select t::text from {table} t")
    ]
    figures = str(dispatcher.counters.snapshot(0, await platform.api.store.queue.statistics()))
    assert any(made["id"] in text for text in kept)
    assert any("attempt 5" in text for text in logged), "attempts are logged"
    for name, secret in secrets.items():
        shapes = (secret, secret.encode().hex())
        for text in (*kept, *logged, figures):
            assert not any(shape in text for shape in shapes), f"the {name} is told: {text[:200]}"


@contextmanager
def misplaced(database: Database) -> Iterator[None]:
    """Let no endpoint be found, as if the database were broken."""
    database.execute("alter table webhooks.endpoint rename to elsewhere")
    try:
        yield
    finally:
        database.execute("alter table webhooks.elsewhere rename to endpoint")


# ---------------------------------------------------------------- events


async def test_a_key_is_good_for_24_hours_over_http(platform: Platform) -> None:
    """One key raises one event in 24 hours, whoever publishes it and how."""
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


async def test_a_transfer_is_published_for_both_organizations(platform: Platform) -> None:
    """``.transferred`` is raised for both, within the transaction that transfers."""
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
        [told] = (await platform.api.send("GET", f"{ORGANIZATION}/deliveries")).data
        [told_too] = (await platform.api.send("GET", f"{other}/deliveries", token=globex)).data
        events = [
            (await platform.api.send("GET", f"{place}/deliveries/{one['id']}", token=token)).data
            for place, one, token in ((ORGANIZATION, told, ""), (other, told_too, globex))
        ]
        payloads = [one["attributes"]["event"]["payload"] for one in events]
        assert [one["organization_slug"] for one in payloads] == ["acme", OTHER]
        for one in payloads:
            assert (one["project_ref"], one["target"]) == (REF, {"organization_slug": OTHER})
            assert platform.api.catalogue.issues(TRANSFERRED, one) == ()
    finally:
        platform.api.database.execute(move, (ACME.organization, REF))
        await platform.api.send("DELETE", f"{other}/endpoints", token=globex)


async def test_an_older_version_is_shown_as_it_is_sent(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery's ``event`` has its own version's payload, before the first attempt and when skipped too."""
    newer = "v2.project.paused"
    made = await platform.api.create(event_types=[{"type": PAUSED}])
    monkeypatch.setattr(platform.api.catalogue, "render", lambda *given: {"of": given[:2], **given[2]})
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
        await platform.settled()


def test_the_limits_are_as_documented() -> None:
    """20 seconds, waits of 10, 30, 90 and 270, 14 days, unless the operator says otherwise (limits)."""
    usual = Webhooks()
    assert (usual.timeout, usual.retry_waits, usual.retention_days) == (20, (10, 30, 90, 270), 14)
    assert (MAX_ATTEMPTS, MIN_SECRET_LENGTH, MAX_SECRET_LENGTH) == (5, 8, 64)
    assert (usual.allow_addresses, usual.require_https) == ((), False)


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_test_event_as_it_arrives(platform: Platform, scope: str) -> None:
    """It is signed and sent like others, says ``is_test``, and is not retried."""
    platform.receiver.sends(REFUSAL)
    made = await platform.api.create(scope, url=platform.url, signing_secret=SECRET)
    await platform.deliver()
    sent = document("event", type=PAUSED)
    taken = await platform.api.send("POST", f"{scope}/endpoints/{made['id']}/test", sent)
    await platform.settled()
    [record] = (await platform.api.send("GET", f"{scope}/deliveries")).data
    assert (record["attributes"]["status"], record["attributes"]["trigger"]) == (Status.FAILED, "test")
    [request] = platform.receiver.received
    came = json.loads(request.body)
    assert came["id"] == taken.data["id"] == request.headers["webhook-id"]
    assert (came["type"], came["payload"]["is_test"]) == (PAUSED, True)
    stamp, signature = int(request.headers["webhook-timestamp"]), request.headers["webhook-signature"]
    assert verify(SECRET, came["id"], stamp, request.body, signature)
