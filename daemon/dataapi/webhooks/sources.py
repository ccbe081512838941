"""Event sources: plugins that raise events while the daemon runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol
from uuid import UUID

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from zope.interface import implementer

from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.event_types import completed
from dataapi.webhooks.interfaces import IEventPublisher, IEventSource
from dataapi.webhooks.model import NewEvent, Scope

STOP_WITHIN = 5.0
"""Seconds that a source may take to end."""

_log = Logger(namespace="dataapi.webhooks")


class Publishes(Protocol):
    """Raises events; see ``store.publishing.Publisher``."""

    async def publish(self, event: NewEvent) -> UUID:
        """Raise one and return what it is known by."""


@implementer(IEventPublisher)
class SourcePublisher:
    """What event sources publish with."""

    def __init__(self, publishes: Publishes, catalogue: Catalogue) -> None:
        self._publishes = publishes
        self._catalogue = catalogue

    def publish(
        self,
        event_type: str,
        organization_slug: str,
        project_ref: str | None,
        payload: Mapping[str, Any],
        idempotency_key: str,
    ) -> Deferred[UUID]:
        """Raise an event; fails with ``BadPayload``, ``CannotPublish`` or ``ApiError``."""
        scope = Scope(organization_slug, project_ref)
        return Deferred.fromCoroutine(self._publish(NewEvent(event_type, scope, payload, idempotency_key)))

    async def _publish(self, event: NewEvent) -> UUID:
        scope = event.scope
        self._catalogue.check(event.type, completed(event.payload, scope.organization, scope.project))
        return await self._publishes.publish(event)


class Sources:
    """The sources of one process.  One that fails is logged and does not keep the others from working.

    :param clock: the reactor.
    """

    def __init__(self, clock: Any, found: Iterable[IEventSource], publisher: IEventPublisher) -> None:
        self._clock = clock
        self._found = tuple(found)
        self._publisher = publisher
        self._started: list[IEventSource] = []

    def start(self) -> None:
        """Start every source."""
        for source in self._found:
            try:
                source.start(self._publisher)
            except Exception:
                _log.failure("the event source {source} does not start", source=_name(source))
            else:
                self._started.append(source)

    async def stop(self) -> None:
        """Stop every source that was started, the last one first, and wait for a while."""
        while self._started:
            source = self._started.pop()
            ending = maybeDeferred(source.stop).addTimeout(STOP_WITHIN, self._clock)
            try:
                await ending
            except Exception:
                _log.failure("the event source {source} does not stop", source=_name(source))


def _name(source: object) -> str:
    return f"{type(source).__module__}.{type(source).__qualname__}"
