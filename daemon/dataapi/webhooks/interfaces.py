"""What plugins provide: catalogues of event types, and sources of events.

A plugin is an object in a module of a folder ``dataapi/plugins`` on Python's path that provides Twisted's
``IPlugin`` and one of these interfaces.  Methods are declared as they are called, without ``self``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zope.interface import Interface

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from twisted.internet.defer import Deferred

    from dataapi.webhooks.event_types import EventType


class IEventCatalogue(Interface):
    """A list of event types."""

    def event_types() -> Iterable[EventType]:
        """Return the types, the same at every call."""


class IEventPublisher(Interface):
    """What an event source publishes with; the daemon provides it."""

    def publish(
        event_type: str,  # noqa: N805 - zope declares methods as they are called
        organization_slug: str,
        project_ref: str | None,
        payload: Mapping[str, Any],
        idempotency_key: str,
    ) -> Deferred[UUID]:
        """Publish an event and return its identifier.

        It fails when the payload does not fit the type, or the organization or project is unknown.
        The same key within 24 hours publishes nothing and returns the first identifier.
        """


class IEventSource(Interface):
    """Something that publishes events while the daemon runs."""

    def start(publisher: IEventPublisher) -> None:  # noqa: N805 - see above
        """Start; called once in each process, when events can be published."""

    def stop() -> Deferred[None] | None:
        """Stop; nothing is published after this returns, or after its Deferred fires."""
