"""Errors as each protocol writes them: the one place per protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dataapi.errors import ApiError, GatewayError
from dataapi.graphql.transport import media_type_of
from dataapi.web.messages import Reply, Request

JSON = "application/json; charset=utf-8"


def rest(error: ApiError, request: Request) -> Reply:  # noqa: ARG001 - every renderer is given both
    """Write an error as PostgREST does: always with all four members."""
    if isinstance(error, GatewayError):
        return _gateway(error)
    members = {
        "code": error.code,
        "details": error.details,
        "hint": error.hint,
        "message": error.message,
    }
    return _reply(error, JSON, members)


def graphql(error: ApiError, request: Request) -> Reply:
    """Write an error as a GraphQL response without ``data``: the operation was not executed."""
    if isinstance(error, GatewayError):
        return _gateway(error)
    extensions = {"code": error.code, "details": error.details, "hint": error.hint}
    present = {name: value for name, value in extensions.items() if value is not None}
    members = {"errors": [{"message": error.message, "extensions": present}]}
    return _reply(error, media_type_of(request), members)


def unknown(request_id: str) -> ApiError:
    """Return what a client is told of a failure that is not its business."""
    return ApiError(
        500,
        "PGRSTX00",
        "Internal server error",
        hint=f"The server's log has more under the request id {request_id}.",
    )


def _gateway(error: GatewayError) -> Reply:
    return _reply(error, JSON, {"message": error.message, "hint": error.hint})


def _reply(error: ApiError, media_type: str, members: Mapping[str, Any]) -> Reply:
    # ASCII only: a message may quote half a surrogate pair, which UTF-8 cannot hold.
    body = json.dumps(members, separators=(",", ":"), default=str).encode()
    return Reply(error.status, (("Content-Type", media_type), *error.headers), body)
