"""The event catalogue: the types that exist, the schemas of their payloads, how versions render."""

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
# The type of a test event for an endpoint with ``*`` (docs/reference/webhooks.md, Test events).
_PROJECT_TEST = "v1.project.paused"
_ORGANIZATION_TEST = "v1.organization.member.added"
_WRITTEN_BY_SERVICE = ("organization_slug", "project_ref", "is_test")


class BadEventType(ValueError):
    """An event type is wrong, or conflicts with other types."""


class BadPayload(ValueError):
    """A payload does not fit its type, or the type is unknown."""


@dataclass(frozen=True, slots=True)
class PayloadIssue:
    """Something that is wrong with a payload, at a JSON pointer within it."""

    pointer: str
    message: str


def pointer(*steps: str | int) -> str:
    """Write a JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def compile_schema(event_type: EventType) -> CompiledSchema:
    """Return the schema of a type's payloads; ``BadEventType`` for a type that is wrong."""
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - see ``CompiledSchema``
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    name = event_type.type
    try:
        number = version(name)
        older = version(event_type.renders.type) if event_type.renders is not None else 0
        Draft202012Validator.check_schema(event_type.schema)
        schema = CompiledSchema(event_type.schema)
        wrong = _issues(schema, event_type.example)
    except SchemaError as error:
        raise BadEventType(f"the schema of {name} is invalid: {error.message}") from None
    except Unresolvable as error:
        raise BadEventType(f"the schema of {name} refers to {error.ref}, which is not in it") from None
    except ValueError as error:
        raise BadEventType(str(error)) from None
    if wrong:
        raise BadEventType(f"the example of {name} is not valid: {wrong[0].message}")
    if older >= number:
        raise BadEventType(f"{name} renders a type that is not older")
    return schema


class Catalogue:
    """Event types by their names.

    :ivar types: all of them, in the order of their names.

    :raises BadEventType: a type is wrong, is there twice, or renders a type that is unknown.
    """

    def __init__(self, event_types: Iterable[EventType] = ()) -> None:
        ordered = sorted(event_types, key=lambda event_type: event_type.type)
        self._schemas = {event_type.type: compile_schema(event_type) for event_type in ordered}
        self.types: Mapping[str, EventType] = MappingProxyType({one.type: one for one in ordered})
        if len(self.types) < len(ordered):
            raise BadEventType("an event type is there twice")
        for one in ordered:
            if one.renders is not None and one.renders.type not in self.types:
                raise BadEventType(f"{one.type} renders {one.renders.type}, which is in no catalogue")

    def may_subscribe(self, event_type: str) -> bool:
        """Whether endpoints may subscribe to a type; ``*`` means every type, also those added later."""
        return event_type == ALL_EVENT_TYPES or event_type in self.types

    def issues(self, event_type: str, payload: Payload) -> tuple[PayloadIssue, ...]:
        """Return the issues of a complete payload, at most 20; ``KeyError`` for an unknown type."""
        return _issues(self._schemas[event_type], payload)

    def check(self, event_type: str, payload: Payload) -> None:
        """Raise ``BadPayload`` with the first issue of a complete payload."""
        if event_type not in self.types:
            raise BadPayload(f"the type {event_type} is in no catalogue")
        for issue in self.issues(event_type, payload):
            raise BadPayload(f"{event_type}: {issue.pointer or 'the payload'}: {issue.message}")

    def versions(self) -> dict[str, tuple[str, ...]]:
        """Return the types that have older versions, each with these, the newest first."""
        return {
            name: older for name in self.types if (older := tuple(step.type for step in self._older(name)))
        }

    def render(self, event_type: str, older: str, payload: Payload) -> dict[str, Any]:
        """Return the payload of an older type; ``KeyError`` if the published one is not sent alongside it."""
        made = payload
        for step in self._older(event_type, until=older):
            made = step.render(made)
        # The catalogue's function cannot change what the service writes.
        own = {name: payload[name] for name in _WRITTEN_BY_SERVICE if name in payload}
        return {**{name: made[name] for name in made if name not in _WRITTEN_BY_SERVICE}, **own}

    def _older(self, event_type: str, until: str | None = None) -> list[Rendering]:
        """Return the steps from a type to older and older ones, as far as ``until``."""
        steps: list[Rendering] = []
        current = self.types[event_type]
        while current.renders is not None and current.type != until:
            steps.append(current.renders)
            current = self.types[current.renders.type]
        if until is not None and (current.type != until or not steps):
            raise KeyError(f"{event_type} does not render {until}")
        return steps


def sample_type(subscribed: Sequence[str], *, project: bool) -> str:
    """Return the default type of a test event: the first that the endpoint lists, other than ``*``."""
    default = _PROJECT_TEST if project else _ORGANIZATION_TEST
    return next((name for name in subscribed if name != ALL_EVENT_TYPES), default)


def sample_payload(event_type: EventType, organization: str, project: str | None) -> dict[str, Any]:
    """Return a test event's payload: the type's example in the endpoint's scope.

    :param project: None for an endpoint of an organization, which keeps the example's project.
    """
    own = {"project_ref": project} if project is not None and event_type.example.get("project_ref") else {}
    return {**event_type.example, "organization_slug": organization, **own, "is_test": True}


def _issues(schema: CompiledSchema, payload: Payload) -> tuple[PayloadIssue, ...]:
    found = itertools.islice(schema.errors(payload), _MAX_ISSUES)
    return tuple(
        PayloadIssue(pointer(*error.absolute_path), error.message[:_MESSAGE_LENGTH]) for error in found
    )


def read_payload(text: str) -> dict[str, Any]:
    """Parse a stored payload; publishers in SQL may write JSON that Python cannot represent.

    Numbers have the digits of the text when ``strict_json.encode`` writes them.

    :raises RecursionError: it is nested very deeply.
    """
    found: dict[str, Any] = DIGITS_DECODER.decode(text)
    return found


class CompiledSchema:
    """A JSON Schema (2020-12), which fetches no other schemas.

    ``jsonschema-rs`` accepts valid documents in a microsecond.  ``jsonschema`` describes what is wrong with
    others, one issue at a time: the former collects all of them, those of a large document for seconds.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        # Imported here, as requests are answered before there is a catalogue.
        import jsonschema_rs  # noqa: PLC0415
        from jsonschema import Draft202012Validator  # noqa: PLC0415
        from referencing import Registry  # noqa: PLC0415

        self._validator = Draft202012Validator(schema, registry=Registry())
        self._is_valid: Callable[[Any], bool] = self._validator.is_valid
        # A pattern that only Python can read, or a reference to another schema, is left to jsonschema.
        with suppress(ValueError):
            self._is_valid = jsonschema_rs.Draft202012Validator(dict(schema), retriever=_no_schema).is_valid

    def errors(self, document: Any) -> Iterator[ValidationError]:
        """Return what is wrong with a document."""
        # An event source may publish what is no JSON.
        with suppress(ValueError):
            if self._is_valid(document):
                return iter(())
        return self._validator.iter_errors(document)


def _no_schema(uri: str) -> Any:
    raise LookupError(uri)
