"""Publishing over HTTP: one event, or a list of them, all or none, by one statement that authorizes, too."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from dataapi.http.messages import Request
from dataapi.http.strict_json import DIGITS_DECODER
from dataapi.webhooks.catalogue import Catalogue, pointer
from dataapi.webhooks.event_types import complete_payload
from dataapi.webhooks.management import body, listing, resources
from dataapi.webhooks.management.authorization import OperationResult, RequestedScope, authorize, bearer
from dataapi.webhooks.management.errors import ErrorCode, Issue, IssueCode, ManagementError, invalid
from dataapi.webhooks.management.operations import PUBLISH, ManagementOperation, OperationContext
from dataapi.webhooks.management.resources import ATTRIBUTES
from dataapi.webhooks.model import NewEvent, Permission, Scope
from dataapi.webhooks.store.enqueue import CannotPublish, PublishProblem

LONG = 4_000
"""Bytes of a body beyond which its events are checked on the worker thread."""

_WRITTEN = ("/organization_slug", "/project_ref")
"""Members that the service writes into payloads from the body's attributes of the same names."""


@ManagementOperation(
    "POST", "/v1/webhooks/events", "Publish an event, or a list of them, all or none", PUBLISH, 201,
    resources.one_or_many("ingress"), scoped=False, checks_itself=True, body=resources.new_events,
    errors=(ErrorCode.INVALID_SLUG, ErrorCode.INVALID_REF),
)  # fmt: skip
async def publish_event(context: OperationContext, request: Request) -> OperationResult:
    """Publish the events of a request, whose order is that of the identifiers in the result."""
    try:
        return await _publish(context, request)
    except ManagementError:
        # One that is to be checked earlier is reported instead.
        await _authorize(context, request)
        raise


async def _publish(context: OperationContext, request: Request) -> OperationResult:
    document = body.document(request, maximum=resources.MAX_EVENTS)
    places = _places(document)
    # Schemas judge the usual numbers a hundred times as fast as those that keep their digits.
    exact = DIGITS_DECODER.decode(request.body.decode())
    work = partial(_events, context, places, exact if isinstance(exact, list) else [exact])
    events = await context.worker.run(work) if len(request.body) > LONG else work()
    listing.values((), request.query)
    token, scope = bearer(request), events[0].scope
    if token is None or any(event.scope.organization != scope.organization for event in events):
        raise ManagementError(ErrorCode.PERMISSION_DENIED)
    try:
        published = await context.store.publisher.publish_as(
            token, scope.organization, events, request.context.traceparent
        )
    except CannotPublish as error:
        raise _refused(error, places[error.index][0]) from None
    if published is None:
        raise ManagementError(ErrorCode.PERMISSION_DENIED)
    records = [resources.ingress(identifier) for identifier in published]
    return OperationResult(records if isinstance(document, list) else records[0])


def _events(context: OperationContext, places: list[tuple[str, Any]], exact: list[Any]) -> list[NewEvent]:
    """Return the events of documents.

    :param places: the pointer of each, and the document.
    :param exact: the documents with the digits of their numbers.
    :raises ManagementError: with the issues of all of them, at most 20.
    """
    events, issues = [], list[Issue]()
    schema, catalogue = context.schema(resources.new_event), context.catalogue
    for (place, document), digits in zip(places, exact, strict=True):
        found = body.issues(schema, document, place) or list(_payload_issues(catalogue, document, place))
        issues += found
        if len(issues) >= body.MAX_ISSUES:
            break
        if not found:
            events.append(_event(digits))
    if issues:
        raise invalid(*issues[: body.MAX_ISSUES])
    return events


def _payload_issues(catalogue: Catalogue, document: Any, place: str) -> Iterator[Issue]:
    """Yield what is wrong with a document that is valid by its schema."""
    attributes = document["data"]["attributes"]
    if "timestamp" in attributes and resources.parse_timestamp(attributes["timestamp"]) is None:
        yield resources.bad_timestamp(f"{place}{ATTRIBUTES}/timestamp")
    payload = complete_payload(
        attributes.get("payload", {}), attributes["organization_slug"], attributes.get("project_ref")
    )
    for found in catalogue.issues(attributes["type"], payload):
        yield Issue(IssueCode.PAYLOAD, found.message, place + _payload_place(found.pointer))


async def _authorize(context: OperationContext, request: Request) -> None:
    """Make the checks that come before those of the body, each of the next event."""
    try:
        scopes = [
            RequestedScope(
                _text(document, "organization_slug"), _text(document, "project_ref"), place or None
            )
            for place, document in _places(body.document(request, maximum=resources.MAX_EVENTS))
        ]
    except ManagementError:
        scopes = []
    refs = [ref for scope in scopes for ref in scope.valid_refs]
    access, _ = await authorize(context.store.directory, request, Permission.PUBLISH, refs=refs)
    for scope in scopes:
        scope.check_syntax()
        scope.resolve(access)


def _places(document: Any) -> list[tuple[str, Any]]:
    """Return the pointer and the document of each event in a body."""
    if isinstance(document, list):
        return [(pointer(index), one) for index, one in enumerate(document)]
    return [("", document)]


def _text(document: Any, name: str) -> str | None:
    """Return a text attribute of a document that is not validated yet, None without one."""
    for step in ("data", "attributes", name):
        document = document.get(step) if isinstance(document, dict) else None
    return document if isinstance(document, str) else None


def _event(document: Any) -> NewEvent:
    attributes = document["data"]["attributes"]
    timestamp = resources.parse_timestamp(attributes["timestamp"]) if "timestamp" in attributes else None
    scope = Scope(attributes["organization_slug"], attributes.get("project_ref"))
    key = document["meta"]["idempotency_key"]
    return NewEvent(attributes["type"], scope, attributes.get("payload", {}), key, timestamp)


def _payload_place(found: str) -> str:
    return ATTRIBUTES + (found if found in _WRITTEN else f"/payload{found}")


def _refused(error: CannotPublish, place: str) -> ManagementError:
    """Return the error for an event that the store refuses."""
    if error.problem is PublishProblem.NOT_ALLOWED:
        return ManagementError(ErrorCode.ACCESS_DISABLED)
    if error.problem is PublishProblem.RESERVED_NAME:
        reserved = place + _payload_place(pointer("is_test"))
        return invalid(Issue(IssueCode.RESERVED, str(error), reserved))
    if error.problem is PublishProblem.MALFORMED:
        return invalid(Issue(IssueCode.INVALID, str(error), place + ATTRIBUTES))
    return ManagementError(ErrorCode.PERMISSION_DENIED)
