"""Event sources are started and stopped with the daemon, and publish what the catalogue has."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from dataapi.webhooks.catalogue import BadPayload, Catalogue
from dataapi.webhooks.event_types import EventType
from dataapi.webhooks.interfaces import IEventPublisher, IEventSource
from dataapi.webhooks.model import NewEvent, Scope
from dataapi.webhooks.plugins import STOP_WITHIN, EventSources, SourcePublisher
from support.webhooks import PAUSED, REF
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from zope.interface import implementer
from zope.interface.verify import verifyObject

PAYLOAD = {"reason": "inactivity"}
SCHEMA = {
    "type": "object",
    "properties": {"reason": {"type": "string"}},
    "required": ["actor", "project_ref"],
}
EXAMPLE = {**PAYLOAD, "actor": None, "organization_slug": "acme", "project_ref": REF}
CATALOGUE = Catalogue([EventType(PAUSED, "A project was paused.", SCHEMA, EXAMPLE)])


@implementer(IEventSource)
class Source:
    """A source on paper."""

    def __init__(self, log: list[str], name: str, trouble: str = "", stopping: Any = None) -> None:
        self._log, self._name, self._trouble, self._stopping = log, name, trouble, stopping

    def start(self, publisher: IEventPublisher) -> None:
        """Start, or fail."""
        assert IEventPublisher.providedBy(publisher)
        if self._trouble == "start":
            raise RuntimeError(self._name)
        self._log.append(f"start {self._name}")

    def stop(self) -> Deferred[None] | None:
        """Stop, or fail."""
        self._log.append(f"stop {self._name}")
        if self._trouble == "stop":
            raise RuntimeError(self._name)
        found: Deferred[None] | None = self._stopping
        return found


class Publisher:
    """Keeps what is published."""

    def __init__(self) -> None:
        self.events: list[NewEvent] = []

    async def publish(self, event: NewEvent) -> UUID:
        """Keep it."""
        self.events.append(event)
        return uuid4()


def test_a_source_that_fails_keeps_no_other_from_working() -> None:
    """It is logged; those that started are stopped, the last one first."""
    log: list[str] = []
    found = [Source(log, "a"), Source(log, "b", "start"), Source(log, "c", "stop"), Source(log, "d")]
    sources = EventSources(Clock(), found, SourcePublisher(Publisher(), Catalogue))
    sources.start()
    stopped = Deferred.fromCoroutine(sources.stop())
    assert stopped.called
    assert log == ["start a", "start c", "start d", "stop d", "stop c", "stop a"]


def test_a_source_that_does_not_end_is_left_behind() -> None:
    """The daemon stops after some seconds all the same."""
    clock, waiting = Clock(), Deferred[None]()
    sources = EventSources(
        clock, [Source([], "a", stopping=waiting)], SourcePublisher(Publisher(), Catalogue)
    )
    sources.start()
    stopped = Deferred.fromCoroutine(sources.stop())
    assert not stopped.called
    clock.advance(STOP_WITHIN)
    assert stopped.called


def test_a_source_publishes_events_of_the_catalogue() -> None:
    """What the publisher gets is what the source said."""
    kept = Publisher()
    publisher = SourcePublisher(kept, lambda: CATALOGUE)
    assert verifyObject(IEventPublisher, publisher)
    answers: list[Any] = []
    publisher.publish(PAUSED, "acme", REF, PAYLOAD, "key").addBoth(answers.append)
    assert isinstance(answers[0], UUID)
    assert kept.events == [NewEvent(PAUSED, Scope("acme", REF), PAYLOAD, "key")]


@pytest.mark.parametrize(
    ("event_type", "payload", "told"),
    [("v1.no.such", PAYLOAD, "no catalogue contains"), (PAUSED, {"reason": 7}, "/reason")],
)
def test_what_the_catalogue_does_not_have_is_not_published(event_type: str, payload: Any, told: str) -> None:
    """Receivers get payloads that their schemas accept, whoever raised them."""
    kept = Publisher()
    publisher = SourcePublisher(kept, lambda: CATALOGUE)
    failures: list[Any] = []
    publisher.publish(event_type, "acme", REF, payload, "key").addErrback(failures.append)
    assert failures[0].check(BadPayload)
    assert told in failures[0].getErrorMessage()
    assert not kept.events
