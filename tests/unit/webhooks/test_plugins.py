"""Event sources are started and stopped, and publish events of catalogued types."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from dataapi.concurrency.timers import RECONNECT_BACKOFF
from dataapi.http.errors import DatabaseError, DatabaseUnavailable
from dataapi.settings import Settings
from dataapi.webhooks.catalogue import BadPayload, Catalogue
from dataapi.webhooks.event_types import EventType
from dataapi.webhooks.interfaces import IEventPublisher, IEventSource
from dataapi.webhooks.model import NewEvent, Scope
from dataapi.webhooks.plugins import STOP_WITHIN, EventSources, SourcePublisher, installed_catalogue
from dataapi.webhooks.store.enqueue import CannotPublish, PublishProblem
from support.deferreds import outcome
from support.webhooks import PAUSED, REF
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from zope.interface import implementer
from zope.interface.verify import verifyObject

PAYLOAD = {"reason": "inactivity"}
SCHEMA = {
    "type": "object",
    "properties": {"reason": {"type": "string"}},
    "required": ["actor", "project_ref"],
}
EXAMPLE = {**PAYLOAD, "actor": None, "organization_slug": "acme", "project_ref": REF}
SETTINGS = Settings(projects=())
CATALOGUE = Catalogue([EventType(PAUSED, "A project was paused.", SCHEMA, EXAMPLE)])


@implementer(IEventSource)
class Source:
    """A fake event source that can fail."""

    def __init__(self, log: list[str], name: str, trouble: str = "", stopping: Any = None) -> None:
        self._log, self._name, self._trouble, self._stopping = log, name, trouble, stopping

    def start(self, publisher: IEventPublisher) -> None:
        assert IEventPublisher.providedBy(publisher)
        if self._trouble == "start":
            raise RuntimeError(self._name)
        self._log.append(f"start {self._name}")

    def stop(self) -> Deferred[None] | None:
        self._log.append(f"stop {self._name}")
        if self._trouble == "stop":
            raise RuntimeError(self._name)
        result: Deferred[None] | None = self._stopping
        return result


class Publisher:
    """A fake publisher that stores events.

    :ivar errors: errors to raise for the next events, in order.
    """

    def __init__(self, *errors: Exception) -> None:
        self.events: list[NewEvent] = []
        self.errors = list(errors)

    async def publish(self, event: NewEvent) -> UUID:
        if self.errors:
            raise self.errors.pop(0)
        self.events.append(event)
        return uuid4()


def test_failing_source_does_not_affect_others() -> None:
    log: list[str] = []
    fakes = [Source(log, "a"), Source(log, "b", "start"), Source(log, "c", "stop"), Source(log, "d")]
    sources = EventSources(Clock(), fakes, SourcePublisher(Publisher(), Catalogue, SETTINGS, Clock()))
    sources.start()
    stopped = Deferred.fromCoroutine(sources.stop())
    assert stopped.called
    assert log == ["start a", "start c", "start d", "stop d", "stop c", "stop a"]


def test_stop_does_not_wait_indefinitely_for_a_source() -> None:
    clock, waiting = Clock(), Deferred[None]()
    sources = EventSources(
        clock, [Source([], "a", stopping=waiting)], SourcePublisher(Publisher(), Catalogue, SETTINGS, Clock())
    )
    sources.start()
    stopped = Deferred.fromCoroutine(sources.stop())
    assert not stopped.called
    clock.advance(STOP_WITHIN)
    assert stopped.called


def test_source_publishes_catalogued_events() -> None:
    fake = Publisher()
    publisher = SourcePublisher(fake, lambda: CATALOGUE, SETTINGS, Clock())
    assert verifyObject(IEventPublisher, publisher)
    results: list[Any] = []
    publisher.publish(PAUSED, "acme", REF, PAYLOAD, "key").addBoth(results.append)
    assert isinstance(results[0], UUID)
    assert fake.events == [NewEvent(PAUSED, Scope("acme", REF), PAYLOAD, "key")]


@pytest.mark.parametrize(
    ("event_type", "payload", "message"),
    [("v1.no.such", PAYLOAD, "no catalogue contains"), (PAUSED, {"reason": 7}, "/reason")],
)
def test_invalid_events_are_not_published(event_type: str, payload: Any, message: str) -> None:
    fake = Publisher()
    publisher = SourcePublisher(fake, lambda: CATALOGUE, SETTINGS, Clock())
    failures: list[Any] = []
    publisher.publish(event_type, "acme", REF, payload, "key").addErrback(failures.append)
    assert failures[0].check(BadPayload)
    assert message in failures[0].getErrorMessage()
    assert not fake.events


UNAVAILABLE = DatabaseUnavailable(503, "PGRST001", "the database is not reachable")


def test_submitted_event_waits_for_the_database() -> None:
    fake, clock = Publisher(UNAVAILABLE, DatabaseError(500, "25006", "read-only")), Clock()
    publisher = SourcePublisher(fake, lambda: CATALOGUE, SETTINGS, clock)
    with capturedLogs() as logged:
        submitted = publisher.submit("bell", PAUSED, "acme", REF, PAYLOAD, "key")
        for _ in range(2):
            assert not submitted.called
            clock.advance(RECONNECT_BACKOFF.longest)
    assert outcome(submitted) is None
    assert [event.idempotency_key for event in fake.events] == ["key"]
    assert [formatEvent(event) for event in logged] == [
        "bell: an event waits for the database: the database is not reachable"
    ]


def test_cancelled_submission_stops_waiting() -> None:
    clock = Clock()
    publisher = SourcePublisher(Publisher(UNAVAILABLE), lambda: CATALOGUE, SETTINGS, clock)
    submitted = publisher.submit("bell", PAUSED, "acme", REF, PAYLOAD, "key")
    submitted.cancel()
    assert isinstance(outcome(submitted), CancelledError)
    assert clock.getDelayedCalls() == []
    assert publisher.rejections == {}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CannotPublish(PublishProblem.NO_ORGANIZATION, "there is no organization secret"), "no_organization"),
        (CannotPublish(PublishProblem.NOT_ALLOWED, "secret"), "not_allowed"),
        (DatabaseError(500, "22P05", "secret"), "not_storable"),
        (DatabaseError(500, "54001", "secret"), "sqlstate_54001"),
        (RecursionError("secret"), "RecursionError"),
    ],
)
def test_rejected_event_is_counted_and_logged_once(error: Exception, reason: str) -> None:
    fake = Publisher(error, error)
    publisher = SourcePublisher(fake, lambda: CATALOGUE, SETTINGS, Clock())
    with capturedLogs() as logged:
        for key in ("one", "two", "three"):
            assert outcome(publisher.submit("bell", PAUSED, "acme", REF, PAYLOAD, key)) is None
        publisher.reject("other", reason)
    assert [event.idempotency_key for event in fake.events] == ["three"]
    assert publisher.rejections == {("bell", reason): 2, ("other", reason): 1}
    lines = [formatEvent(event).partition(".")[0] for event in logged]
    assert lines == [f"{source}: an event could not be published: {reason}" for source in ("bell", "other")]
    assert "secret" not in "".join(map(str, map(formatEvent, logged)))


def test_payload_that_does_not_match_its_type_is_rejected() -> None:
    publisher = SourcePublisher(Publisher(), lambda: CATALOGUE, SETTINGS, Clock())
    assert outcome(publisher.submit("bell", PAUSED, "acme", REF, {"reason": 7}, "key")) is None
    assert publisher.rejections == {("bell", "invalid_payload"): 1}


def test_types_of_notifications_are_declared_unless_a_catalogue_has_them() -> None:
    catalogue = installed_catalogue(
        ["v1.shop.stock"], [PAUSED, "v1.shop.stock", "v1.shop.order", "v1.shop.order"]
    )
    payload = {"organization_slug": "acme", "project_ref": None, "actor": None}
    assert catalogue.issues("v1.shop.order", payload) == ()
    assert catalogue.issues("v1.shop.order", {**payload, "project_ref": REF, "any": 1}) == ()
    assert catalogue.issues("v1.shop.order", {**payload, "project_ref": 1})
    assert catalogue.issues("v1.shop.stock", payload)
    assert catalogue.issues(PAUSED, payload)
