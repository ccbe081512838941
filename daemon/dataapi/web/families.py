"""The protocol families: their paths, methods, limits and error formats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dataapi.graphql.transport import media_type_of
from dataapi.http.errors import ApiError, GatewayError
from dataapi.http.headers import requested_address
from dataapi.http.messages import Reply, Request
from dataapi.webhooks.management import limits

if TYPE_CHECKING:
    from dataapi.webhooks.management.errors import Issue

_TOKEN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Error codes that are valid in a header. Database functions may raise invalid codes."""

JSON = "application/json; charset=utf-8"

_INVALID_REQUEST, _INTERNAL_ERROR = -32600, -32603

POSTGREST = "PostgREST"
"""Server name in ``Proxy-Status``. Responses to HEAD have no body, so PostgREST's clients read the error code
after this name.
"""


@dataclass(frozen=True, slots=True)
class ProtocolFamily:
    """The paths, methods, limits and error format of a protocol.

    :ivar name: label for logs and metrics.
    :ivar own_options: whether the handlers handle ``OPTIONS`` requests other than preflights.
    :ivar render_error: formats an error. The verbosity ``minimal`` omits details and hint.
    :ivar of_project: whether requests belong to a project, selected by the host name. If not, the handlers
        check the method.
    :ivar max_body: maximum size of a body in bytes, in addition to the project's limit, or None.
    :ivar shared: whether CORS is enabled.
    :ivar keyed: whether the pipeline checks the API key of all requests. If not, the handlers authenticate.
    """

    name: str
    prefix: str
    methods: tuple[str, ...]
    own_options: bool
    render_error: Callable[[ApiError, Request, str], Reply]
    of_project: bool = True
    max_body: int | None = None
    shared: bool = True
    keyed: bool = True

    @property
    def allow(self) -> tuple[str, str]:
        return "Allow", ", ".join(self.methods)


def rest_error(error: ApiError, _request: Request, verbosity: str) -> Reply:
    """Format an error like PostgREST: four members, or two with the verbosity ``minimal``."""
    if isinstance(error, GatewayError):
        return _gateway(error, verbosity)
    members = error.members(verbosity)
    if error.index is not None:
        members["index"] = error.index
    return _reply(error, JSON, members, POSTGREST)


def graphql_error(error: ApiError, request: Request, verbosity: str) -> Reply:
    """Format an error as a GraphQL response without ``data``, because the operation was not executed."""
    if isinstance(error, GatewayError):
        return _gateway(error, verbosity)
    extensions: dict[str, Any] = {"code": error.code}
    if verbosity != "minimal":
        extensions |= {"details": error.details, "hint": error.hint}
    present = {name: value for name, value in extensions.items() if value is not None}
    members = {"errors": [{"message": error.message, "extensions": present}]}
    return _reply(error, media_type_of(request), members)


def management_error(error: ApiError, request: Request, _verbosity: str) -> Reply:
    """Format an error of the management API (docs/reference/webhooks.md, Errors).

    For an ``ApiError`` that is not a ``ManagementError``, the code is derived from the status.
    """
    from dataapi.webhooks.management.errors import ManagementError, common_code  # noqa: PLC0415 - if enabled

    members: dict[str, Any] = {"code": error.code, "message": error.message, "id": request.id}
    if not isinstance(error, ManagementError):
        members["code"] = common_code(error.status)
    elif error.issues:
        members["issues"] = [_issue(issue) for issue in error.issues]
    body = json.dumps({"error": members}, separators=(",", ":")).encode()
    return Reply(error.status, (("Content-Type", JSON), *error.headers), body, code=members["code"])


def _issue(issue: Issue) -> dict[str, Any]:
    locations = {"pointer": issue.pointer, "parameter": issue.parameter, "header": issue.header}
    meta = {name: location for name, location in locations.items() if location is not None}
    return {"code": issue.code, "message": issue.message, **({"meta": meta} if meta else {})}


