"""Plugins: the installed event catalogues and event sources, and how sources publish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Protocol
from uuid import UUID

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.plugin import getPlugins
from zope.interface import implementer

from dataapi.webhooks.catalogue import BadEventType, Catalogue
from dataapi.webhooks.event_types import EventType, complete_payload, row_change
from dataapi.webhooks.interfaces import IEventCatalogue, IEventPublisher, IEventSource
from dataapi.webhooks.model import NewEvent, Scope

SHIPPED = "dataapi.plugins.platform_events"

_log = Logger(namespace="dataapi.webhooks")


def installed_catalogue(row_change_types: Iterable[str] = ()) -> Catalogue:
    """Return the event types of the installed plugins; a plugin that fails is logged and skipped entirely.

    :param row_change_types: types that the configuration adds to them.
    """
    found = getPlugins(IEventCatalogue, import_module("dataapi.plugins"))
    catalogue, problems = combine_catalogues(found)
    for problem in problems:
        _log.error("an event catalogue is skipped: {problem}", problem=problem)
    return with_row_changes(catalogue, row_change_types)


def with_row_changes(catalogue: Catalogue, names: Iterable[str]) -> Catalogue:
    """Return a catalogue with further types of row changes; those that it has stay as they are."""
    added = [name for name in names if name not in catalogue.types]
    changes = [row_change(name, "A row of a watched table changed.") for name in dict.fromkeys(added)]
    return Catalogue((*catalogue.types.values(), *changes)) if changes else catalogue


def installed_sources() -> tuple[IEventSource, ...]:
    """Return the event sources of the installed plugins; one that fails to load is logged and skipped."""
    return tuple(sorted(getPlugins(IEventSource, import_module("dataapi.plugins")), key=_origin))


def combine_catalogues(found: Iterable[IEventCatalogue]) -> tuple[Catalogue, tuple[str, ...]]:
    """Return the combined types of catalogues, and why some of these are skipped.

    The shipped catalogue comes first, the others in the order of their names; of two that have the same type
    the later one is skipped.
    """
    waiting: list[tuple[str, tuple[EventType, ...]]] = []
    problems: list[str] = []
    for one in sorted(found, key=_origin):
        try:
            waiting.append((_name(one), tuple(one.event_types())))
        except Exception as error:
            problems.append(f"{_name(one)}: {error!r}")
    catalogue = Catalogue()
    # A catalogue may render types of a later one, so skipped ones are tried again.
    while waiting:
        refused: list[tuple[str, tuple[EventType, ...]]] = []
        reasons: list[str] = []
        for name, types in waiting:
            try:
                catalogue = Catalogue((*catalogue.types.values(), *types))
            except BadEventType as error:
                refused.append((name, types))
                reasons.append(f"{name}: {error}")
        if len(refused) == len(waiting):
            problems += reasons
            break
        waiting = refused
    return catalogue, tuple(problems)


def _name(plugin: object) -> str:
    return f"{type(plugin).__module__}.{type(plugin).__qualname__}"


def _origin(plugin: object) -> tuple[bool, str]:
    return type(plugin).__module__ != SHIPPED, _name(plugin)


STOP_WITHIN = 5.0
"""Seconds that a source may take to stop."""


class Publishes(Protocol):
    """Publishes events; see ``store.enqueue.Publisher``."""

    async def publish(self, event: NewEvent) -> UUID:
        """Publish one and return its identifier."""


@implementer(IEventPublisher)
class SourcePublisher:
    """Validates and publishes the events of event sources.

    :param catalogue: returns the event types of the moment.
    """

    def __init__(self, publishes: Publishes, catalogue: Callable[[], Catalogue]) -> None:
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
        """Publish an event; fails with ``BadPayload``, ``CannotPublish`` or ``ApiError``."""
        scope = Scope(organization_slug, project_ref)
        return Deferred.fromCoroutine(self._publish(NewEvent(event_type, scope, payload, idempotency_key)))

    async def _publish(self, event: NewEvent) -> UUID:
        scope = event.scope
        self._catalogue().check(
            event.type, complete_payload(event.payload, scope.organization, scope.project)
        )
        return await self._publishes.publish(event)


class EventSources:
    """The event sources of one process.  One that fails is logged and does not affect the others."""

    def __init__(self, clock: Any, found: Iterable[IEventSource], publisher: IEventPublisher) -> None:
        self._clock = clock
        self._found = tuple(found)
        self._publisher = publisher
        self._started: list[IEventSource] = []

    def start(self) -> None:
        for source in self._found:
            try:
                source.start(self._publisher)
            except Exception:
                _log.failure("the event source {source} failed to start", source=_name(source))
            else:
                self._started.append(source)

    async def stop(self) -> None:
        """Stop every source that was started, the last one first, and wait a while for each."""
        while self._started:
            source = self._started.pop()
            ending = maybeDeferred(source.stop).addTimeout(STOP_WITHIN, self._clock)
            try:
                await ending
            except Exception:
                _log.failure("the event source {source} failed to stop", source=_name(source))
