"""Publishing over HTTP: one event or a list of events, authorized and stored by a single statement."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from dataapi.http.messages import Request
from dataapi.http.strict_json import DIGITS_DECODER
from dataapi.webhooks.catalogue import Catalogue, pointer
from dataapi.webhooks.event_types import complete_payload
from dataapi.webhooks.management import body, listing, resources
from dataapi.webhooks.management.authorization import OperationResult, RequestedScope, authorize, bearer_token
from dataapi.webhooks.management.errors import ErrorCode, Issue, IssueCode, ManagementError, invalid
from dataapi.webhooks.management.operations import PUBLISH, ManagementOperation, OperationContext
from dataapi.webhooks.management.resources import ATTRIBUTES
from dataapi.webhooks.model import NewEvent, Permission, Scope
from dataapi.webhooks.store.enqueue import CannotPublish, PublishProblem

LONG_BODY = 4_000
"""Minimum size of a body to validate on the worker thread, in bytes."""

_COPIED_MEMBERS = ("/organization_slug", "/project_ref")
"""Payload members that the service copies from the body's attributes."""


@ManagementOperation(
    "POST", "/v1/webhooks/events", "Publish an event, or a list of events in one transaction", PUBLISH, 201,
    resources.one_or_many("ingress"), scoped=False, custom_checks=True, body=resources.new_events,
    errors=(ErrorCode.INVALID_SLUG, ErrorCode.INVALID_REF),
)  # fmt: skip
async def publish_event(context: OperationContext, request: Request) -> OperationResult:
    try:
        return await _publish(context, request)
    except ManagementError:
        # An authorization error takes precedence.
        await _authorize(context, request)
        raise


async def _publish(context: OperationContext, request: Request) -> OperationResult:
    document = body.document(request, maximum=resources.MAX_EVENTS)
    documents = _documents(document)
    # Validating floats is a hundred times faster than validating exact numbers. Events contain exact numbers.
    exact = DIGITS_DECODER.decode(request.body.decode())
    work = partial(_events, context, documents, exact if isinstance(exact, list) else [exact])
    events = await context.worker.run(work) if len(request.body) > LONG_BODY else work()
    listing.parse_query((), request.query)
    token, scope = bearer_token(request), events[0].scope
    if token is None or any(event.scope.organization != scope.organization for event in events):
        raise ManagementError(ErrorCode.PERMISSION_DENIED)
    try:
        published = await context.store.publisher.publish_as(
            token, scope.organization, events, request.context.traceparent
        )
    except CannotPublish as error:
        raise _publish_error(error, documents[error.index][0]) from None
    if published is None:
        raise ManagementError(ErrorCode.PERMISSION_DENIED)
    records = [resources.ingress(identifier) for identifier in published]
    return OperationResult(records if isinstance(document, list) else records[0])


def _events(context: OperationContext, documents: list[tuple[str, Any]], exact: list[Any]) -> list[NewEvent]:
    """Return the events in the documents.

    ``documents`` contains pairs of JSON pointer and document. ``exact`` contains the same documents,
    parsed without rounding numbers to floats.

    :raises ManagementError: with up to 20 issues.
    """
    events, issues = [], list[Issue]()
    schema, catalogue = context.schema(resources.new_event), context.catalogue
    for (location, document), digits in zip(documents, exact, strict=True):
        new_issues = body.issues(schema, document, location) or list(
            _payload_issues(catalogue, document, location)
        )
        issues += new_issues
        if len(issues) >= body.MAX_ISSUES:
            break
        if not new_issues:
            events.append(_event(digits))
    if issues:
        raise invalid(*issues[: body.MAX_ISSUES])
    return events


def _payload_issues(catalogue: Catalogue, document: Any, location: str) -> Iterator[Issue]:
    attributes = document["data"]["attributes"]
    if "timestamp" in attributes and resources.parse_timestamp(attributes["timestamp"]) is None:
        yield resources.bad_timestamp(f"{location}{ATTRIBUTES}/timestamp")
    payload = complete_payload(
        attributes.get("payload", {}), attributes["organization_slug"], attributes.get("project_ref")
    )
    for issue in catalogue.issues(attributes["type"], payload):
        yield Issue(IssueCode.PAYLOAD, issue.message, location + _payload_location(issue.pointer))


async def _authorize(context: OperationContext, request: Request) -> None:
    """Check token, scopes and permission. Their errors precede errors in the body."""
    try:
        scopes = [
            RequestedScope(
                _text(document, "organization_slug"), _text(document, "project_ref"), location or None
            )
            for location, document in _documents(body.document(request, maximum=resources.MAX_EVENTS))
        ]
    except ManagementError:
        scopes = []
    refs = [ref for scope in scopes for ref in scope.valid_refs]
    access, _ = await authorize(context.store.directory, request, Permission.PUBLISH, refs=refs)
    for scope in scopes:
        scope.check_syntax()
        scope.resolve(access)


def _documents(document: Any) -> list[tuple[str, Any]]:
    if isinstance(document, list):
        return [(pointer(index), event) for index, event in enumerate(document)]
    return [("", document)]


def _text(document: Any, name: str) -> str | None:
    for step in ("data", "attributes", name):
        document = document.get(step) if isinstance(document, dict) else None
    return document if isinstance(document, str) else None


def _event(document: Any) -> NewEvent:
    attributes = document["data"]["attributes"]
    timestamp = resources.parse_timestamp(attributes["timestamp"]) if "timestamp" in attributes else None
    scope = Scope(attributes["organization_slug"], attributes.get("project_ref"))
    key = document["meta"]["idempotency_key"]
    return NewEvent(attributes["type"], scope, attributes.get("payload", {}), key, timestamp)


def _payload_location(member: str) -> str:
    return ATTRIBUTES + (member if member in _COPIED_MEMBERS else f"/payload{member}")


def _publish_error(error: CannotPublish, location: str) -> ManagementError:
    if error.problem is PublishProblem.NOT_ALLOWED:
        return ManagementError(ErrorCode.ACCESS_DISABLED)
    if error.problem is PublishProblem.RESERVED_NAME:
        reserved = location + _payload_location(pointer("is_test"))
        return invalid(Issue(IssueCode.RESERVED, str(error), reserved))
    if error.problem is PublishProblem.MALFORMED:
        return invalid(Issue(IssueCode.INVALID, str(error), location + ATTRIBUTES))
    return ManagementError(ErrorCode.PERMISSION_DENIED)
