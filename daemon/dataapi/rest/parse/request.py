"""Parses a request into one typed value: nothing after it reads the URL, the headers or the body; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dataapi.auth.caller import REST_PREFIX
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
    Payload,
    RowShape,
    read_objects,
    read_rows,
)
from dataapi.rest.parse.preferences import NO_PREFERENCES, Preferences, Resolution, read_preferences
from dataapi.rest.parse.query import QueryParameters, Selection, Values, grouped, parse_query
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


class CallShape(NamedTuple):
    """The form of the arguments of a call.

    :ivar names: the names of all arguments.
    :ivar media_type: of the body of a POST; None for a call by GET.
    :ivar has_slots: whether each argument has a slot, and is not a member of the body.
    :ivar many: whether the body is an array of objects.
    :ivar as_text: whether the members of the body are texts, even for JSON arguments.
    :ivar unequal: whether the objects of the body differ in their names, so that no names can be given; a
        function may still accept the whole body.
    """

    names: frozenset[str] = frozenset()
    media_type: str | None = None
    has_slots: bool = False
    many: bool = False
    as_text: bool = False
    unequal: bool = False

    @property
    def unparsed(self) -> bool:
        """Whether the body is of a type that has no names of arguments."""
        return self.media_type in UNPARSED


NO_QUERY = parse_query("")
NO_ARGUMENTS = CallShape()


class PlanInput(NamedTuple):
    """Everything that decides the plan of a request: a planner sees nothing else, and it is the cache key.

    :ivar target: the name of the table or function; "" for the root that is no function.
    :ivar is_call: whether the target is a function.
    :ivar is_root: whether the path is the root's, which the function of ``db-root-spec`` may answer.
    :ivar schema: the exposed schema that the request chose.
    :ivar accept: the ``Accept`` header, None without it.
    :ivar preferences: the client's, with 0 for the number of ``max-affected``, because it is a value.
    :ivar columns, conflict: the names in ``columns`` and ``on_conflict``, None without them.
    :ivar rows: the rows to write.
    :ivar call: the arguments of a call.
    """

    method: str
    target: str
    is_call: bool
    is_root: bool
    schema: str
    accept: str | None
    preferences: Preferences
    selection: Selection = NO_QUERY.selection
    columns: tuple[str, ...] | None = None
    conflict: tuple[str, ...] | None = None
    rows: RowShape = NO_ROWS.shape
    call: CallShape = NO_ARGUMENTS

    @property
    def reads(self) -> bool:
        return self.method in READING

    @property
    def by_replica(self) -> bool:
        """Whether a replica may answer."""
        return self.reads and self.preferences.consistency is None

    @property
    def size(self) -> int:
        """Characters of the parts that a client chooses."""
        names = (*self.rows.columns, *self.call.names, *(self.columns or ()), *(self.conflict or ()))
        return self.selection.size + len(self.accept or "") + sum(map(len, names))


class ApiRequest(NamedTuple):
    """A REST request as typed values.

    :ivar values: those that are bound to the plan's statements.
    :ivar canonical: the canonical query string, for ``Content-Location``; None if there is no such header.
    :ivar profile: the header that names the schema in the response, where several are exposed.
    :ivar openapi: the version of OpenAPI that a request of the root names.
    """

    input: PlanInput
    preferences: Preferences
    values: Values
    canonical: str | None = None
    profile: tuple[tuple[str, str], ...] = ()
    openapi: str | None = None


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
    query, values, openapi = NO_QUERY, NO_QUERY.values, None
    rows, call = NO_ROWS.shape, NO_ARGUMENTS
    if not target:
        openapi = dict(querystring.lenient_pairs(request.query)).get("openapi") or None
    elif method in (_CALL_METHODS if is_call else _TABLE_METHODS):
        # As HTTP demands, ranges are only for GET.
        header_range = headers.get("range") if method == "GET" else None
        query = parse_query(request.query, header_range, is_call=is_call, reads=reads)
        values = query.values
        if is_call:
            call, values = _call(request, query)
        elif not reads:
            payload = NO_ROWS if method == "DELETE" else _rows(request, query, preferences)
            rows, values = payload.shape, values._replace(body=payload.text, objects=payload.objects)
    decisive = preferences
    if preferences.max_affected is not None:
        values = values._replace(maximum=preferences.maximum)
        decisive = preferences._replace(max_affected=0)
    profile = (("Content-Profile", schema),) if len(project.db_schemas) > 1 else ()
    plan_input = PlanInput(
        method,
        target,
        is_call,
        is_root,
        schema,
        headers.get("accept"),
        decisive,
        query.selection,
        query.columns,
        query.conflict,
        rows,
        call,
    )
    return ApiRequest(plan_input, preferences, values, query.canonical, profile, openapi)


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


def _rows(request: Request, query: QueryParameters, preferences: Preferences) -> Payload:
    content_type = request.headers.get("content-type")
    if request.method == "PATCH" and preferences.resolution is Resolution.MATCH:
        return read_objects(request.body, content_type)
    if request.method != "PUT":
        return read_rows(request.body, content_type, query.columns)
    if query.windowed:
        message = "limit/offset querystring parameters are not allowed for PUT"
        raise ApiError(400, "PGRST114", message)
    return read_rows(request.body, content_type, None)


def _call(request: Request, query: QueryParameters) -> tuple[CallShape, Values]:
    """Return the form of the arguments of a call, and the values of the request."""
    values = query.values
    if request.method != "POST":
        return CallShape(frozenset(values.arguments), has_slots=True), values
    body, form = request.body, media_type(request.headers.get("content-type") or JSON)
    if form == JSON:
        text = _text(body)
        return _members(text, query.columns), values._replace(body=text if text.strip() else "{}")
    if form == BINARY:
        return CallShape(media_type=form), values._replace(body=rf"\x{body.hex()}")
    if form in WHOLE_BODY:
        return CallShape(media_type=form), values._replace(body=_text(body))
    if form == FORM:
        arguments = grouped(querystring.pairs(_text(body)))
        shape = CallShape(frozenset(arguments), form, has_slots=True)
        return shape, values._replace(arguments=arguments)
    read, text, _ = read_rows(body, form, query.columns)
    shape = CallShape(frozenset(read.columns), form, many=read.many, as_text=read.as_text)
    return shape, values._replace(body=text)


def _members(text: str, columns: tuple[str, ...] | None) -> CallShape:
    """Return the form of the arguments in a JSON body; an empty one has none."""
    if not text.strip():
        return CallShape(frozenset(columns or ()), JSON)
    try:
        read = read_rows(text.encode(), JSON, columns).shape
    except ApiError as error:
        if error.message != UNEQUAL_KEYS:
            raise
        return CallShape(frozenset(), JSON, many=True, unequal=True)
    return CallShape(frozenset(read.columns), JSON, many=read.many)


def _text(body: bytes) -> str:
    if b"\0" in body:
        raise ApiError(400, "22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        byte = f"0x{body[error.start]:02x}"
        raise ApiError(400, "22021", f'invalid byte sequence for encoding "UTF8": {byte}') from None
