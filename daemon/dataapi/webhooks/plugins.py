"""Loads event catalogues and event sources, and publishes the events of the sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Protocol
from uuid import UUID

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.plugin import getPlugins
from zope.interface import implementer

from dataapi.concurrency.timers import RECONNECT_BACKOFF
from dataapi.http.errors import ApiError, DatabaseError
from dataapi.settings import Settings
from dataapi.webhooks.catalogue import BadEventType, BadPayload, Catalogue
from dataapi.webhooks.event_types import EventType, any_payload, complete_payload, row_change
from dataapi.webhooks.interfaces import IEventCatalogue, IEventPublisher, IEventSource
from dataapi.webhooks.model import NewEvent, Scope
from dataapi.webhooks.store.enqueue import CannotPublish

SHIPPED = "dataapi.plugins.platform_events"

_log = Logger(namespace="dataapi.webhooks")


def installed_catalogue(row_change_types: Iterable[str] = (), notify_types: Iterable[str] = ()) -> Catalogue:
    """Return the combined catalogue of all plugins. A plugin that fails is logged and skipped.

    Types of row changes and notifications are added unless a catalogue contains them.
    """
    catalogues = getPlugins(IEventCatalogue, import_module("dataapi.plugins"))
    catalogue, problems = combine_catalogues(catalogues)
    for problem in problems:
        _log.error("skipped an event catalogue: {problem}", problem=problem)
    catalogue = with_row_changes(catalogue, row_change_types)
    return _with_missing(
        catalogue, notify_types, partial(any_payload, description="A notification was sent.")
    )


def with_row_changes(catalogue: Catalogue, names: Iterable[str]) -> Catalogue:
    return _with_missing(
        catalogue, names, partial(row_change, description="A row of a watched table changed.")
    )


def _with_missing(
    catalogue: Catalogue, names: Iterable[str], declare: Callable[[str], EventType]
) -> Catalogue:
    missing = [name for name in dict.fromkeys(names) if name not in catalogue.types]
    return Catalogue((*catalogue.types.values(), *map(declare, missing))) if missing else catalogue


def installed_sources() -> tuple[IEventSource, ...]:
    """Return the installed event sources. A plugin that fails to load is logged and skipped."""
    return tuple(sorted(getPlugins(IEventSource, import_module("dataapi.plugins")), key=_origin))


def combine_catalogues(catalogues: Iterable[IEventCatalogue]) -> tuple[Catalogue, tuple[str, ...]]:
    """Return the combined catalogue, and the errors of skipped catalogues.

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
    # A catalogue may refer to types of a later catalogue, so rejected catalogues are tried again.
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


DATA_EXCEPTION = "22"
"""SQLSTATE class of data exceptions."""

TEMPORARY = ("08", "25", "40", "53", "55", "57", "58")
"""SQLSTATE classes of errors that a retry may resolve, such as lost connections and lack of resources."""

STOP_WITHIN = 5.0
"""Maximum time for a source to stop, in seconds."""


class EventSink(Protocol):
    """Publishes events. Implemented by ``store.enqueue.Publisher``."""

    async def publish(self, event: NewEvent) -> UUID: ...


@implementer(IEventPublisher)
class SourcePublisher:
    """Validates and publishes events of event sources, and counts rejected inputs by source and reason."""

    def __init__(
        self, sink: EventSink, catalogue: Callable[[], Catalogue], settings: Settings, reactor: Any
    ) -> None:
        self.settings = settings
        self.reactor = reactor
        self._sink = sink
        self._catalogue = catalogue
        self.rejections: Counter[tuple[str, ...]] = Counter()

    def reject(self, source: str, reason: str) -> None:
        self.rejections[source, reason] += 1
        if self.rejections[source, reason] == 1:
            _log.warn(
                "{source}: an event could not be published: {reason}."
                " Further ones are only counted (dataapi_webhooks_rejected_total)",
                source=source,
                reason=reason,
            )

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

    def submit(
        self,
        source: str,
        event_type: str,
        organization_slug: str,
        project_ref: str | None,
        payload: Mapping[str, Any],
        idempotency_key: str,
    ) -> Deferred[None]:
        scope = Scope(organization_slug, project_ref)
        event = NewEvent(event_type, scope, payload, idempotency_key)
        return Deferred.fromCoroutine(self._submit(source, event))

    async def _submit(self, source: str, event: NewEvent) -> None:
        failures = 0
        while True:
            try:
                await self._publish(event)
            except CancelledError:
                raise
            except Exception as error:
                reason = _reason_of(error)
                if reason is None:
                    failures += 1
                    if failures == 1:
                        _log.warn(
                            "{source}: an event waits for the database: {error}", source=source, error=error
                        )
                    await deferLater(self.reactor, RECONNECT_BACKOFF.after(failures))
                    continue
                self.reject(source, reason)
            return

    async def _publish(self, event: NewEvent) -> UUID:
        scope = event.scope
        self._catalogue().check(
            event.type, complete_payload(event.payload, scope.organization, scope.project)
        )
        return await self._sink.publish(event)


def _reason_of(error: Exception) -> str | None:
    """Return the reason why an event can never be published, or None if a later attempt may succeed."""
    match error:
        case CannotPublish():
            return error.problem.name.lower()
        case BadPayload():
            return "invalid_payload"
        case DatabaseError() if error.code.startswith(DATA_EXCEPTION):
            return "not_storable"
        case DatabaseError() if not error.code.startswith(TEMPORARY):
            return f"sqlstate_{error.code}"
        case ApiError():
            return None
    return type(error).__name__


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
