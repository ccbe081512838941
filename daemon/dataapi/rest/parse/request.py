"""Parses a request into one typed value: nothing after it reads the URL, the headers or the body; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from dataapi.auth.caller import REST_PREFIX
from dataapi.catalog.model import Function
from dataapi.http import query_string as querystring
from dataapi.http.errors import ApiError
from dataapi.http.headers import media_type
from dataapi.http.messages import Request
from dataapi.rest.parse.body import (
    BINARY,
    FORM,
    JSON,
    NO_ROWS,
    UNEQUAL_KEYS,
    Objects,
    Payload,
    read_objects,
    read_rows,
)
from dataapi.rest.parse.preferences import NO_PREFERENCES, Preferences, Resolution, read_preferences
from dataapi.rest.parse.query import Pairs, QueryParameters, parse_query
from dataapi.settings import Project

FUNCTIONS = "rpc/"
"""The beginning of the paths of functions."""

READING = ("GET", "HEAD")
"""The methods that only read."""
_WRITING = ("POST", "PATCH", "PUT", "DELETE")
CONDITIONS = frozenset({"if-match", "if-none-match", "if-unmodified-since"})
"""Headers that make a write conditional (RFC 9110 section 13.1)."""
_CALL_METHODS = (*READING, "POST")
_TABLE_METHODS = (*_CALL_METHODS, "PATCH", "PUT", "DELETE")

WHOLE_BODY = {
    "application/json": ("json", "jsonb"),
    "text/plain": ("text",),
    "text/xml": ("xml",),
    "application/octet-stream": ("bytea",),
}
"""Types of the single nameless argument that takes a body of a media type as it is."""
UNPARSED = ("text/plain", "text/xml", "application/octet-stream")


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The arguments of a call.

    :ivar names: the names of all arguments.
    :ivar media_type: of the body of a POST; None for a call by GET.
    :ivar pairs: names and values, in order, where they are not members of ``body``.
    :ivar body: the text of the body.
    :ivar as_text: whether the members of ``body`` are texts, even for JSON arguments.
    :ivar many: whether that is an array of objects.
    :ivar refusal: why the body has no named arguments; a function may still accept the whole body.
    """

    names: frozenset[str] = frozenset()
    media_type: str | None = None
    pairs: Pairs | None = None
    body: str = ""
    many: bool = False
    refusal: ApiError | None = None
    as_text: bool = False

    @property
    def unparsed(self) -> bool:
        """Whether the body is of a type that has no names of arguments."""
        return self.media_type in UNPARSED


NO_QUERY = parse_query("")
NO_ARGUMENTS = CallArguments()


class ApiRequest(NamedTuple):
    """A REST request as typed values.

    :ivar target: the name of the table or function; "" for the root that is no function.
    :ivar is_call: whether the target is a function.
    :ivar is_root: whether the path is the root's, which the function of ``db-root-spec`` may answer.
    :ivar schema: the exposed schema that the request chose.
    :ivar profile: the header that names the schema in the answer, where several are exposed.
    :ivar accept: the ``Accept`` header, None without it.
    :ivar rows: the rows to write.
    :ivar objects: for ``resolution=match``, the objects of the body instead.
    :ivar arguments: those of a call.
    :ivar openapi: the version of OpenAPI that a request of the root names.
    """

    method: str
    target: str
    is_call: bool
    is_root: bool
    schema: str
    profile: tuple[tuple[str, str], ...]
    accept: str | None
    preferences: Preferences
    query: QueryParameters = NO_QUERY
    rows: Payload = NO_ROWS
    objects: Objects | None = None
    arguments: CallArguments = NO_ARGUMENTS
    openapi: str | None = None

    @property
    def reads(self) -> bool:
        return self.method in READING

    @property
    def by_replica(self) -> bool:
        """Whether a replica may answer."""
        return self.reads and self.preferences.consistency is None

    def with_filters_as_arguments(self, candidates: Iterable[Function]) -> ApiRequest:
        """Return the call with filters as arguments where a function has arguments of their names.

        A text may look like a filter by chance; this is for calls that match no function otherwise.
        """
        known = {argument.name for each in candidates for argument in each.arguments}
        filters = [pair for pair in self.query.filter_texts if pair[0] in known]
        names = frozenset([name for name, _ in filters])
        pairs = (*self.query.arguments, *filters)
        arguments = replace(self.arguments, names=self.arguments.names | names, pairs=pairs)
        return self._replace(arguments=arguments, query=self.query.without_filters(names))


