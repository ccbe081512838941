"""Batches: requests in the body of one request, and their replies (docs/reference/rest.md, Batches)."""

from __future__ import annotations

import base64
import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]

from dataapi.auth.caller import REST_PREFIX
from dataapi.http import query_string as querystring
from dataapi.http.errors import ApiError
from dataapi.http.headers import CONDITIONAL_HEADERS, media_type
from dataapi.http.messages import MAX_TARGET_BYTES, Reply, Request
from dataapi.http.strict_json import EXACT_DECODER, INVALID_JSON, is_storable
from dataapi.rest.parse.body import JSON
from dataapi.rest.parse.preconditions import unsupported_condition

MEDIA_TYPE = "application/vnd.dataapi.batch+json"
MAX_REQUESTS = 100
"""Maximum number of requests in a batch."""

_UNREADABLE = "The body of a batch must be valid JSON"
_METHODS = ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE")
_NOT_INHERITED = CONDITIONAL_HEADERS | {
    *("accept", "accept-profile", "content-profile", "prefer", "range", "range-unit")
}
"""Headers that a request does not inherit from its batch, in addition to ``Content-*``."""
_CALLER_HEADERS = frozenset({"apikey", "authorization", "cookie", "host", "x-request-id"})
"""Headers that apply to the whole batch. They are not allowed on the requests in the batch."""


def is_batch(request: Request) -> bool:
    if request.path.rstrip("/") != REST_PREFIX:
        return False
    return media_type(request.headers.get("content-type", "")) == MEDIA_TYPE


def inherited_headers(request: Request) -> dict[str, str]:
    return {
        name: value
        for name, value in request.headers.items()
        if name not in _NOT_INHERITED and not name.startswith("content-")
    }


def read(request: Request) -> tuple[Request, ...]:
    """Return the requests in a batch.

    :raises ApiError: PGRST102 (400) if the body is not a valid batch, PGRST127 (412) if the batch itself has
        a precondition. The error's ``index`` identifies the invalid request, if any.
    """
    if not CONDITIONAL_HEADERS.isdisjoint(request.headers):
        raise unsupported_condition(
            "A batch cannot be conditional.", "Add the header to a request in the batch."
        )
    try:
        document = members(request.body.decode())
        listed = elements(document["requests"]) if document and document.keys() == {"requests"} else None
    except INVALID_JSON:
        raise _invalid(_UNREADABLE) from None
    if listed is None:
        raise _invalid('The body of a batch must be an object whose only member is "requests", an array')
    if not 0 < len(listed) <= MAX_REQUESTS:
        raise _invalid(f"A batch must have 1 to {MAX_REQUESTS} requests, but this one has {len(listed)}")
    inherited = inherited_headers(request)
    return tuple([_indexed_request(request, inherited, index, text) for index, text in enumerate(listed)])


def _indexed_request(batch: Request, inherited: dict[str, str], index: int, text: str) -> Request:
    try:
        return _request(batch, inherited, text)
    except ApiError as error:
        raise error.replaced(index=index) from error
    except INVALID_JSON:
        # Decoding a request uses more of the stack than splitting the batch, so deep nesting may fail only
        # here.
        raise _invalid(_UNREADABLE).replaced(index=index) from None


def _request(batch: Request, inherited: dict[str, str], text: str) -> Request:
    request = members(text)
    if request is None or not {"method", "path"} <= request.keys() <= {"method", "path", "headers", "body"}:
        raise _invalid(
            'A request must have the members "method" and "path", and may have "headers" and "body"'
        )
    method, target = json.loads(request["method"]), json.loads(request["path"])
    if method not in _METHODS:
        raise _invalid(f"The method of a request must be one of {', '.join(_METHODS)}")
    if not isinstance(target, str) or not target.startswith("/") or not is_storable(target):
        raise _invalid('The path of a request must start with "/", as in "/blog?id=eq.1"')
    if len(target) > MAX_TARGET_BYTES:
        raise _invalid(f"The path of a request must not exceed {MAX_TARGET_BYTES} characters")
    path, _, query = target.removeprefix(REST_PREFIX).partition("?")
    path = querystring.path(path)
    if not path.strip("/"):
        raise _invalid("The path of a request must name a table or a function")
    headers = {**inherited, **_headers(request.get("headers", "{}"))}
    if any(part.strip().startswith("tx=") for part in headers.get("prefer", "").split(",")):
        raise _invalid("Prefer: tx is only allowed on the batch itself")
    body = _body(request.get("body"), headers)
    return batch._replace(method=method, path=REST_PREFIX + path, query=query, headers=headers, body=body)


