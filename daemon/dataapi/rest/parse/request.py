"""Parses a request into one typed value. Later stages do not read the URL, the headers or the body."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
from dataapi.rest.parse.preconditions import (
    MATCH,
    NONE_MATCH,
    UNMODIFIED,
    Compared,
    Preconditions,
    read_preconditions,
    unsupported_condition,
)
from dataapi.rest.parse.preferences import NO_PREFERENCES, Preferences, Resolution, read_preferences
from dataapi.rest.parse.query import QueryParameters, Selection, Values, grouped, parse_query
from dataapi.settings import NESTED_INSERTS, Project

if TYPE_CHECKING:
    from dataapi.rest.parse.nested import NestedBody

FUNCTIONS = "rpc/"

READ_METHODS = ("GET", "HEAD")
_WRITE_METHODS = ("POST", "PATCH", "PUT", "DELETE")
_CALL_METHODS = (*READ_METHODS, "POST")
_TABLE_METHODS = (*_CALL_METHODS, "PATCH", "PUT", "DELETE")

WHOLE_BODY = {
    "application/json": ("json", "jsonb"),
    "text/plain": ("text",),
    "text/xml": ("xml",),
    "application/octet-stream": ("bytea",),
}
"""Types of a single unnamed argument that accepts a whole body, by the body's media type."""
UNPARSED_TYPES = ("text/plain", "text/xml", "application/octet-stream")


class CallShape(NamedTuple):
    """The structure of a call's arguments, without values.

    :ivar media_type: media type of a POST's body, None for GET.
    :ivar has_slots: whether each argument has its own parameter, rather than being a member of the body.
    :ivar many: whether the body is an array of objects.
    :ivar as_text: whether the members of the body are text, even for JSON arguments.
    :ivar unequal: whether the body's objects have different members. ``names`` is then empty, but a function
        may still accept the whole body.
    """

    names: frozenset[str] = frozenset()
    media_type: str | None = None
    has_slots: bool = False
    many: bool = False
    as_text: bool = False
    unequal: bool = False

    @property
    def unparsed(self) -> bool:
        return self.media_type in UNPARSED_TYPES


NO_QUERY = parse_query("")
NO_ARGUMENTS = CallShape()


