"""Errors as each protocol writes them: the one place per protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from dataapi.errors import ApiError, GatewayError
from dataapi.graphql.transport import media_type_of
from dataapi.web.messages import Reply, Request
from dataapi.webhooks.management import codes
from dataapi.webhooks.management.refusals import Issue, ManagementError

_TOKEN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Codes that may stand in a header; SQL can raise any."""

JSON = "application/json; charset=utf-8"

_MANAGEMENT_CODES = {one.status: one.code for one in codes.SURROUNDING}

POSTGREST = "PostgREST"
"""The name beside the code in ``Proxy-Status``: where an answer has no body, as to HEAD, clients of that
dialect find the code under this name only."""


def rest(error: ApiError, request: Request, verbosity: str = "verbose") -> Reply:  # noqa: ARG001 - a Refuse
    """Write an error as PostgREST does: always with all four members, or with two when told so."""
    if isinstance(error, GatewayError):
        return _gateway(error, verbosity)
    members: dict[str, Any] = {"code": error.code, "message": error.message}
    if verbosity != "minimal":
        members = {"code": error.code, "details": error.details, "hint": error.hint, "message": error.message}
    if error.index is not None:
        members["index"] = error.index
    return _reply(error, JSON, members, POSTGREST)


def graphql(error: ApiError, request: Request, verbosity: str = "verbose") -> Reply:
    """Write an error as a GraphQL response without ``data``: the operation was not executed."""
    if isinstance(error, GatewayError):
        return _gateway(error, verbosity)
    extensions: dict[str, Any] = {"code": error.code}
    if verbosity != "minimal":
        extensions |= {"details": error.details, "hint": error.hint}
    present = {name: value for name, value in extensions.items() if value is not None}
    members = {"errors": [{"message": error.message, "extensions": present}]}
    return _reply(error, media_type_of(request), members)


def management(error: ApiError, request: Request, verbosity: str = "verbose") -> Reply:  # noqa: ARG001 - a Refuse
    """Write an error as the management API does (reference/webhooks.md section 1, "Errors").

    Errors of what surrounds it have codes of other protocols, so that only their status tells.
    """
    members: dict[str, Any] = {"code": error.code, "message": error.message, "id": request.id}
    if not isinstance(error, ManagementError):
        members["code"] = _MANAGEMENT_CODES.get(error.status, codes.OTHER)
    elif error.issues:
        members["issues"] = [_issue(issue) for issue in error.issues]
    body = json.dumps({"error": members}, separators=(",", ":")).encode()
    return Reply(error.status, (("Content-Type", JSON), *error.headers), body)


def _issue(issue: Issue) -> dict[str, Any]:
    places = {"pointer": issue.pointer, "parameter": issue.parameter}
    meta = {name: place for name, place in places.items() if place is not None}
    return {"code": issue.code, "message": issue.message, **({"meta": meta} if meta else {})}


def unknown(request_id: str) -> ApiError:
    """Return what a client is told of a failure that is not its business."""
    return ApiError(
        500,
        "PGRSTX00",
        "Internal server error",
        hint=f"The server's log has more under the request id {request_id}.",
    )


def _gateway(error: GatewayError, verbosity: str) -> Reply:
    members = {"message": error.message, "hint": error.hint}
    return _reply(error, JSON, {"message": error.message} if verbosity == "minimal" else members)


def _reply(error: ApiError, media_type: str, members: Mapping[str, Any], proxy: str = "dataapi") -> Reply:
    # ASCII only: a message may quote half a surrogate pair, which UTF-8 cannot hold.
    body = json.dumps(members, separators=(",", ":"), default=str).encode()
    headers = [("Content-Type", media_type), *error.headers]
    if _TOKEN.fullmatch(error.code):
        headers.append(("Proxy-Status", f"{proxy}; error={error.code}"))
    return Reply(error.status, tuple(headers), body, reason=error.reason)