def _headers(text: str) -> dict[str, str]:
    headers = json.loads(text)
    if not isinstance(headers, dict) or not all(
        isinstance(value, str) and is_storable(name + value) for name, value in headers.items()
    ):
        raise _invalid("The headers of a request must be an object of strings")
    named = {name.lower(): value for name, value in headers.items()}
    forbidden = sorted(_CALLER_HEADERS & named.keys())
    if forbidden:
        raise _invalid(f"The header {forbidden[0]} is only allowed on the batch itself")
    return named


def _body(text: str | None, headers: dict[str, str]) -> bytes:
    if text is None:
        return b""
    body_type = media_type(headers.setdefault("content-type", JSON))
    if _is_json(body_type):
        return text.encode("utf-8", "surrogatepass")
    value = json.loads(text)
    if not isinstance(value, str) or not is_storable(value):
        raise _invalid(f"A body of the content type {body_type} must be a string")
    return value.encode()


def combined_reply(replies: list[Reply]) -> Reply:
    body = b"[" + b",".join([_reply_json(reply) for reply in replies]) + b"]"
    return Reply(200, (("Content-Type", f"{JSON}; charset=utf-8"),), body)


def _reply_json(reply: Reply) -> bytes:
    headers: dict[str, str] = {}
    for name, value in reply.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    head = json.dumps({"status": reply.status, "headers": headers}, separators=(",", ":"))
    return head[:-1].encode() + b',"body":' + _body_json(reply.body, headers.get("Content-Type", "")) + b"}"


def _body_json(body: bytes, content_type: str) -> bytes:
    if not body:
        return b"null"
    if _is_json(media_type(content_type)):
        return body
    try:
        return json.dumps(body.decode()).encode()
    except UnicodeDecodeError:
        return json.dumps({"base64": base64.b64encode(body).decode()}).encode()


def _is_json(body_type: str) -> bool:
    return body_type == JSON or body_type.endswith("+json")


def _invalid(message: str) -> ApiError:
    return ApiError(400, "PGRST102", message)


_BLANKS = re.compile(r"[ \t\n\r]*")


def members(text: str) -> dict[str, str] | None:
    """Return the members of a JSON object as JSON texts, None if the text is not an object.

    If a name is repeated, its last value is used.

    :raises ValueError: The text is not JSON.
    :raises RecursionError: The text is nested too deeply.
    """
    parts = _parts(text, "{", "}")
    return None if parts is None else dict(parts)


def elements(text: str) -> list[str] | None:
    parts = _parts(text, "[", "]")
    return None if parts is None else [value for _, value in parts]


def _parts(text: str, opening: str, closing: str) -> list[tuple[str, str]] | None:
    at = _skip_blanks(text, 0)
    if not text.startswith(opening, at):
        EXACT_DECODER.decode(text)
        return None
    at, parts, name = _skip(text, at, opening), list[tuple[str, str]](), ""
    while not text.startswith(closing, at):
        if parts:
            at = _skip(text, at, ",")
        if opening == "{":
            _skip(text, at, '"')
            name, at = scanstring(text, at + 1)
            at = _skip(text, _skip_blanks(text, at), ":")
        _, end = EXACT_DECODER.raw_decode(text, at)
        parts.append((name, text[at:end]))
        at = _skip_blanks(text, end)
    if _skip(text, at, closing) != len(text):
        raise ValueError(f"unexpected text after {closing}")
    return parts


def _skip(text: str, at: int, token: str) -> int:
    if not text.startswith(token, at):
        raise ValueError(f"expected {token} at character {at + 1}")
    return _skip_blanks(text, at + 1)


def _skip_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()
