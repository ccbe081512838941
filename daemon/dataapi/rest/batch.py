"""Several requests in one: how they are written and how their answers are; pure.

``POST /rest/v1/`` with the content type ``application/vnd.dataapi.batch+json`` and a body such as
``{"requests": [{"method": "POST", "path": "/blog?select=id", "headers": {"Prefer": "…"}, "body": …}]}``
runs them in one transaction under the caller's role.  The answer is an array of
``{"status", "headers", "body"}``; an error of one undoes all of them and says ``index``.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace

from dataapi.access.gate import REST_PREFIX
from dataapi.errors import ApiError
from dataapi.headers import media_type
from dataapi.rest.request import rawjson
from dataapi.rest.request.payload import JSON
from dataapi.strict_json import NO_JSON
from dataapi.web import querystring
from dataapi.web.messages import Reply, Request
from dataapi.web.target import LONGEST_TARGET

MEDIA_TYPE = "application/vnd.dataapi.batch+json"
MOST = 100
"""Requests of a batch."""

_METHODS = ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE")
_OWN = frozenset({"accept", "accept-profile", "content-profile", "prefer", "range", "range-unit"})
"""Headers that each request has for itself; of the batch's own those of its content are left out too."""
_CALLERS = frozenset({"apikey", "authorization", "cookie", "host", "x-request-id"})
"""Headers that say who is calling, and are the batch's for all of its requests."""


def is_batch(request: Request) -> bool:
    """Whether a request is a batch of others."""
    if request.method != "POST" or request.path.rstrip("/") != REST_PREFIX:
        return False
    return media_type(request.headers.get("content-type", "")) == MEDIA_TYPE


def read(request: Request) -> tuple[Request, ...]:
    """Return the requests of a batch.

    :raises ApiError: PGRST102 (400), the body is no batch; ``index`` says of which request.
    """
    try:
        document = rawjson.members(request.body.decode())
        listed = (
            rawjson.elements(document["requests"]) if document and document.keys() == {"requests"} else None
        )
    except NO_JSON:
        raise _unreadable() from None
    if listed is None:
        raise _bad('The body of a batch is no object with the member "requests" alone, a list')
    if not 0 < len(listed) <= MOST:
        raise _bad(f"A batch has 1 to {MOST} requests, and not {len(listed)}")
    inherited = {
        name: value
        for name, value in request.headers.items()
        if name not in _OWN and not name.startswith("content-")
    }
    return tuple(_each(request, inherited, index, text) for index, text in enumerate(listed))


def _each(batch: Request, inherited: dict[str, str], index: int, text: str) -> Request:
    try:
        return _request(batch, inherited, text)
    except ApiError as refused:
        error = refused
    except NO_JSON:
        # What was read as a part of the whole may be nested too deeply to be read from here.
        error = _unreadable()
    error.index = index
    raise error


def _request(batch: Request, inherited: dict[str, str], text: str) -> Request:
    given = rawjson.members(text)
    if given is None or not {"method", "path"} <= given.keys() <= {"method", "path", "headers", "body"}:
        raise _bad('A request has the members "method" and "path", and may have "headers" and "body"')
    method, target = json.loads(given["method"]), json.loads(given["path"])
    if method not in _METHODS:
        raise _bad(f"A request's method is one of {', '.join(_METHODS)}")
    if not isinstance(target, str) or not target.startswith("/") or not _is_text(target):
        raise _bad('A request\'s path begins with "/", such as "/blog?id=eq.1"')
    if len(target) > LONGEST_TARGET:
        raise _bad(f"A request's path has at most {LONGEST_TARGET} characters")
    path, _, query = target.removeprefix(REST_PREFIX).partition("?")
    path = querystring.path(path)
    if not path.strip("/"):
        raise _bad("A request of a batch is about a table or a function")
    headers = {**inherited, **_headers(given.get("headers", "{}"))}
    if any(part.strip().startswith("tx=") for part in headers.get("prefer", "").split(",")):
        raise _bad("Prefer: tx is for the batch as a whole")
    body = _body(given.get("body"), headers)
    return replace(batch, method=method, path=REST_PREFIX + path, query=query, headers=headers, body=body)


def _headers(text: str) -> dict[str, str]:
    headers = json.loads(text)
    if not isinstance(headers, dict) or not all(
        isinstance(value, str) and _is_text(name + value) for name, value in headers.items()
    ):
        raise _bad("A request's headers are an object of texts")
    named = {name.lower(): value for name, value in headers.items()}
    foreign = sorted(_CALLERS & named.keys())
    if foreign:
        raise _bad(f"The header {foreign[0]} is the batch's for all of its requests")
    return named


def _body(text: str | None, headers: dict[str, str]) -> bytes:
    """Return the body of a request: JSON as it stands, and what is no JSON as a text has it."""
    if text is None:
        return b""
    form = media_type(headers.setdefault("content-type", JSON))
    if _is_json(form):
        return text.encode("utf-8", "surrogatepass")
    value = json.loads(text)
    if not isinstance(value, str) or not _is_text(value):
        raise _bad(f"A body of the content type {form} is given as a text")
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
    return head[:-1].encode() + b',"body":' + _shown(reply.body, headers.get("Content-Type", "")) + b"}"


def _shown(body: bytes, content_type: str) -> bytes:
    """Return a body as JSON: itself, or a text; what is no text either as base64."""
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


def _is_text(value: str) -> bool:
    """Whether UTF-8 can hold a text: JSON can name half of a surrogate pair, and U+0000."""
    return "\0" not in value and not any("\ud800" <= sign <= "\udfff" for sign in value)


def _unreadable() -> ApiError:
    return _bad("The body of a batch is no valid JSON")


def _bad(message: str) -> ApiError:
    return ApiError(400, "PGRST102", message)
