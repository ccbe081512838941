"""Batches: the requests in the body of one, and the body of its answer; pure.

``POST /rest/v1/`` with the content type ``application/vnd.dataapi.batch+json`` and a body such as
``{"requests": [{"method": "POST", "path": "/blog?select=id", "headers": {"Prefer": "…"}, "body": …}]}``
runs them in one transaction under the caller's role.  The answer is an array of
``{"status", "headers", "body"}``; an error in one of them undoes all of them and has the member ``index``.
"""

from __future__ import annotations

import base64
import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]

from dataapi.auth.caller import REST_PREFIX
from dataapi.http import query_string as querystring
from dataapi.http.errors import ApiError
from dataapi.http.headers import media_type
from dataapi.http.messages import MAX_TARGET_BYTES, Reply, Request
from dataapi.http.strict_json import EXACT_DECODER, INVALID_JSON, is_storable
from dataapi.rest.parse.body import JSON

MEDIA_TYPE = "application/vnd.dataapi.batch+json"
MAXIMUM = 100
"""Requests of a batch."""

_UNREADABLE = "The body of a batch is no valid JSON"
_METHODS = ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE")
_OWN = frozenset({"accept", "accept-profile", "content-profile", "prefer", "range", "range-unit"})
"""Headers that a request does not inherit from its batch, besides those that describe the content."""
_CALLERS = frozenset({"apikey", "authorization", "cookie", "host", "x-request-id"})
"""Headers that identify the caller, which only the batch may have."""


def is_batch(request: Request) -> bool:
    if request.path.rstrip("/") != REST_PREFIX:
        return False
    return media_type(request.headers.get("content-type", "")) == MEDIA_TYPE


def read(request: Request) -> tuple[Request, ...]:
    """Return the requests of a batch.

    :raises ApiError: PGRST102 (400), the body is not a valid batch; ``index`` names the request.
    """
    try:
        document = members(request.body.decode())
        listed = elements(document["requests"]) if document and document.keys() == {"requests"} else None
    except INVALID_JSON:
        raise _bad(_UNREADABLE) from None
    if listed is None:
        raise _bad('The body of a batch is not an object with only the member "requests", a list')
    if not 0 < len(listed) <= MAXIMUM:
        raise _bad(f"A batch has 1 to {MAXIMUM} requests, and not {len(listed)}")
    inherited = {
        name: value
        for name, value in request.headers.items()
        if name not in _OWN and not name.startswith("content-")
    }
    return tuple([_each(request, inherited, index, text) for index, text in enumerate(listed)])


def _each(batch: Request, inherited: dict[str, str], index: int, text: str) -> Request:
    try:
        return _request(batch, inherited, text)
    except ApiError as error:
        raise error.replaced(index=index) from error
    except INVALID_JSON:
        # What was read as a part of the whole may be nested too deeply to be read from here.
        raise _bad(_UNREADABLE).replaced(index=index) from None


def _request(batch: Request, inherited: dict[str, str], text: str) -> Request:
    request = members(text)
    if request is None or not {"method", "path"} <= request.keys() <= {"method", "path", "headers", "body"}:
        raise _bad('A request has the members "method" and "path", and may have "headers" and "body"')
    method, target = json.loads(request["method"]), json.loads(request["path"])
    if method not in _METHODS:
        raise _bad(f"A request's method is one of {', '.join(_METHODS)}")
    if not isinstance(target, str) or not target.startswith("/") or not is_storable(target):
        raise _bad('A request\'s path begins with "/", such as "/blog?id=eq.1"')
    if len(target) > MAX_TARGET_BYTES:
        raise _bad(f"A request's path has at most {MAX_TARGET_BYTES} characters")
    path, _, query = target.removeprefix(REST_PREFIX).partition("?")
    path = querystring.path(path)
    if not path.strip("/"):
        raise _bad("A request of a batch is about a table or a function")
    headers = {**inherited, **_headers(request.get("headers", "{}"))}
    if any(part.strip().startswith("tx=") for part in headers.get("prefer", "").split(",")):
        raise _bad("Prefer: tx is for the batch as a whole")
    body = _body(request.get("body"), headers)
    return batch._replace(method=method, path=REST_PREFIX + path, query=query, headers=headers, body=body)


