"""All event types that are known: which may be subscribed to, what they carry, which go out together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

from dataapi.webhooks.event_types import EventType, Payload, Rendering, version

EVERYTHING = "*"

_ISSUES_TOLD = 20
_MESSAGE_LENGTH = 200
# What a test event is when its endpoint subscribes to everything (reference/webhooks.md section 1).
_PROJECT_TEST = "v1.project.paused"
_ORGANIZATION_TEST = "v1.organization.member.added"
_WRITTEN_BY_SERVICE = ("organization_slug", "project_ref", "is_test")


class BadEventType(ValueError):
    """An event type contradicts itself, or other types."""


class BadPayload(ValueError):
    """A payload is not one of its type's, or no catalogue has the type."""


@dataclass(frozen=True, slots=True)
class PayloadIssue:
    """What is wrong with a payload.

    :ivar pointer: JSON pointer of the member within the payload, empty for the payload itself.
    """

    pointer: str
    message: str


def pointer(*steps: str | int) -> str:
    """Write a JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def validator(event_type: EventType) -> Draft202012Validator:
    """Return what checks a type's payloads; ``BadEventType`` for a type whose parts do not fit together."""
    name = event_type.type
    # With a registry of its own it fetches no schema from anywhere.
    checks = Draft202012Validator(event_type.schema, registry=Registry())
    try:
        number = version(name)
        older = version(event_type.renders.type) if event_type.renders is not None else 0
        Draft202012Validator.check_schema(event_type.schema)
        wrong = _issues(checks, event_type.example)
    except SchemaError as error:
        raise BadEventType(f"the schema of {name} is none: {error.message}") from None
    except Unresolvable as error:
        raise BadEventType(f"the schema of {name} refers to {error.ref}, which is not in it") from None
    except ValueError as error:
        raise BadEventType(str(error)) from None
    if wrong:
        raise BadEventType(f"the example of {name} is not valid: {wrong[0].message}")
    if older >= number:
        raise BadEventType(f"{name} renders a type that is not older")
    return checks


class Catalogue:
    """Event types by their names.

    :ivar types: all of them, in the order of their names.

    Raises ``BadEventType`` for a type that is there twice or is not right in itself, and for one that renders
    a type which is not there.
    """

    def __init__(self, event_types: Iterable[EventType] = ()) -> None:
        ordered = sorted(event_types, key=lambda event_type: event_type.type)
        self._validators = {event_type.type: validator(event_type) for event_type in ordered}
        self.types: Mapping[str, EventType] = MappingProxyType({one.type: one for one in ordered})
        if len(self.types) < len(ordered):
            raise BadEventType("an event type is there twice")
        for one in ordered:
            if one.renders is not None and one.renders.type not in self.types:
                raise BadEventType(f"{one.type} renders {one.renders.type}, which no catalogue has")

    def may_subscribe(self, event_type: str) -> bool:
        """Tell whether an endpoint may list this type; ``*`` is every type, those added later too."""
        return event_type == EVERYTHING or event_type in self.types

    def issues(self, event_type: str, payload: Payload) -> tuple[PayloadIssue, ...]:
        """Return what is wrong with a whole payload, at most 20 things; ``KeyError`` for an unknown type."""
        return _issues(self._validators[event_type], payload)

    def check(self, event_type: str, payload: Payload) -> None:
        """Raise ``BadPayload``, which names the first thing that is wrong with a whole payload."""
        if event_type not in self.types:
            raise BadPayload(f"no catalogue has the type {event_type}")
        for issue in self.issues(event_type, payload):
            raise BadPayload(f"{event_type}: {issue.pointer or 'the payload'}: {issue.message}")

    def versions(self) -> dict[str, tuple[str, ...]]:
        """Return by each type the older ones that go out beside it, the newest first; others are left out."""
        return {
            name: older for name in self.types if (older := tuple(step.type for step in self._older(name)))
        }

    def render(self, event_type: str, older: str, payload: Payload) -> dict[str, Any]:
        """Return the payload of an older type that goes out beside a published one.

        Raises ``KeyError`` when the published type does not render the older one, and whatever the
        catalogue's function raises.
        """
        made = payload
        for step in self._older(event_type, until=older):
            made = step.render(made)
        # What the service writes stays as it is, whatever the catalogue's function does.
        own = {name: payload[name] for name in _WRITTEN_BY_SERVICE if name in payload}
        return {**{name: made[name] for name in made if name not in _WRITTEN_BY_SERVICE}, **own}

    def _older(self, event_type: str, until: str | None = None) -> list[Rendering]:
        """Return the steps from a type to ever older ones, to ``until`` when it is given."""
        steps: list[Rendering] = []
        current = self.types[event_type]
        while current.renders is not None and current.type != until:
            steps.append(current.renders)
            current = self.types[current.renders.type]
        if until is not None and (current.type != until or not steps):
            raise KeyError(f"{event_type} does not render {until}")
        return steps


def sample_type(subscribed: Sequence[str], *, project: bool) -> str:
    """Return the type of a test event that names none: the first that the endpoint lists beside ``*``.

    :param project: whether the endpoint is scoped to a project.
    """
    for event_type in subscribed:
        if event_type != EVERYTHING:
            return event_type
    return _PROJECT_TEST if project else _ORGANIZATION_TEST


def sample_payload(event_type: EventType, organization: str, project: str | None) -> dict[str, Any]:
    """Return a test event's payload: the type's example, as if it had happened here.

    :param project: None for an endpoint of an organization; the example's project stays then.
    """
    own = {"project_ref": project} if project is not None and event_type.example.get("project_ref") else {}
    return {**event_type.example, "organization_slug": organization, **own, "is_test": True}


def _issues(checks: Draft202012Validator, payload: Payload) -> tuple[PayloadIssue, ...]:
    found = itertools.islice(checks.iter_errors(payload), _ISSUES_TOLD)
    return tuple(
        PayloadIssue(pointer(*error.absolute_path), error.message[:_MESSAGE_LENGTH]) for error in found
    )
