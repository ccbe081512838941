"""GraphQL over HTTP: reads a request from a message and writes a response to one.

Statuses are those that the ``graphql-http`` audits ask for (docs/reference/graphql.md, HTTP).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from graphql import GraphQLError

from dataapi.http import query_string as querystring
from dataapi.http.errors import ApiError
from dataapi.http.headers import CALLER_VARY, parse_media_type, parse_ranges
from dataapi.http.messages import Reply, Request
from dataapi.http.strict_json import DECODER, InvalidConstant, unstorable_at


class GraphQLRequest(NamedTuple):
    """The members of a GraphQL-over-HTTP request, their JSON types already checked.

    :ivar query: the text of the document, None when it is named by one of the last two members.
    :ivar extensions: ``explain`` asks for PostgreSQL's plans of the statements, ``cost`` for how many rows
        the operation may touch, ``consistency`` may keep a query from replicas; unknown ones are ignored.
    :ivar read_only: the request came by GET, so that only queries may run.
    :ivar document_id: the id of a persisted document.
    :ivar persisted_hash: the hash of one, as Apollo sends it in ``extensions.persistedQuery``.
    :ivar by_events: the answer can be followed by others, so that subscriptions may run.
    """

    query: str | None
    operation_name: str | None = None
    variables: Mapping[str, Any] | None = None
    extensions: Mapping[str, Any] | None = None
    read_only: bool = False
    document_id: str | None = None
    persisted_hash: str | None = None
    by_events: bool = False


class Stage(Enum):
    """How far an operation came, which decides the HTTP status (docs/reference/graphql.md, HTTP)."""

    DOCUMENT = "document"  # there is no such document, or it may not run
    PARSE = "parse"
    VALIDATION = "validation"
    VARIABLES = "variables"
    METHOD = "method"  # a mutation by GET: 405 with Allow: POST
    EXECUTION = "execution"


class RequestRejected(Exception):
    """A request that is refused before anything runs."""

    def __init__(
        self, stage: Stage, *errors: GraphQLError | str, extensions: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        super().__init__(errors)
        self.stage = stage
        self.extensions = extensions
        self.errors = tuple(GraphQLError(each) if isinstance(each, str) else each for each in errors)


class GraphQLResponse(NamedTuple):
    """The engine's answer.

    :ivar data: the JSON text of ``data`` (``null`` when an error reached the root), or
        None when the operation was never executed and the member is absent.
    :ivar errors: formatted errors: ``message``, ``locations``, ``path``, ``extensions``.
    :ivar extensions: the response's ``extensions`` member, left out when empty.
    :ivar may_change: whether the operation is a subscription, which has other answers later.
    """

    stage: Stage
    data: str | None
    errors: tuple[Mapping[str, Any], ...] = ()
    extensions: Mapping[str, Any] = MappingProxyType({})
    may_change: bool = False


GRAPHQL_RESPONSE = "application/graphql-response+json; charset=utf-8"
JSON = "application/json; charset=utf-8"

_OFFERS = (JSON, GRAPHQL_RESPONSE)
_VARY = ("Vary", f"Accept, {CALLER_VARY}")
_BAD_REQUEST = "BAD_REQUEST"
MEMBERS = {"query": str, "documentId": str, "operationName": str, "variables": dict, "extensions": dict}
"""The members of a request, each with the type that its JSON value has."""
# Each of these can say which document is meant.
_DOCUMENT_MEMBERS = ("query", "documentId", "extensions")


def read(request: Request) -> GraphQLRequest:
    """Read a GraphQL request: a JSON body by POST, or the query string by GET.

    :raises ApiError: 400, 406 or 415; the message names the member and the place.
    """
    if _chosen(request.headers.get("accept")) is None:
        raise ApiError(
            406,
            "NOT_ACCEPTABLE",
            "None of the media types in the Accept header can be sent; "
            "expected application/graphql-response+json or application/json",
        )
    if request.method == "POST":
        _check_content_type(request.headers.get("content-type"))
        return _request(_object(request.body), read_only=False)
    return _request(_from_query(request.query), read_only=True)


def respond(answer: GraphQLResponse, request: Request) -> Reply:
    """Return the reply with an answer in the media type that the client accepts."""
    media_type = _chosen(request.headers.get("accept")) or JSON
    headers: tuple[tuple[str, str], ...] = (("Content-Type", media_type),)
    if request.method != "POST":
        headers = (*headers, _VARY)
    if answer.errors or answer.extensions:
        return _with_errors(answer, headers, media_type)
    return Reply(200, headers, f'{{"data":{answer.data}}}'.encode())


def _with_errors(answer: GraphQLResponse, headers: tuple[tuple[str, str], ...], media_type: str) -> Reply:
    status = 200
    if answer.stage is Stage.METHOD:
        status, headers = 405, (*headers, ("Allow", "POST"))
    elif answer.stage is not Stage.EXECUTION and media_type is GRAPHQL_RESPONSE:
        status = 400
    return Reply(status, headers, _body(answer), code=_code(answer) if answer.errors else "")


def _code(answer: GraphQLResponse) -> str:
    """Return the code of the first error, that of the stage for one of GraphQL's own."""
    return str(answer.errors[0].get("extensions", {}).get("code") or f"GRAPHQL_{answer.stage.name}")


def media_type_of(request: Request) -> str:
    """Return the media type of the answer; ``application/json`` also when nothing is acceptable."""
    return _chosen(request.headers.get("accept")) or JSON


