"""Plans calls of functions below ``/rpc/`` (docs/reference/rest.md, Functions); pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from dataapi.auth.transaction import hoisted
from dataapi.catalog.model import Argument, Catalog, Function, Type, Volatility
from dataapi.database.message import Bound
from dataapi.http.errors import ApiError
from dataapi.http.headers import parse_accept
from dataapi.http.messages import Reply
from dataapi.rest import respond
from dataapi.rest.media_output import Body, Content, Form, Raw
from dataapi.rest.negotiation import OPENAPI, Media, MediaKind, as_bytes, unhex
from dataapi.rest.parse.arguments import (
    CallArguments,
    RequestedCall,
    read_arguments,
    with_filters_as_arguments,
)
from dataapi.rest.parse.filters import array_literal
from dataapi.rest.parse.preferences import Action, applied, not_followed
from dataapi.rest.parse.query import (
    LONGEST_REMEMBERED,
    Selection,
    Values,
    content_range,
    parse_pairs,
    status_of,
)
from dataapi.rest.plan.expressions import MaxAffected
from dataapi.rest.plan.functions import ChosenFunction, FunctionResult, ResultShape, choose, unknown
from dataapi.rest.plan.plan import RestRequest, StatementPlan, StreamPlan, negotiate_media
from dataapi.rest.plan.select_items import with_column_names
from dataapi.rest.respond import make_reply, with_alias_warning
from dataapi.rest.statements import (
    SCALAR,
    TO_COME,
    ResultRow,
    Total,
    compile_answer,
    compile_lines,
    guarded,
    lines_within,
    within,
)
from dataapi.sql.algebra import CallArgument, ColumnOf, FunctionCall, JsonArguments, Parameter
from dataapi.sql.guards import Guard
from dataapi.sql.outputs import Value
from dataapi.sql.statement import Compiled

_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
_VALUE = Value(ColumnOf(SCALAR))
_TABULAR = (Form.CSV, Form.GEOJSON)


_UNBOUNDED = {"character": "varchar", "character[]": "varchar[]", "bit": "varbit", "bit[]": "varbit[]"}
"""What arguments of types are read as whose bare names mean a length of one."""


@dataclass(frozen=True, slots=True)
class CallValues:
    """The values of a call, as its sources look them up.

    :ivar literals: those of the selection.
    :ivar provided: arguments that arrive one by one, by name.
    :ivar most: how many rows the call may return, None without a limit.
    """

    literals: tuple[str, ...]
    provided: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    most: int | None = None


@dataclass(frozen=True, slots=True)
class ArgumentValue:
    """Where an argument's value comes from that comes by itself."""

    name: str

    def bind(self, values: CallValues) -> str:
        """Return the value."""
        return values.provided[self.name]


@dataclass(frozen=True, slots=True)
class BodyValue:
    """Where the body comes from."""

    def bind(self, values: CallValues) -> str:
        """Return the body's text."""
        return values.body


@dataclass(frozen=True, slots=True)
class _Call:
    """A call, understood.

    :ivar chosen: the function.
    :ivar most: how many rows it may return (``max-affected``), None without a limit.
    """

    request: RestRequest
    provided: CallArguments
    chosen: ChosenFunction
    result: FunctionResult
    selection: Selection
    values: Values
    media: Media
    read_only: bool
    most: int | None

    @property
    def function(self) -> Function:
        """The function that is called."""
        return self.chosen.function

    @property
    def counted(self) -> bool:
        """Whether all rows are counted; the planner's estimate for a function would be meaningless."""
        return self.request.preferences.counts

    @property
    def lines(self) -> bool:
        """Whether the statement returns a line for each row, which HEAD does not need."""
        return self.media.kind is MediaKind.LINES and self.request.http.method != "HEAD"

    @property
    def single(self) -> bool:
        """Whether exactly one row is required of a function that returns a set."""
        return self.media.single and not self.result.is_single


def plan(request: RestRequest) -> StatementPlan | StreamPlan | Reply:
    """Plan a call, or answer how the function may be called.

    :raises ApiError: PGRST101 (405) for other methods, PGRST202 and PGRST203 where no function is meant or
        several are, PGRST122 and PGRST128 (400), and what arguments and the selection of rows may raise.
    """
    method = request.http.method
    if method not in _METHODS:
        raise ApiError(405, "PGRST101", f"Cannot use the {method} method on RPC")
    if method == "OPTIONS":
        return _allowed(request)
    call = _understood(request)
    streams = call.lines and not call.media.explain
    return with_alias_warning(_streamed(call) if streams else _planned(call), call.selection)


def _allowed(request: RestRequest) -> Reply:
    found = request.role.functions.named(request.schema, request.target)
    if not found:
        requested = RequestedCall(request.schema, request.target, frozenset())
        raise unknown(requested, (), request.role.functions.names(request.schema))
    reads = any(each.volatility is not Volatility.VOLATILE for each in found)
    return Reply(200, (("Allow", "OPTIONS,GET,HEAD,POST" if reads else "OPTIONS,POST"),), b"")