class PlanInput(NamedTuple):
    """Everything that determines the plan of a request: the planners' only input, and the cache key.

    :ivar target: name of the table or function, "" for the root unless a function handles it.
    :ivar is_root: whether the path is the root, which the function of ``db-root-spec`` may handle.
    :ivar preferences: the client's preferences. ``max_affected`` is 0 if set, because its value is bound and
        does not determine the plan.
    :ivar columns: names in ``columns``, None if absent.
    :ivar conflict: names in ``on_conflict``, None if absent.
    :ivar compared: property that the conditions of a write or HEAD compare, None without conditions.
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
    compared: Compared | None = None

    @property
    def reads(self) -> bool:
        return self.method in READ_METHODS

    @property
    def builds_tag(self) -> bool:
        """Whether a HEAD must build the body of the response to GET, for its entity tag.

        A HEAD with a count has no entity tag unless it is conditional, because clients use it to count large
        tables.
        """
        if self.compared is not None:
            return self.compared is Compared.CONTENT
        return self.preferences.count is None

    @property
    def by_replica(self) -> bool:
        return self.reads and self.preferences.consistency is None

    @property
    def size(self) -> int:
        names = (*self.rows.columns, *self.call.names, *(self.columns or ()), *(self.conflict or ()))
        return self.selection.size + len(self.accept or "") + sum(map(len, names))


class ApiRequest(NamedTuple):
    """A REST request as typed values.

    :ivar canonical: canonical query string for ``Content-Location``, None to omit the header.
    :ivar profile: header with the schema of the response, if several schemas are exposed.
    :ivar openapi: OpenAPI version in the query string of a request for the root.
    :ivar nested: body that may contain related rows. If set, ``input.rows`` is not known yet.
    :ivar preconditions: conditions on the current rows, None if there are none.
    """

    input: PlanInput
    preferences: Preferences
    values: Values
    canonical: str | None = None
    profile: tuple[tuple[str, str], ...] = ()
    openapi: str | None = None
    nested: NestedBody | None = None
    preconditions: Preconditions | None = None


def parse_request(request: Request, project: Project, timezones: frozenset[str]) -> ApiRequest:
    """Parse a request. The query string and body are ignored if the target does not support the method.

    :raises ApiError: PGRST106 (406) for an invalid schema; PGRST125 (404) for an invalid path; PGRST100,
        PGRST102, PGRST114 (400) or PGRST103 (416) for a syntax error or an invalid value; PGRST127 (412) for
        a precondition that cannot be checked.
    """
    method, headers = request.method, request.headers
    reads = method in READ_METHODS
    schema = schema_of(request, project.db_schemas)
    target, is_call = target_of(request.path)
    is_root = not target
    prefer, preferences = headers.get("prefer"), NO_PREFERENCES
    if prefer is not None:
        preferences = read_preferences(prefer, timezones, overrides_end=project.db_tx_end.allows_override)
    if is_root and project.db_root_spec is not None:
        own_schema, _, target = project.db_root_spec.rpartition(".")
        schema, is_call = own_schema or schema, True
    query, values, openapi, nested = NO_QUERY, NO_QUERY.values, None, None
    rows, call = NO_ROWS.shape, NO_ARGUMENTS
    if not target:
        openapi = dict(querystring.lenient_pairs(request.query)).get("openapi") or None
    elif method in (_CALL_METHODS if is_call else _TABLE_METHODS):
        # RFC 9110 section 14.2: Range applies only to GET.
        header_range = headers.get("range") if method == "GET" else None
        if header_range is not None and "if-range" in headers:
            # RFC 9110 section 13.1.5: the entity tag of the whole response is not known, so If-Range does not
            # match.
            header_range = None
        query_string = request.query
        if (
            method == "POST"
            and not is_call
            and NESTED_INSERTS in project.rest_features
            and request.context.nested_inserts
        ):
            from dataapi.rest.parse.nested import read_nested  # noqa: PLC0415 - only if configured

            query_string, nested = read_nested(request)
        query = parse_query(query_string, header_range, is_call=is_call, reads=reads)
        values = query.values
        if is_call:
            call, values = _call(request, query)
        elif not reads and nested is None:
            payload = NO_ROWS if method == "DELETE" else _rows(request, query, preferences)
            rows, values = payload.shape, values._replace(body=payload.text, objects=payload.objects)
    keyed_preferences = preferences
    if preferences.max_affected is not None:
        values = values._replace(maximum=preferences.maximum)
        keyed_preferences = preferences._replace(max_affected=0)
    profile = (("Content-Profile", schema),) if len(project.db_schemas) > 1 else ()
    plan_input = PlanInput(
        method,
        target,
        is_call,
        is_root,
        schema,
        headers.get("accept"),
        keyed_preferences,
        query.selection,
        query.columns,
        query.conflict,
        rows,
        call,
    )
    parsed = ApiRequest(plan_input, preferences, values, query.canonical, profile, openapi, nested)
    if NONE_MATCH in headers or MATCH in headers or UNMODIFIED in headers:
        return _conditional(request, parsed)
    return parsed


def _conditional(request: Request, parsed: ApiRequest) -> ApiRequest:
    headers, plan_input = request.headers, parsed.input
    if plan_input.method in _WRITE_METHODS:
        # RFC 9110 section 13.1.4: If-Match takes precedence over If-Unmodified-Since.
        if UNMODIFIED in headers and MATCH not in headers:
            details = "Rows have no modification time, so If-Unmodified-Since cannot be checked."
            raise unsupported_condition(details, "Send If-Match with the ETag from a response.")
        if plan_input.is_call or not plan_input.target:
            raise unsupported_condition("Only reads and writes of tables can be conditional.")
    preconditions = read_preconditions(headers)
    if preconditions is None or plan_input.method == "OPTIONS":
        return parsed
    if plan_input.method != "GET":
        plan_input = plan_input._replace(compared=preconditions.compared)
    return parsed._replace(input=plan_input, preconditions=preconditions)


def target_of(path: str) -> tuple[str, bool]:
    """Return the table or function that a path names, "" for the root, and whether it is a function.

    :raises ApiError: PGRST125 (404) if the path is invalid.
    """
    name = path[len(REST_PREFIX) :].removeprefix("/") if path.startswith(REST_PREFIX) else path
    is_call = name.startswith(FUNCTIONS)
    name = name.removeprefix(FUNCTIONS)
    if "/" in name or (is_call and not name):
        raise ApiError(404, "PGRST125", "Invalid path specified in request URL")
    return querystring.segment(name) if "%" in name else name, is_call


def schema_of(request: Request, schemas: tuple[str, ...]) -> str:
    """Return the exposed schema that a request selects (default: the first).

    :raises ApiError: PGRST106 (406) if the schema is not exposed.
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
    values = query.values
    if request.method != "POST":
        return CallShape(frozenset(values.arguments), has_slots=True), values
    body, body_type = request.body, media_type(request.headers.get("content-type") or JSON)
    if body_type == JSON:
        text = _text(body)
        return _members(text, query.columns), values._replace(body=text if text.strip() else "{}")
    if body_type == BINARY:
        return CallShape(media_type=body_type), values._replace(body=rf"\x{body.hex()}")
    if body_type in WHOLE_BODY:
        return CallShape(media_type=body_type), values._replace(body=_text(body))
    if body_type == FORM:
        arguments = grouped(querystring.pairs(_text(body)))
        shape = CallShape(frozenset(arguments), body_type, has_slots=True)
        return shape, values._replace(arguments=arguments)
    rows, text, _ = read_rows(body, body_type, query.columns)
    shape = CallShape(frozenset(rows.columns), body_type, many=rows.many, as_text=rows.as_text)
    return shape, values._replace(body=text)


def _members(text: str, columns: tuple[str, ...] | None) -> CallShape:
    if not text.strip():
        return CallShape(frozenset(columns or ()), JSON)
    try:
        rows = read_rows(text.encode(), JSON, columns).shape
    except ApiError as error:
        if error.message != UNEQUAL_KEYS:
            raise
        return CallShape(frozenset(), JSON, many=True, unequal=True)
    return CallShape(frozenset(rows.columns), JSON, many=rows.many)


def _text(body: bytes) -> str:
    if b"\0" in body:
        raise ApiError(400, "22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        byte = f"0x{body[error.start]:02x}"
        raise ApiError(400, "22021", f'invalid byte sequence for encoding "UTF8": {byte}') from None