def mcp_error(error: ApiError, request: Request, verbosity: str) -> Reply:
    """Format an error as a JSON-RPC error without an ``id``, because no message was handled.

    A response with status 401 contains the URL of the metadata that lists the authorization servers (RFC
    9728, section 5.1).
    """
    code = _INVALID_REQUEST if error.status < 500 else _INTERNAL_ERROR
    members = {
        "jsonrpc": "2.0",
        "error": {"code": code, "message": error.message, "data": error.members(verbosity)},
    }
    reply = _reply(error, JSON, members)
    if error.status != 401:
        return reply
    others = [header for header in reply.headers if header[0] != "WWW-Authenticate"]
    challenge = dict(reply.headers).get("WWW-Authenticate", "Bearer")
    separator = "," if "=" in challenge else ""
    metadata = f"{requested_url(request)}{METADATA.prefix}{MCP.prefix}"
    return reply._replace(
        headers=(*others, ("WWW-Authenticate", f'{challenge}{separator} resource_metadata="{metadata}"'))
    )


def requested_url(request: Request) -> str:
    scheme, host = requested_address(request.headers, secure=request.secure)
    return f"{scheme}://{host}"


def internal_error(request_id: str) -> ApiError:
    return ApiError(
        500,
        "PGRSTX00",
        "Internal server error",
        hint=f"See the server's log for request id {request_id}.",
    )


def _gateway(error: GatewayError, verbosity: str) -> Reply:
    members = {"message": error.message, "hint": error.hint}
    return _reply(error, JSON, {"message": error.message} if verbosity == "minimal" else members)


def _reply(error: ApiError, media_type: str, members: Mapping[str, Any], proxy: str = "dataapi") -> Reply:
    # ASCII only, because a message may quote lone surrogates, which UTF-8 cannot encode.
    body = json.dumps(members, separators=(",", ":"), default=str).encode()
    headers = [("Content-Type", media_type), *error.headers]
    if _TOKEN.fullmatch(error.code):
        headers.append(("Proxy-Status", f"{proxy}; error={error.code}"))
    return Reply(error.status, tuple(headers), body, reason=error.reason, code=error.code)


_MAX_GRAPHQL = 1_048_576
"""Maximum size of a GraphQL request or an agent's message, in bytes. Parsing blocks other requests."""

GRAPHQL = ProtocolFamily(
    "graphql", "/graphql/", ("GET", "POST", "HEAD", "OPTIONS"), False, graphql_error, max_body=_MAX_GRAPHQL
)
REST = ProtocolFamily(
    "rest", "/rest/", ("GET", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "HEAD"), True, rest_error
)
MANAGEMENT = ProtocolFamily(
    "webhooks",
    "/v2/",
    ("GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"),
    True,
    management_error,
    of_project=False,
    max_body=limits.MAX_READ,
)
PUBLISHING = replace(MANAGEMENT, prefix="/v1/webhooks/", methods=("POST", "OPTIONS"))
_MAX_DELIVERED = 524_288
"""Maximum size of a request to the console in bytes. Deliveries to test receivers are the largest."""

CONSOLE = ProtocolFamily(
    "console",
    "/console",
    ("GET", "HEAD", "POST", "OPTIONS"),
    False,
    rest_error,
    max_body=_MAX_DELIVERED,
    shared=False,
    keyed=False,
)
PORTAL = ProtocolFamily(
    "portal",
    limits.PORTAL,
    ("GET", "HEAD", "OPTIONS"),
    False,
    rest_error,
    of_project=False,
    max_body=_MAX_DELIVERED,
    shared=False,
    keyed=False,
)
MCP = ProtocolFamily("mcp", "/mcp", ("POST", "OPTIONS"), False, mcp_error, max_body=_MAX_GRAPHQL)
METADATA = ProtocolFamily(
    "mcp", "/.well-known/oauth-protected-resource", ("GET", "HEAD", "OPTIONS"), False, rest_error, keyed=False
)
OTHER = ProtocolFamily("other", "/", ("GET", "HEAD", "OPTIONS"), False, rest_error)

_FAMILIES = (GRAPHQL, REST, MANAGEMENT, PUBLISHING, CONSOLE, PORTAL, MCP, METADATA)


def family_of(path: str) -> ProtocolFamily:
    return next((family for family in _FAMILIES if path.startswith(family.prefix)), OTHER)