def parse_request(request: Request, project: Project, timezones: frozenset[str]) -> ApiRequest:
    """Parse a request; of a method that its target does not have, neither the query string nor the body.

    :param timezones: the names of the time zones that the server knows.
    :raises ApiError: PGRST106 (406) and PGRST125 (404) for schema and path, PGRST100, PGRST102 and PGRST114
        (400) and PGRST103 (416) for what cannot be understood, PGRST127 (412) for a conditional write.
    """
    method, headers = request.method, request.headers
    reads = method in READING
    if method in _WRITING and not CONDITIONS.isdisjoint(headers):
        raise _unconditional(headers)
    schema = schema_of(request, project.db_schemas)
    target, is_call = target_of(request.path)
    is_root = not target
    prefer, preferences = headers.get("prefer"), NO_PREFERENCES
    if prefer is not None:
        preferences = read_preferences(prefer, timezones, overrides_end=project.db_tx_end.allows_override)
    if is_root and project.db_root_spec is not None:
        own_schema, _, target = project.db_root_spec.rpartition(".")
        schema, is_call = own_schema or schema, True
    query, openapi = NO_QUERY, None
    rows, objects, arguments = NO_ROWS, None, NO_ARGUMENTS
    if not target:
        openapi = dict(querystring.lenient_pairs(request.query)).get("openapi") or None
    elif method in (_CALL_METHODS if is_call else _TABLE_METHODS):
        # As HTTP demands, ranges are only for GET.
        header_range = headers.get("range") if method == "GET" else None
        query = parse_query(request.query, header_range, is_call=is_call, reads=reads)
        if is_call:
            arguments = _arguments(request, query)
        elif method == "PATCH" and preferences.resolution is Resolution.MATCH:
            objects = read_objects(request.body, headers.get("content-type"))
        elif not reads and method != "DELETE":
            if method == "PUT" and query.windowed:
                message = "limit/offset querystring parameters are not allowed for PUT"
                raise ApiError(400, "PGRST114", message)
            columns = None if method == "PUT" else query.columns
            rows = read_rows(request.body, headers.get("content-type"), columns)
    profile = (("Content-Profile", schema),) if len(project.db_schemas) > 1 else ()
    return ApiRequest(
        method,
        target,
        is_call,
        is_root,
        schema,
        profile,
        headers.get("accept"),
        preferences,
        query,
        rows,
        objects,
        arguments,
        openapi,
    )


def _unconditional(headers: Mapping[str, str]) -> ApiError:
    """Return the error for a write that a client makes conditional: rows have no entity tags yet.

    412, because clients and proxies take 501 for a failure of the server.
    """
    [name, *_] = sorted(CONDITIONS.intersection(headers))
    return ApiError(
        412,
        "PGRST127",
        "Feature not implemented",
        details=f"Writes with the header {name.title()} are not implemented. Nothing was changed.",
        hint="Filter by a column that changes with the row, such as a version or a modification time.",
    )


def target_of(path: str) -> tuple[str, bool]:
    """Return the table or function that a path names, and whether it is a function; "" for the root.

    :raises ApiError: PGRST125 (404), the path can be neither.
    """
    name = path[len(REST_PREFIX) :].removeprefix("/") if path.startswith(REST_PREFIX) else path
    is_call = name.startswith(FUNCTIONS)
    name = name.removeprefix(FUNCTIONS)
    if "/" in name or (is_call and not name):
        raise ApiError(404, "PGRST125", "Invalid path specified in request URL")
    return querystring.segment(name) if "%" in name else name, is_call


def schema_of(request: Request, schemas: tuple[str, ...]) -> str:
    """Return the exposed schema that a request names, the first one when it names none.

    :raises ApiError: PGRST106 (406), the schema is not exposed.
    """
    header = "accept-profile" if request.method in ("GET", "HEAD", "OPTIONS") else "content-profile"
    schema = request.headers.get(header, schemas[0])
    if schema not in schemas:
        hint = f"Only the following schemas are exposed: {', '.join(schemas)}"
        raise ApiError(406, "PGRST106", f"Invalid schema: {schema}", hint=hint)
    return schema


# ---------------------------------------------------------------- bodies


def _arguments(request: Request, query: QueryParameters) -> CallArguments:
    if request.method != "POST":
        return CallArguments(frozenset([name for name, _ in query.arguments]), pairs=query.arguments)
    body, form = request.body, media_type(request.headers.get("content-type") or JSON)
    if form == JSON:
        return _members(_text(body), query.columns)
    if form == BINARY:
        return CallArguments(media_type=form, body=rf"\x{body.hex()}")
    if form in WHOLE_BODY:
        return CallArguments(media_type=form, body=_text(body))
    if form == FORM:
        fields = tuple(querystring.pairs(_text(body)))
        return CallArguments(frozenset([name for name, _ in fields]), form, fields)
    read = read_rows(body, form, query.columns)
    return CallArguments(frozenset(read.columns), form, None, read.text, read.many, as_text=read.as_text)


def _members(text: str, columns: tuple[str, ...] | None) -> CallArguments:
    """Return the arguments in a JSON body, by the names of its members; an empty one has none."""
    if not text.strip():
        return CallArguments(frozenset(columns or ()), JSON, None, "{}")
    try:
        read = read_rows(text.encode(), JSON, columns)
    except ApiError as error:
        if error.message != UNEQUAL_KEYS:
            raise
        return CallArguments(frozenset(), JSON, None, text, True, error)
    return CallArguments(frozenset(read.columns), JSON, None, text, read.many)


def _text(body: bytes) -> str:
    if b"\0" in body:
        raise ApiError(400, "22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        byte = f"0x{body[error.start]:02x}"
        raise ApiError(400, "22021", f'invalid byte sequence for encoding "UTF8": {byte}') from None