def _understood(request: RestRequest) -> _Call:
    provided, chosen = _choose(request)
    function = chosen.function
    result = request.role.functions.result(function)
    ranged = request.http.headers.get("range") if request.http.method == "GET" else None
    known = len(request.http.query) <= LONGEST_REMEMBERED
    selection, values = (_remembered if known else parse_pairs)(provided.row_parameters, ranged)
    table = result.relation.table
    read_only = request.reading or function.volatility is not Volatility.VOLATILE
    lines = read_only and function.returns_set
    media = negotiate_media(request, table, whole=selection.is_whole, raw=result.raw, lines=lines)
    most = request.preferences.most
    if most is not None and not function.returns_set:
        raise ApiError(
            400,
            "PGRST128",
            "Function must return SETOF or TABLE when max-affected preference is used with handling=strict",
        )
    return _Call(request, provided, chosen, result, selection, values, media, read_only, most)


_remembered = lru_cache(maxsize=1024)(parse_pairs)


def _choose(request: RestRequest) -> tuple[CallArguments, ChosenFunction]:
    provided, functions = read_arguments(request.http, request.schema, request.target), request.role.functions
    candidates = functions.named(request.schema, request.target)
    chosen = choose(request.catalog, candidates, provided.requested)
    if provided.refusal is not None and (chosen is None or not chosen.whole):
        raise provided.refusal
    if chosen is not None:
        return provided, chosen
    if request.reading:
        named = with_filters_as_arguments(provided, candidates)
        chosen = choose(request.catalog, candidates, named.requested)
        if chosen is not None:
            return named, chosen
    raise unknown(provided.requested, candidates, functions.names(request.schema))


# ---------------------------------------------------------------- the statement


def _planned(call: _Call) -> StatementPlan:
    return StatementPlan(
        (_statement(call),),
        call.read_only,
        lambda row: _finish(call, row),
        _settings(call),
        media=call.media,
    )


def _streamed(call: _Call) -> StreamPlan:
    if call.most is not None:
        # One row too many would come when others were sent.
        raise not_followed(f"max-affected={call.most}")
    applied_ = applied(call.request.preferences, Action.STREAM)
    head = make_reply(call.request, TO_COME, 200, call.media.content_type, applied=applied_)
    return StreamPlan(_statement(call), head, settings=_settings(call))


def _settings(call: _Call) -> tuple[tuple[str, str], ...]:
    return hoisted(call.function, call.request.project.db_hoisted_tx_settings)


def _statement(call: _Call) -> Bound:
    provided = call.provided
    size = call.selection.size + sum(len(name) for name in provided.requested.names)
    [compiled] = call.request.role.plan(_shape(call), size, lambda: (_compile(call),))
    values = CallValues(
        call.values.literals, argument_values(call.function, provided), provided.body, call.most
    )
    return compiled.bind(values)


def _shape(call: _Call) -> Hashable:
    media = call.media
    return (
        "call",
        call.function.oid,
        call.chosen.whole,
        call.provided.requested.names,
        call.provided.pairs is None,
        call.provided.many,
        call.selection,
        (media.kind, media.stripped, media.row_handler, media.explain is None),
        call.request.http.method == "HEAD",
        call.counted,
        _guard(call),
    )


def _compile(call: _Call) -> Compiled:
    request, result = call.request, call.result
    scalar = result.is_scalar
    called = call_of(request.catalog, call.function, call.provided, whole=call.chosen.whole, scalar=scalar)
    planner = request.planner(call.selection)
    rows = planner.rows(result.relation, called)
    record = planner.record(result.relation)
    if call.lines:
        lines = compile_lines(rows, _VALUE if scalar else record, Form.ARRAY)
        return lines_within(lines, request.project.longest_line)
    body = _body(call)
    total = Total.EXACT if call.counted and not result.is_single else Total.NONE
    output = _VALUE if scalar and body not in _TABULAR else with_column_names(record, body)
    compiled = compile_answer(rows, output, body, total)
    if body is not Form.NONE and call.media.explain is None:
        compiled = within(compiled, request.project.max_answer)
    guard = _guard(call)
    return compiled if guard is None else guarded(compiled, guard)


def _body(call: _Call) -> Body:
    shape, kind = call.result.shape, call.media.kind
    if call.request.http.method == "HEAD" or shape is ResultShape.VOID:
        return Form.NONE
    if kind is MediaKind.RAW:
        return Raw(call.result.content)
    if call.result.is_scalar and kind in (MediaKind.JSON, MediaKind.OBJECT) and not call.media.stripped:
        return Form.VALUE if shape is ResultShape.VALUE else Form.VALUES
    return call.media.body(call.result.relation.table)


