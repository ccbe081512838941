"""GraphQL over HTTP: reading requests and writing responses.

The ``graphql-http`` audits define the status codes (docs/reference/graphql.md, HTTP).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from dataapi.http import query_string as querystring
from dataapi.http.errors import ApiError
from dataapi.http.headers import CALLER_VARY, parse_media_type, parse_ranges
from dataapi.http.messages import Reply, Request
from dataapi.http.strict_json import DECODER, InvalidConstant, unstorable_at

if TYPE_CHECKING:
    from graphql import GraphQLError


class GraphQLRequest(NamedTuple):
    """A GraphQL-over-HTTP request with members of the right JSON types.

    :ivar query: the text of the document, None if an id or a hash identifies it.
    :ivar extensions: ``explain`` requests PostgreSQL's plans, ``cost`` requests the number of rows that the
        operation may touch, and ``consistency`` requests the primary. Other members are ignored.
    :ivar read_only: whether only queries may run, because the method is GET.
    :ivar persisted_hash: the hash in Apollo's ``extensions.persistedQuery``.
    :ivar by_events: whether further results can be sent, as subscriptions require.
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
    """The stage that an operation reached. It determines the status (docs/reference/graphql.md, HTTP)."""

    DOCUMENT = "document"  # an unknown document, or one that is not allowed to run
    PARSE = "parse"
    VALIDATION = "validation"
    VARIABLES = "variables"
    METHOD = "method"  # a mutation by GET: 405 with Allow: POST
    EXECUTION = "execution"


