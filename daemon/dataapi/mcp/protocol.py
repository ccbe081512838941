"""JSON-RPC messages of the Model Context Protocol over Streamable HTTP (docs/mcp.md, Protocol)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dataapi.http.errors import ApiError
from dataapi.http.headers import media_type
from dataapi.http.messages import Reply, Request
from dataapi.http.strict_json import DIGITS_DECODER, INVALID_JSON, encode
from dataapi.telemetry.version import installed_version

STATELESS, INITIALIZED = REVISIONS = ("2026-07-28", "2025-11-25")
"""Supported protocol revisions: one without a handshake, and one with ``initialize``."""

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
HEADER_MISMATCH, UNSUPPORTED_REVISION = -32020, -32022

CALL = "tools/call"
METHODS = {
    STATELESS: ("server/discover", "tools/list", CALL),
    INITIALIZED: ("initialize", "ping", "tools/list", CALL),
}

_JSON = "application/json"
_META = "io.modelcontextprotocol/"
_BASE64 = re.compile(r"=\?base64\?(.*)\?=")
SERVER = {"name": "dataapi", "version": installed_version()}
_HEADERS = (("Content-Type", _JSON), ("X-Content-Type-Options", "nosniff"))

MessageId = str | int | None


class RpcError(Exception):
    """A protocol error, with its response. Tool errors are returned as results instead."""

    def __init__(
        self, code: int, message: str, identifier: MessageId = None, data: Any = None, status: int = 400
    ) -> None:
        super().__init__(message)
        own = {} if identifier is None else {"id": identifier}
        error = {"code": code, "message": message, **({"data": data} if data else {})}
        body = encode({"jsonrpc": "2.0", **own, "error": error}).encode()
        self.reply = Reply(status, _HEADERS, body, code=str(code))


class RpcRequest(NamedTuple):
    """A request or notification. A notification has no ID.

    ``revision`` is the revision of the protocol, or "" while it is being determined.
    """

    method: str
    id: MessageId
    params: Mapping[str, Any]
    revision: str = ""

    def error(self, code: int, message: str, data: Any = None) -> RpcError:
        status = 404 if code == METHOD_NOT_FOUND else 400
        # With the revision ``INITIALIZED``, clients expect errors with the status 200.
        return RpcError(code, message, self.id, data, 200 if self.revision == INITIALIZED else status)

    def respond(self, members: str, code: str = "") -> Reply:
        """Return the response with a result, given its members as JSON without braces.

        ``code`` is the error code for the log, "" if there was no error.
        """
        if self.revision == STATELESS:
            members += f',"resultType":"complete","_meta":{{"{_META}serverInfo":{encode(SERVER)}}}'
        body = f'{{"jsonrpc":"2.0","id":{encode(self.id)},"result":{{{members}}}}}'
        return Reply(200, _HEADERS, body.encode(), code=code)


def read(http: Request) -> RpcRequest:
    """Return the JSON-RPC message in an HTTP request.

    :raises RpcError: the message is invalid, or the request's headers contradict it.
    :raises ApiError: 415 if the media type is not JSON.
    """
    if media_type(http.headers.get("content-type", "")) != _JSON:
        raise ApiError(415, "UNSUPPORTED_MEDIA_TYPE", "Send JSON, as application/json")
    try:
        message = DIGITS_DECODER.decode(http.body.decode())
    except INVALID_JSON:
        raise RpcError(PARSE_ERROR, "The body is not valid JSON") from None
    if isinstance(message, list):
        raise RpcError(INVALID_REQUEST, "Batches are not supported: send each message in its own request")
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'Expected an object with the member "jsonrpc": "2.0"')
    identifier, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if "id" in message and type(identifier) not in (str, int):
        raise RpcError(INVALID_REQUEST, 'Expected "id" to be a string or an integer')
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, 'Expected "method" to be a string', identifier)
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, 'Expected "params" to be an object', identifier)
    request = RpcRequest(method, identifier, params)
    return request._replace(revision=_revision(request, http.headers))


def _revision(request: RpcRequest, headers: Mapping[str, str]) -> str:
    given = request.params.get("_meta")
    meta = given if isinstance(given, dict) else {}
    declared, header = meta.get(f"{_META}protocolVersion"), headers.get("mcp-protocol-version")
    if declared is None and request.method == "initialize":
        return INITIALIZED
    if header is None or (declared is not None and header != declared):
        raise _mismatch(request, "MCP-Protocol-Version")
    if header not in REVISIONS or declared == INITIALIZED:
        data = {"supported": REVISIONS, "requested": header[:60]}
        raise request.error(UNSUPPORTED_REVISION, "Unsupported protocol version", data)
    if header == INITIALIZED or request.id is None:
        return header
    if declared is None or not isinstance(meta.get(f"{_META}clientCapabilities"), dict):
        message = f'Expected "{_META}protocolVersion" and "{_META}clientCapabilities" in "params._meta"'
        raise request.error(INVALID_PARAMS, message)
    if headers.get("mcp-method") != request.method:
        raise _mismatch(request, "Mcp-Method")
    if request.method == CALL and _decoded(headers.get("mcp-name", "")) != request.params.get("name"):
        raise _mismatch(request, "Mcp-Name")
    return STATELESS


def _mismatch(request: RpcRequest, name: str) -> RpcError:
    return request.error(HEADER_MISMATCH, f"The header {name} is missing or differs from the body")


def _decoded(header: str) -> str | None:
    encoded = _BASE64.fullmatch(header)
    try:
        return header if encoded is None else base64.b64decode(encoded[1], validate=True).decode()
    except ValueError:
        return None