def wants_page(request: Request) -> bool:
    """Whether a browser opens the URL, by GET and without a document, so that it is sent a page."""
    return (
        request.method in ("GET", "HEAD")
        and "text/html" in request.headers.get("accept", "")
        and not any(name in _DOCUMENT_MEMBERS for name, _ in querystring.lenient_pairs(request.query))
    )


def _body(answer: GraphQLResponse) -> bytes:
    members = []
    if answer.errors:
        members.append('"errors":' + json.dumps(answer.errors, separators=(",", ":")))
    if answer.data is not None:
        members.append('"data":' + answer.data)
    if answer.extensions:
        members.append('"extensions":' + json.dumps(answer.extensions, separators=(",", ":")))
    return ("{" + ",".join(members) + "}").encode()


@lru_cache(maxsize=256)
def _chosen(accept: str | None) -> str | None:
    """Return the best of our media types for an ``Accept`` header, or None if it takes neither.

    The quality of a type is that of the most specific range that names it (RFC 9110
    section 12.5.1); among equals the one that is named first wins.
    """
    if accept is None or not accept.strip():
        return JSON
    ranges = parse_ranges(accept)

    def rank(offer: str) -> tuple[float, int]:
        for pattern in (offer.partition(";")[0], "application/*", "*/*"):
            found = [(each.weight, -at) for at, each in enumerate(ranges) if each.name == pattern]
            if found:
                return max(found)
        return 0, 0

    best = max(_OFFERS, key=rank)
    return best if rank(best)[0] > 0 else None


@lru_cache(maxsize=64)
def _check_content_type(content_type: str | None) -> None:
    sent = parse_media_type(content_type or "")
    if sent.name != "application/json":
        problem = f"{sent.name[:100]} is not supported" if sent.name else "The Content-Type header is missing"
        raise ApiError(415, "UNSUPPORTED_MEDIA_TYPE", f"{problem}; expected application/json")
    charset = sent.parameter("charset")
    if charset is not None and charset.lower() not in ("utf-8", "utf8"):
        message = f"The charset {charset[:100]} is not supported; expected utf-8"
        raise ApiError(415, "UNSUPPORTED_MEDIA_TYPE", message)


def _object(body: bytes) -> dict[str, Any]:
    if not body:
        _refuse("The request body is empty; expected a JSON object with the member query")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        _refuse(f"The request body is not UTF-8: byte {error.start + 1} cannot be decoded")
    try:
        found = DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        _refuse_json(error, "The request body")
    if isinstance(found, list):
        _refuse("The request body is a list: batches are not supported, send one operation per request")
    if not isinstance(found, dict):
        _refuse(f"The request body must be a JSON object, not {_kind(found)}")
    if "\\u" in text:
        _check_text(found, "")
    return found


def _from_query(query: str) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in querystring.pairs(query):
        if name in ("query", "documentId"):
            members[name] = value
        elif name == "operationName":
            members[name] = value or None  # empty is the same as absent
        elif name in ("variables", "extensions") and value:
            try:
                members[name] = DECODER.decode(value)
            except (ValueError, RecursionError) as error:
                _refuse_json(error, f"The parameter {name}")
            _check_text(members[name], name)
    return members


def _request(members: dict[str, Any], *, read_only: bool) -> GraphQLRequest:
    for name, value in members.items():
        if value is None or isinstance(value, MEMBERS.get(name, object)):
            continue
        if MEMBERS[name] is str:
            _refuse(f"{name} must be a string, not {_kind(value)}")
        _refuse(f"{name} must be an object", f"{name} is {_kind(value)}.")
    query, document_id = members.get("query"), members.get("documentId")
    extensions = members.get("extensions")
    if query is not None and document_id is not None:
        _refuse("query and documentId are both there; expected one of them")
    persisted_hash: str | None = None
    if query is None and document_id is None:
        match extensions:
            case {"persistedQuery": {"sha256Hash": str(persisted_hash)}}:  # as Apollo's clients send it
                pass
            case _:
                _refuse("query is missing; expected the text of a GraphQL document, or the documentId of one")
    return GraphQLRequest(
        query,
        members.get("operationName"),
        members.get("variables"),
        extensions,
        read_only,
        document_id,
        persisted_hash,
    )


def _refuse_json(error: ValueError | RecursionError, name: str) -> NoReturn:
    match error:
        case json.JSONDecodeError(msg=message, lineno=line, colno=column):
            _refuse(f"{name} is not valid JSON: {message} at line {line} column {column}")
        case RecursionError():
            _refuse(f"{name} is nested too deeply")
        case InvalidConstant():
            _refuse(f"{name} is not valid JSON: {error}")
    _refuse(f"{name} holds a number of too many digits")  # as Python reads some thousand at most


def _check_text(found: Any, place: str) -> None:
    """Refuse what JSON can write and a database's UTF-8 text cannot hold."""
    pending = [(place, found)]
    while pending:
        where, value = pending.pop()
        if isinstance(value, str):
            _check_string(where, value)
        elif isinstance(value, dict):
            for name, inner in value.items():
                _check_string(where or "a member's name", name)
                pending.append((f"{where}.{name}" if where else name, inner))
        elif isinstance(value, list):
            pending.extend((f"{where}[{number}]", inner) for number, inner in enumerate(value))


def _check_string(where: str, value: str) -> None:
    found = unstorable_at(value)
    if found is not None and value[found] == "\0":
        _refuse(f"{where} holds the character U+0000, which text cannot hold")
    if found is not None:
        _refuse(f"{where} holds half of a surrogate pair at character {found + 1}")


_KINDS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def _kind(value: object) -> str:
    return _KINDS[type(value)]


def _refuse(message: str, details: str | None = None) -> NoReturn:
    raise ApiError(400, _BAD_REQUEST, message, details=details)