class RequestRejected(Exception):
    """Raised for a request that is rejected before it runs."""

    def __init__(
        self, stage: Stage, *errors: GraphQLError | str, extensions: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        from graphql import GraphQLError  # noqa: PLC0415 - other protocols use this module without it

        super().__init__(errors)
        self.stage = stage
        self.extensions = extensions
        self.errors = tuple(GraphQLError(each) if isinstance(each, str) else each for each in errors)


class GraphQLResponse(NamedTuple):
    """The engine's response.

    :ivar data: the JSON text of ``data``, ``null`` if an error reached the root, None if the operation did
        not run.
    :ivar errors: formatted errors: ``message``, ``locations``, ``path``, ``extensions``.
    :ivar extensions: the ``extensions`` member, omitted if empty.
    :ivar may_change: whether the operation is a subscription. Further results are then sent.
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
# Members that may identify the document.
_DOCUMENT_MEMBERS = ("query", "documentId", "extensions")


def read(request: Request) -> GraphQLRequest:
    """Return the GraphQL request in the JSON body of a POST or the query string of a GET.

    :raises ApiError: 400, 406 or 415. The message names the invalid member.
    """
    if _acceptable_type(request.headers.get("accept")) is None:
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


def respond(response: GraphQLResponse, request: Request) -> Reply:
    media_type = _acceptable_type(request.headers.get("accept")) or JSON
    headers: tuple[tuple[str, str], ...] = (("Content-Type", media_type),)
    if request.method != "POST":
        headers = (*headers, _VARY)
    if response.errors or response.extensions:
        return _with_errors(response, headers, media_type)
    return Reply(200, headers, f'{{"data":{response.data}}}'.encode())


def _with_errors(response: GraphQLResponse, headers: tuple[tuple[str, str], ...], media_type: str) -> Reply:
    status = 200
    if response.stage is Stage.METHOD:
        status, headers = 405, (*headers, ("Allow", "POST"))
    elif response.stage is not Stage.EXECUTION and media_type is GRAPHQL_RESPONSE:
        status = 400
    return Reply(status, headers, _body(response), code=_code(response) if response.errors else "")


def _code(response: GraphQLResponse) -> str:
    return str(response.errors[0].get("extensions", {}).get("code") or f"GRAPHQL_{response.stage.name}")


def media_type_of(request: Request) -> str:
    return _acceptable_type(request.headers.get("accept")) or JSON


def wants_page(request: Request) -> bool:
    """Whether a browser opens the URL: a GET or HEAD for HTML, without a document in the query string."""
    return (
        request.method in ("GET", "HEAD")
        and "text/html" in request.headers.get("accept", "")
        and not any(name in _DOCUMENT_MEMBERS for name, _ in querystring.lenient_pairs(request.query))
    )


def _body(response: GraphQLResponse) -> bytes:
    members = []
    if response.errors:
        members.append('"errors":' + json.dumps(response.errors, separators=(",", ":")))
    if response.data is not None:
        members.append('"data":' + response.data)
    if response.extensions:
        members.append('"extensions":' + json.dumps(response.extensions, separators=(",", ":")))
    return ("{" + ",".join(members) + "}").encode()


@lru_cache(maxsize=256)
def _acceptable_type(accept: str | None) -> str | None:
    """Return the better of the two ``_OFFERS`` for an ``Accept`` header, None if neither is acceptable.

    The most specific matching range determines the weight of an offer (RFC 9110, section 12.5.1). If the
    weights are equal, the offer with the earlier range wins.
    """
    if accept is None or not accept.strip():
        return JSON
    ranges = parse_ranges(accept)

    def rank(offer: str) -> tuple[float, int]:
        for pattern in (offer.partition(";")[0], "application/*", "*/*"):
            matches = [(each.weight, -at) for at, each in enumerate(ranges) if each.name == pattern]
            if matches:
                return max(matches)
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
        _reject("The request body is empty; expected a JSON object with the member query")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        _reject(f"The request body is not UTF-8: byte {error.start + 1} cannot be decoded")
    try:
        body_json = DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        _reject_json(error, "The request body")
    if isinstance(body_json, list):
        _reject("The request body is a list: batches are not supported, send one operation per request")
    if not isinstance(body_json, dict):
        _reject(f"The request body must be a JSON object, not {_kind(body_json)}")
    if "\\u" in text:
        _check_text(body_json, "")
    return body_json


def _from_query(query: str) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in querystring.pairs(query):
        if name in ("query", "documentId"):
            members[name] = value
        elif name == "operationName":
            members[name] = value or None  # an empty value means that the parameter is absent
        elif name in ("variables", "extensions") and value:
            try:
                members[name] = DECODER.decode(value)
            except (ValueError, RecursionError) as error:
                _reject_json(error, f"The parameter {name}")
            _check_text(members[name], name)
    return members


def _request(members: dict[str, Any], *, read_only: bool) -> GraphQLRequest:
    for name, value in members.items():
        if value is None or isinstance(value, MEMBERS.get(name, object)):
            continue
        if MEMBERS[name] is str:
            _reject(f"{name} must be a string, not {_kind(value)}")
        _reject(f"{name} must be an object", f"{name} is {_kind(value)}.")
    query, document_id = members.get("query"), members.get("documentId")
    extensions = members.get("extensions")
    if query is not None and document_id is not None:
        _reject("query and documentId are both present; expected one of them")
    persisted_hash: str | None = None
    if query is None and document_id is None:
        match extensions:
            case {"persistedQuery": {"sha256Hash": str(persisted_hash)}}:  # sent by Apollo's clients
                pass
            case _:
                _reject("query is missing; expected the text of a GraphQL document, or a documentId")
    return GraphQLRequest(
        query,
        members.get("operationName"),
        members.get("variables"),
        extensions,
        read_only,
        document_id,
        persisted_hash,
    )


def _reject_json(error: ValueError | RecursionError, name: str) -> NoReturn:
    match error:
        case json.JSONDecodeError(msg=message, lineno=line, colno=column):
            _reject(f"{name} is not valid JSON: {message} at line {line} column {column}")
        case RecursionError():
            _reject(f"{name} is nested too deeply")
        case InvalidConstant():
            _reject(f"{name} is not valid JSON: {error}")
    _reject(f"{name} contains a number with too many digits")  # Python limits int() to 4,300 digits


def _check_text(value: Any, path: str) -> None:
    """Raise ApiError for text that JSON can represent and PostgreSQL cannot store."""
    pending = [(path, value)]
    while pending:
        at, inner = pending.pop()
        if isinstance(inner, str):
            _check_string(at, inner)
        elif isinstance(inner, dict):
            for name, member in inner.items():
                _check_string(at or "a member's name", name)
                pending.append((f"{at}.{name}" if at else name, member))
        elif isinstance(inner, list):
            pending.extend((f"{at}[{number}]", item) for number, item in enumerate(inner))


def _check_string(path: str, value: str) -> None:
    index = unstorable_at(value)
    if index is not None and value[index] == "\0":
        _reject(f"{path} contains the character U+0000, which PostgreSQL cannot store")
    if index is not None:
        _reject(f"{path} contains half of a surrogate pair at character {index + 1}")


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


def _reject(message: str, details: str | None = None) -> NoReturn:
    raise ApiError(400, _BAD_REQUEST, message, details=details)