def _headers(text: str) -> dict[str, str]:
    headers = json.loads(text)
    if not isinstance(headers, dict) or not all(
        isinstance(value, str) and is_storable(name + value) for name, value in headers.items()
    ):
        raise _bad("A request's headers are an object of texts")
    named = {name.lower(): value for name, value in headers.items()}
    foreign = sorted(_CALLERS & named.keys())
    if foreign:
        raise _bad(f"The header {foreign[0]} is the batch's for all of its requests")
    return named


def _body(text: str | None, headers: dict[str, str]) -> bytes:
    """Return the body of a request: JSON as it is written, anything else from a JSON string."""
    if text is None:
        return b""
    form = media_type(headers.setdefault("content-type", JSON))
    if _is_json(form):
        return text.encode("utf-8", "surrogatepass")
    value = json.loads(text)
    if not isinstance(value, str) or not is_storable(value):
        raise _bad(f"A body of the content type {form} is written as a string")
    return value.encode()


def answer(replies: list[Reply]) -> Reply:
    """Return the answer of a batch whose requests were all answered."""
    body = b"[" + b",".join([_answered(reply) for reply in replies]) + b"]"
    return Reply(200, (("Content-Type", f"{JSON}; charset=utf-8"),), body)


def _answered(reply: Reply) -> bytes:
    headers: dict[str, str] = {}
    for name, value in reply.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    head = json.dumps({"status": reply.status, "headers": headers}, separators=(",", ":"))
    return head[:-1].encode() + b',"body":' + _body_json(reply.body, headers.get("Content-Type", "")) + b"}"


def _body_json(body: bytes, content_type: str) -> bytes:
    """Return a body as JSON: itself, a string, or base64 of what is not UTF-8."""
    if not body:
        return b"null"
    if _is_json(media_type(content_type)):
        return body
    try:
        return json.dumps(body.decode()).encode()
    except UnicodeDecodeError:
        return json.dumps({"base64": base64.b64encode(body).decode()}).encode()


def _is_json(form: str) -> bool:
    return form == JSON or form.endswith("+json")


def _bad(message: str) -> ApiError:
    return ApiError(400, "PGRST102", message)


_BLANKS = re.compile(r"[ \t\n\r]*")


def members(text: str) -> dict[str, str] | None:
    """Return the members of an object as JSON texts, the last of a name; None for what is not an object.

    :raises ValueError: the text is not JSON; one that is nested too deeply raises ``RecursionError``.
    """
    parts = _parts(text, "{", "}")
    return None if parts is None else dict(parts)


def elements(text: str) -> list[str] | None:
    """Return the elements of an array as JSON texts, as ``members`` does; None for what is not an array."""
    parts = _parts(text, "[", "]")
    return None if parts is None else [value for _, value in parts]


def _parts(text: str, opening: str, closing: str) -> list[tuple[str, str]] | None:
    """Return the names, which are "" in an array, and the values between two brackets."""
    at = _blanks(text, 0)
    if not text.startswith(opening, at):
        EXACT_DECODER.decode(text)
        return None
    at, parts, name = _past(text, at, opening), list[tuple[str, str]](), ""
    while not text.startswith(closing, at):
        if parts:
            at = _past(text, at, ",")
        if opening == "{":
            _past(text, at, '"')
            name, at = scanstring(text, at + 1)
            at = _past(text, _blanks(text, at), ":")
        _, end = EXACT_DECODER.raw_decode(text, at)
        parts.append((name, text[at:end]))
        at = _blanks(text, end)
    if _past(text, at, closing) != len(text):
        raise ValueError(f"expected the end behind {closing}")
    return parts


def _past(text: str, at: int, sign: str) -> int:
    """Return where the token behind a sign begins."""
    if not text.startswith(sign, at):
        raise ValueError(f"expected {sign} at character {at + 1}")
    return _blanks(text, at + 1)


def _blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()
