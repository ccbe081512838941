"""Loading of event catalogues and event sources, and publishing by event sources."""

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
    """Return the combined catalogue of all plugins. A plugin that fails is logged and skipped.

    :param row_change_types: additional event types from the configuration.
    """
    catalogues = getPlugins(IEventCatalogue, import_module("dataapi.plugins"))
    catalogue, problems = combine_catalogues(catalogues)
    for problem in problems:
        _log.error("skipped an event catalogue: {problem}", problem=problem)
    return with_row_changes(catalogue, row_change_types)


def with_row_changes(catalogue: Catalogue, names: Iterable[str]) -> Catalogue:
    added = [name for name in names if name not in catalogue.types]
    changes = [row_change(name, "A row of a watched table changed.") for name in dict.fromkeys(added)]
    return Catalogue((*catalogue.types.values(), *changes)) if changes else catalogue


def installed_sources() -> tuple[IEventSource, ...]:
    """Return the installed event sources. A plugin that fails to load is logged and skipped."""
    return tuple(sorted(getPlugins(IEventSource, import_module("dataapi.plugins")), key=_origin))


def combine_catalogues(catalogues: Iterable[IEventCatalogue]) -> tuple[Catalogue, tuple[str, ...]]:
    """Combine catalogues and return the result and the errors of skipped catalogues.

    The bundled catalogue comes first, followed by the others in alphabetical order. A catalogue with a
    duplicate type is skipped.
    """
    remaining: list[tuple[str, tuple[EventType, ...]]] = []
    problems: list[str] = []
    for plugin in sorted(catalogues, key=_origin):
        try:
            remaining.append((_name(plugin), tuple(plugin.event_types())))
        except Exception as error:
            problems.append(f"{_name(plugin)}: {error!r}")
    catalogue = Catalogue()
    # A catalogue may render types of a later one, so rejected catalogues are tried again.
    while remaining:
        rejected: list[tuple[str, tuple[EventType, ...]]] = []
        reasons: list[str] = []
        for name, types in remaining:
            try:
                catalogue = Catalogue((*catalogue.types.values(), *types))
            except BadEventType as error:
                rejected.append((name, types))
                reasons.append(f"{name}: {error}")
        if len(rejected) == len(remaining):
            problems += reasons
            break
        remaining = rejected
    return catalogue, tuple(problems)


def _name(plugin: object) -> str:
    return f"{type(plugin).__module__}.{type(plugin).__qualname__}"


def _origin(plugin: object) -> tuple[bool, str]:
    return type(plugin).__module__ != SHIPPED, _name(plugin)


STOP_WITHIN = 5.0
"""Seconds that a source may take to stop."""


class EventSink(Protocol):
    """Publishes events. Implemented by ``store.enqueue.Publisher``."""

    async def publish(self, event: NewEvent) -> UUID: ...


@implementer(IEventPublisher)
class SourcePublisher:
    """Validates and publishes events of event sources.

    :param catalogue: returns the current catalogue.
    """

    def __init__(self, sink: EventSink, catalogue: Callable[[], Catalogue]) -> None:
        self._sink = sink
        self._catalogue = catalogue

    def publish(
        self,
        event_type: str,
        organization_slug: str,
        project_ref: str | None,
        payload: Mapping[str, Any],
        idempotency_key: str,
    ) -> Deferred[UUID]:
        scope = Scope(organization_slug, project_ref)
        return Deferred.fromCoroutine(self._publish(NewEvent(event_type, scope, payload, idempotency_key)))

    async def _publish(self, event: NewEvent) -> UUID:
        scope = event.scope
        self._catalogue().check(
            event.type, complete_payload(event.payload, scope.organization, scope.project)
        )
        return await self._sink.publish(event)


class EventSources:
    """The event sources of a process. If one fails, the error is logged and the others continue."""

    def __init__(self, clock: Any, sources: Iterable[IEventSource], publisher: IEventPublisher) -> None:
        self._clock = clock
        self._sources = tuple(sources)
        self._publisher = publisher
        self._started: list[IEventSource] = []

    def start(self) -> None:
        for source in self._sources:
            try:
                source.start(self._publisher)
            except Exception:
                _log.failure("the event source {source} failed to start", source=_name(source))
            else:
                self._started.append(source)

    async def stop(self) -> None:
        while self._started:
            source = self._started.pop()
            stopping = maybeDeferred(source.stop).addTimeout(STOP_WITHIN, self._clock)
            try:
                await stopping
            except Exception:
                _log.failure("the event source {source} failed to stop", source=_name(source))
