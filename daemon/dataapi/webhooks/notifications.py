"""Events published with NOTIFY: their content, and idempotency keys that all listeners agree on."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from dataapi.database.sql_text import quote_identifier, quote_literal
from dataapi.http.strict_json import DIGITS_DECODER, INVALID_JSON
from dataapi.settings import NotifyChannel

MARKER_CHANNEL = "dataapi_notify"
"""Channel on which each listener announces itself."""


class NotAnEvent(StrEnum):
    """Reasons why a notification is not an event."""

    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    NO_ORGANIZATION = "names_no_organization"
    NO_PROJECT = "names_no_project"


class NotifiedEvent(NamedTuple):
    """The event of a notification.

    :ivar project: None for an event of the organization.
    """

    organization: str
    project: str | None
    payload: dict[str, Any]


def read_notification(channel: NotifyChannel, text: str) -> NotifiedEvent | NotAnEvent:
    """Return the event in a notification's payload, or the reason why it is invalid."""
    try:
        payload = DIGITS_DECODER.decode(text)
    except INVALID_JSON:
        return NotAnEvent.NOT_JSON
    if not isinstance(payload, dict):
        return NotAnEvent.NOT_AN_OBJECT
    organization = channel.organization or payload.get(channel.organization_member)
    if not isinstance(organization, str):
        return NotAnEvent.NO_ORGANIZATION
    project = channel.project or payload.get(channel.project_member)
    if not isinstance(project, str | None):
        return NotAnEvent.NO_PROJECT
    return NotifiedEvent(organization, project, payload)


class NotificationKeys:
    """Computes idempotency keys for the notifications that a connection receives.

    PostgreSQL has no identifiers for notifications, but delivers them to all listeners in the same order.
    Each listener sends a unique marker in the transaction of its LISTEN, and all listeners number the
    notifications after the last marker. All listeners therefore compute the same key for a notification.

    :param marker: the connection's own marker, a UUID.
    :param arrived: called when the marker first arrives. The connection receives all later notifications.
    :ivar statement: SQL that listens and sends the marker.
    """

    def __init__(self, channel: NotifyChannel, marker: str, arrived: Callable[[], None]) -> None:
        listen = f"listen {quote_identifier(channel.channel)}; listen {MARKER_CHANNEL}"
        self.statement = f"{listen}; notify {MARKER_CHANNEL}, {quote_literal(marker)}"
        self._event_type = channel.event_type
        self._marker = marker
        self._arrived = arrived
        self._has_arrived = False
        self._last_marker: str | None = None
        self._number = 0

    def keyed(self, channel: str, payload: str) -> list[tuple[str, str]]:
        """Return the key and payload of the next notification, or an empty list to ignore it."""
        if channel == MARKER_CHANNEL:
            self._last_marker, self._number = payload, 0
            if payload == self._marker and not self._has_arrived:
                self._has_arrived = True
                self._arrived()
            return []
        if self._last_marker is None:
            return []
        self._number += 1
        # Several event types can use the same channel.
        position = f"{self._event_type} {channel} {self._number} {self._last_marker}"
        return [(sha256(position.encode()).hexdigest(), payload)]
