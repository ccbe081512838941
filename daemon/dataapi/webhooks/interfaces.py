"""Interfaces of plugins: catalogues of event types, and sources of events.

A plugin is an object in a module of a ``dataapi/plugins`` folder on ``sys.path`` that provides Twisted's
``IPlugin`` and one of these interfaces. Methods are declared without ``self``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from twisted.internet.defer import Deferred

    from dataapi.webhooks.event_types import EventType


class IEventCatalogue(Interface):
    """A list of event types."""

    def event_types() -> Iterable[EventType]:
        """Return the event types. All calls must return the same types."""


class IEventPublisher(Interface):
    """Publishes events for event sources. Implemented by the daemon."""

    settings = Attribute("The configuration (dataapi.settings.Settings).")
    reactor = Attribute("The reactor, with the daemon's clock.")

    def publish(
        event_type: str,  # noqa: N805 - zope declares methods as they are called
        organization_slug: str,
        project_ref: str | None,
        payload: Mapping[str, Any],
        idempotency_key: str,
    ) -> Deferred[UUID]:
        """Publish an event and return its identifier.

        The Deferred fails if the payload does not match the type, or the organization or project is unknown.
        Publishing again with the same key within 24 hours only returns the first event's identifier.
        """

    def submit(
        source: str,  # noqa: N805 - see above
        event_type: str,
        organization_slug: str,
        project_ref: str | None,
        payload: Mapping[str, Any],
        idempotency_key: str,
    ) -> Deferred[None]:
        """Publish an event, and wait while the database is unavailable.

        If the event can never be published, ``reject`` is called instead.
        """

    def reject(source: str, reason: str) -> None:  # noqa: N805 - see above
        """Record an input that cannot be published.

        The first input for each source and reason is logged. Source and reason are labels of a metric, so use
        few different reasons, and do not include parts of the input.
        """


class IEventSource(Interface):
    """A plugin that publishes events while the daemon runs."""

    def start(publisher: IEventPublisher) -> None:  # noqa: N805 - see above
        """Start the source. Called once in each process, when events can be published."""

    def stop() -> Deferred[None] | None:
        """Stop the source. After this returns or its Deferred fires, the source must not publish events."""