def _guard(call: _Call) -> Guard | None:
    """Return the bound that the statement itself checks, so that what the function did is undone."""
    if call.single:
        return Guard(respond.NOT_SINGLE)
    return None if call.most is None else Guard(respond.TOO_MANY, Parameter(MaxAffected(), "bigint"))


def call_of(
    catalog: Catalog, function: Function, provided: CallArguments, *, whole: bool, scalar: bool
) -> FunctionCall:
    """Return the call of a function.

    :param whole: its single nameless argument takes the body as it is.
    :param scalar: whether its results are values.
    """
    column = SCALAR if scalar else ""
    if whole:
        [argument] = function.arguments
        type_ = catalog.types[argument.type].sql_name
        only = (CallArgument("", Parameter(BodyValue(), type_)),)
        return FunctionCall(function, only, value_column=column, keeps_null=True)
    named = [argument for argument in function.arguments if argument.name in provided.requested.names]
    if provided.pairs is not None or not named:
        arguments = tuple(_argument(catalog, argument) for argument in named)
        return FunctionCall(function, arguments, value_column=column, keeps_null=True)
    members = tuple((argument.name, _member_type(catalog.types[argument.type])) for argument in named)
    from_json = JsonArguments(Parameter(BodyValue(), "json"), provided.many, members)
    arguments = tuple(CallArgument(each.name, None, variadic=each.variadic) for each in named)
    return FunctionCall(function, arguments, value_column=column, from_json=from_json, keeps_null=True)


def _argument(catalog: Catalog, argument: Argument) -> CallArgument:
    parameter = Parameter(ArgumentValue(argument.name), _slot_type(catalog.types[argument.type]))
    return CallArgument(argument.name, parameter, variadic=argument.variadic)


def _slot_type(type_: Type) -> str:
    """Return the type of an argument's slot; PostgreSQL finds those that are not its own by the function.

    So no privilege on the schema of a type is needed to name it.
    """
    return _member_type(type_) if type_.schema == "pg_catalog" and type_.category != "P" else "unknown"


def _member_type(type_: Type) -> str:
    return _UNBOUNDED.get(type_.sql_name, type_.sql_name)


def argument_values(function: Function, provided: CallArguments) -> dict[str, str]:
    """Return the arguments that come one by one; of several values the last counts, for variadic ones all."""
    values = dict(provided.pairs or ())
    for argument in function.arguments:
        if argument.variadic and argument.name in values:
            listed = [value for name, value in provided.pairs or () if name == argument.name]
            values[argument.name] = '{""}' if listed == [""] else array_literal(listed)
    return values


# ---------------------------------------------------------------- the answer


def _finish(call: _Call, row: ResultRow) -> Reply:
    request, result = call.request, call.result
    count, total = row.count, row.total
    if result.is_single:
        count, total = 1, 1 if call.counted else None
    offset = call.values.offset
    status = status_of(offset, count, total)
    void = result.shape is ResultShape.VOID
    return make_reply(
        request,
        row,
        204 if void else status,
        None if void else call.media.content_type,
        ("Content-Range", content_range(offset, count, total)),
        applied=applied(request.preferences, Action.CALL),
        body=_content(call, row),
    )


def _content(call: _Call, row: ResultRow) -> bytes:
    """Return the body's bytes; one object stands without the brackets of its array."""
    body, kind = as_bytes(call.media, row.body), call.media.kind
    if kind is MediaKind.RAW:
        return unhex(body) if call.result.content is Content.BYTES else body
    single = kind is MediaKind.OBJECT or (kind is MediaKind.JSON and call.result.is_single)
    if single and _body(call) in (Form.ARRAY, Form.STRIPPED, Form.VALUES):
        return body[1:-1] or b"null"
    return body


# ---------------------------------------------------------------- the root


def plan_root(request: RestRequest, name: str) -> StatementPlan | StreamPlan | Reply:
    """Plan a call of the function that answers instead (``db-root-spec``).

    :param name: the function's, in the request's schema or with its own before a period.
    :raises ApiError: whatever a call of it below ``/rpc/`` would raise.
    """
    schema, _, function = name.rpartition(".")
    http = request.http
    forms = parse_accept(http.headers.get("accept") or "*/*")
    described = bool(forms) and forms[0].name == OPENAPI
    if described:
        http = replace(http, headers={**http.headers, "accept": "application/json"})
    call = replace(request, http=http, schema=schema or request.schema, target=function)
    planned = plan(call)
    if not described or not isinstance(planned, StatementPlan):
        return planned
    return replace(planned, finish=lambda row: _as_description(planned.finish(row)))


def _as_description(reply: Reply) -> Reply:
    headers = tuple(
        (
            name,
            OPENAPI + "; charset=utf-8"
            if name == "Content-Type" and value.startswith("application/json")
            else value,
        )
        for name, value in reply.headers
    )
    return replace(reply, headers=headers)
