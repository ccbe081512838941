"""The event catalogue: event types, validation of payloads, and rendering of older versions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dataapi.http.strict_json import DIGITS_DECODER
from dataapi.webhooks.event_types import EventType, Payload, Rendering, version

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

ALL_EVENT_TYPES = "*"

_MAX_ISSUES = 20
_MESSAGE_LENGTH = 200
# Types of test events for endpoints that subscribe to ``*`` (docs/reference/webhooks.md, Test events).
_PROJECT_TEST = "v1.project.paused"
_ORGANIZATION_TEST = "v1.organization.member.added"
_RESERVED_MEMBERS = ("organization_slug", "project_ref", "is_test")


class BadEventType(ValueError):
    """Raised when an event type is invalid or conflicts with another event type."""


class BadPayload(ValueError):
    """Raised when a payload does not match its event type, or the event type is unknown."""


@dataclass(frozen=True, slots=True)
class PayloadIssue:
    """An error at a JSON pointer in a payload."""

    pointer: str
    message: str


def pointer(*steps: str | int) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def compile_schema(event_type: EventType) -> CompiledSchema:
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - see ``CompiledSchema``
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    name = event_type.type
    try:
        number = version(name)
        older = version(event_type.renders.type) if event_type.renders is not None else 0
        Draft202012Validator.check_schema(event_type.schema)
        schema = CompiledSchema(event_type.schema)
        issues = _issues(schema, event_type.example)
    except SchemaError as error:
        raise BadEventType(f"the schema of {name} is invalid: {error.message}") from None
    except Unresolvable as error:
        raise BadEventType(f"the schema of {name} refers to {error.ref}, but does not contain it") from None
    except ValueError as error:
        raise BadEventType(str(error)) from None
    if issues:
        raise BadEventType(f"the example of {name} is not valid: {issues[0].message}")
    if older >= number:
        raise BadEventType(f"{name} renders a type whose version is not lower than its own")
    return schema


class Catalogue:
    """Event types, sorted by name.

    :raises BadEventType: a type is invalid or a duplicate, or the older version that it renders is missing.
    """

    def __init__(self, event_types: Iterable[EventType] = ()) -> None:
        ordered = sorted(event_types, key=lambda event_type: event_type.type)
        self._schemas = {event_type.type: compile_schema(event_type) for event_type in ordered}
        self.types: Mapping[str, EventType] = MappingProxyType(
            {event_type.type: event_type for event_type in ordered}
        )
        if len(self.types) < len(ordered):
            raise BadEventType("duplicate event type")
        for event_type in ordered:
            if event_type.renders is not None and event_type.renders.type not in self.types:
                raise BadEventType(
                    f"{event_type.type} renders {event_type.renders.type}, but no catalogue contains it"
                )

    def may_subscribe(self, event_type: str) -> bool:
        return event_type == ALL_EVENT_TYPES or event_type in self.types

    def issues(self, event_type: str, payload: Payload) -> tuple[PayloadIssue, ...]:
        """Return up to 20 errors in a complete payload. Raises ``KeyError`` if the type is unknown."""
        return _issues(self._schemas[event_type], payload)

    def check(self, event_type: str, payload: Payload) -> None:
        if event_type not in self.types:
            raise BadPayload(f"no catalogue contains the type {event_type}")
        for issue in self.issues(event_type, payload):
            raise BadPayload(f"{event_type}: {issue.pointer or 'the payload'}: {issue.message}")

    def versions(self) -> dict[str, tuple[str, ...]]:
        return {
            name: older for name in self.types if (older := tuple(step.type for step in self._older(name)))
        }

    def render(self, event_type: str, older: str, payload: Payload) -> dict[str, Any]:
        rendered = payload
        for step in self._older(event_type, until=older):
            rendered = step.render(rendered)
        # Plugins cannot change reserved members.
        reserved = {name: payload[name] for name in _RESERVED_MEMBERS if name in payload}
        return {**{name: rendered[name] for name in rendered if name not in _RESERVED_MEMBERS}, **reserved}

    def _older(self, event_type: str, until: str | None = None) -> list[Rendering]:
        steps: list[Rendering] = []
        current = self.types[event_type]
        while current.renders is not None and current.type != until:
            steps.append(current.renders)
            current = self.types[current.renders.type]
        if until is not None and (current.type != until or not steps):
            raise KeyError(f"{event_type} does not render {until}")
        return steps


def sample_type(subscribed: Sequence[str], *, project: bool) -> str:
    default = _PROJECT_TEST if project else _ORGANIZATION_TEST
    return next((name for name in subscribed if name != ALL_EVENT_TYPES), default)


def sample_payload(event_type: EventType, organization: str, project: str | None) -> dict[str, Any]:
    """Return the payload of a test event: the type's example, with the organization and project replaced.

    If the endpoint belongs to an organization, the example's project is kept.
    """
    reserved = (
        {"project_ref": project} if project is not None and event_type.example.get("project_ref") else {}
    )
    return {**event_type.example, "organization_slug": organization, **reserved, "is_test": True}


def _issues(schema: CompiledSchema, payload: Payload) -> tuple[PayloadIssue, ...]:
    errors = itertools.islice(schema.errors(payload), _MAX_ISSUES)
    return tuple(
        PayloadIssue(pointer(*error.absolute_path), error.message[:_MESSAGE_LENGTH]) for error in errors
    )


def read_payload(text: str) -> dict[str, Any]:
    """Parse a stored payload.

    Numbers keep all of their digits, because SQL can publish numbers that a float cannot represent.

    :raises RecursionError: the payload is nested too deeply.
    """
    payload: dict[str, Any] = DIGITS_DECODER.decode(text)
    return payload


class CompiledSchema:
    """A compiled JSON Schema (2020-12). It does not fetch other schemas.

    ``jsonschema-rs`` validates a document within a microsecond, but takes seconds to collect the errors of a
    large document. ``jsonschema`` therefore finds the errors, one at a time.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        # Imported here so that requests can be served before the catalogue is loaded.
        import jsonschema_rs  # noqa: PLC0415
        from jsonschema import Draft202012Validator  # noqa: PLC0415
        from referencing import Registry  # noqa: PLC0415

        self._validator = Draft202012Validator(schema, registry=Registry())
        self._is_valid: Callable[[Any], bool] = self._validator.is_valid
        # jsonschema-rs rejects some of Python's regular expressions, and references to other schemas.
        with suppress(ValueError):
            self._is_valid = jsonschema_rs.Draft202012Validator(dict(schema), retriever=_no_schema).is_valid

    def errors(self, document: Any) -> Iterator[ValidationError]:
        # jsonschema-rs raises ValueError for values that JSON cannot represent. Event sources may publish
        # such values.
        with suppress(ValueError):
            if self._is_valid(document):
                return iter(())
        return self._validator.iter_errors(document)


def _no_schema(uri: str) -> Any:
    raise LookupError(uri)
