"""Plans function calls under ``/rpc/`` (docs/reference/rest.md, Functions)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dataapi.auth.caller import hoisted_settings
from dataapi.catalog.model import Argument, Function, Type, Volatility
from dataapi.http.errors import ApiError
from dataapi.http.headers import parse_accept
from dataapi.http.messages import Reply
from dataapi.rest import respond
from dataapi.rest.media_output import Body, Content, Form, GeoJson, Raw
from dataapi.rest.negotiation import OPENAPI, Media, MediaKind
from dataapi.rest.parse.body import JSON, UNEQUAL_KEYS, invalid
from dataapi.rest.parse.request import PlanInput
from dataapi.rest.plan.expressions import ArgumentValue, BodyText, MaxAffected
from dataapi.rest.plan.functions import ChosenFunction, FunctionResult, ResultShape, choose, unknown
from dataapi.rest.plan.model import (
    CallResponse,
    FiltersAsArguments,
    Plan,
    StatementPlan,
    StreamPlan,
    UnlimitedRows,
)
from dataapi.rest.plan.role import RestRole
from dataapi.rest.plan.rows import with_column_names
from dataapi.rest.plan.tables import JSON as JSON_OID
from dataapi.rest.plan.tables import JSONB, pairs_type
from dataapi.rest.statements import SCALAR, Total, compile_call, compile_lines
from dataapi.sql.algebra import CallArgument, ColumnRef, FunctionCall, JsonArguments, Parameter
from dataapi.sql.outputs import Value
from dataapi.sql.statement import Compiled, Guard

_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
_VALUE = Value(ColumnRef(SCALAR))
_UNBOUNDED = {"character": "varchar", "character[]": "varchar[]", "bit": "varbit", "bit[]": "varbit[]"}
"""Replacements for types whose SQL names imply a length of one if no length is given."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call to the chosen function.

    :ivar adapted: filters that are used as arguments, None if there are none.
    """

    role: RestRole
    input: PlanInput
    adapted: FiltersAsArguments | None
    chosen: ChosenFunction
    result: FunctionResult
    media: Media
    read_only: bool

    @property
    def lines(self) -> bool:
        return self.media.kind is MediaKind.LINES and self.input.method != "HEAD"

    @property
    def by_replica(self) -> bool:
        return self.input.by_replica and self.chosen.function.volatility is not Volatility.VOLATILE

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        return hoisted_settings(self.chosen.function, self.role.project.db_hoisted_tx_settings)


def plan(role: RestRole, plan_input: PlanInput) -> Plan:
    """Plan a call, or respond to OPTIONS.

    :raises ApiError: PGRST101 (405) if the method cannot call functions, PGRST102 (400) if the body's objects
        have different keys, PGRST202 (404) if no function matches, PGRST203 (300) if several functions match,
        PGRST107 (406) if no accepted media type is available, PGRST128 (400) if ``max-affected`` cannot be
        checked.
    """
    if plan_input.method not in _METHODS:
        raise ApiError(405, "PGRST101", f"Cannot use the {plan_input.method} method on RPC")
    candidates = role.functions.named(plan_input.schema, plan_input.target)
    if plan_input.method == "OPTIONS":
        if not candidates:
            raise unknown(plan_input, (), role.functions.names(plan_input.schema))
        reads = any(each.volatility is not Volatility.VOLATILE for each in candidates)
        return Reply(200, (("Allow", "OPTIONS,GET,HEAD,POST" if reads else "OPTIONS,POST"),), b"")
    call = _call(role, *_choose(role, plan_input, candidates))
    if not call.lines or call.media.explain:
        return StatementPlan(
            _compile(call),
            call.media,
            _response(call),
            call.read_only,
            call.settings,
            call.adapted,
            by_replica=call.by_replica,
        )
    limited = plan_input.preferences.maximum is not None
    return StreamPlan(
        _compile(call),
        call.media,
        settings=call.settings,
        adapted=UnlimitedRows() if limited else call.adapted,
        by_replica=call.by_replica,
    )


def _choose(
    role: RestRole, plan_input: PlanInput, candidates: Sequence[Function]
) -> tuple[PlanInput, FiltersAsArguments | None, ChosenFunction]:
    """Return the input, the filters that are used as arguments, and the function to call.

    An argument may look like a filter by chance. If no function matches the arguments, those filters are
    added to the arguments in the returned input.
    """
    call = plan_input.call
    chosen = choose(role.catalog, candidates, call)
    if call.unequal and (chosen is None or not chosen.whole):
        raise invalid(UNEQUAL_KEYS)
    if chosen is not None:
        return plan_input, None, chosen
    if plan_input.reads:
        known = {argument.name for each in candidates for argument in each.arguments}
        shape = plan_input.selection.shape
        names = frozenset([name for name, _ in shape.filters if name in known])
        named = call._replace(names=call.names | names)
        chosen = choose(role.catalog, candidates, named)
        if chosen is not None:
            selection = plan_input.selection.without_filters(names)
            with_arguments = plan_input._replace(call=named, selection=selection)
            return with_arguments, FiltersAsArguments(shape, names), chosen
    raise unknown(plan_input, candidates, role.functions.names(plan_input.schema))


def _call(
    role: RestRole, plan_input: PlanInput, adapted: FiltersAsArguments | None, chosen: ChosenFunction
) -> _Call:
    function, result = chosen.function, role.functions.result(chosen.function)
    ranges = parse_accept(plan_input.accept or "*/*") if plan_input.is_root else []
    # The function of db-root-spec returns OpenAPI as plain JSON.
    described = bool(ranges) and ranges[0].name == OPENAPI
    if described:
        plan_input = plan_input._replace(accept=JSON)
    read_only = plan_input.reads or function.volatility is not Volatility.VOLATILE
    lines = read_only and function.returns_set
    media = role.media(plan_input, result.relation.table, raw=result.raw, lines=lines)
    if described and media.content_type.startswith(JSON):
        media = replace(media, content_type=f"{OPENAPI}; charset=utf-8")
    if plan_input.preferences.maximum is not None and not function.returns_set:
        raise ApiError(
            400,
            "PGRST128",
            "Function must return SETOF or TABLE when max-affected preference is used with handling=strict",
        )
    return _Call(role, plan_input, adapted, chosen, result, media, read_only)


# ---------------------------------------------------------------- the statement


def _compile(call: _Call) -> tuple[Compiled, ...]:
    role, result = call.role, call.result
    scalar = result.is_scalar
    planner = role.planner(result.relation, call.input.selection)
    rows = planner.rows(_function_call(call))
    record = planner.record()
    if call.lines:
        output = _VALUE if scalar else record
        return (compile_lines(rows, output, Form.ARRAY, role.project.longest_line, role.dialect),)
    body = _body(call)
    # Count exactly even if an estimate is requested, because the planner cannot estimate a function's rows.
    total = Total.EXACT if call.input.preferences.counts and not result.is_single else Total.NONE
    named = not scalar or body is Form.CSV or isinstance(body, GeoJson)
    output = with_column_names(record, body) if named else _VALUE
    bounded = body is not Form.NONE and call.media.explain is None
    max_bytes = role.project.max_answer if bounded else None
    return compile_call(
        rows, output, body, total, max_bytes=max_bytes, guard=_guard(call), dialect=role.dialect
    )


def _body(call: _Call) -> Body:
    shape, kind = call.result.shape, call.media.kind
    if call.input.method == "HEAD" and not call.input.builds_tag:
        return Form.NONE
    if shape is ResultShape.VOID or kind is MediaKind.LINES:
        return Form.NONE
    if kind is MediaKind.RAW:
        return Raw(call.result.content)
    if call.result.is_scalar and kind in (MediaKind.JSON, MediaKind.OBJECT) and not call.media.stripped:
        return Form.VALUE if shape is ResultShape.VALUE else Form.VALUES
    return call.media.body(call.result.relation.table, call.role.tables.catalog.postgis)


def _guard(call: _Call) -> Guard | None:
    """Return the guard that makes the call fail if the function returns a wrong number of rows.

    The failure undoes the function's changes.
    """
    if call.media.single and not call.result.is_single:
        return Guard(respond.NOT_SINGLE)
    bounded = call.input.preferences.maximum is not None
    return Guard(respond.TOO_MANY, Parameter(MaxAffected(), "bigint")) if bounded else None


def _function_call(call: _Call) -> FunctionCall:
    function, arguments, catalog = call.chosen.function, call.input.call, call.role.catalog
    types = catalog.types
    from_json = None
    named = [argument for argument in function.arguments if argument.name in arguments.names]
    if call.chosen.whole:
        [argument] = function.arguments
        values = [CallArgument("", Parameter(BodyText(), types[argument.type].sql_name))]
    elif arguments.has_slots or not named:
        values = [
            CallArgument(each.name, _slot(each, types[each.type]), variadic=each.variadic) for each in named
        ]
    else:
        members, values = [], []
        for each in named:
            type_ = types[each.type]
            pairs, read_as = pairs_type(type_), _member_type(type_)
            cast = read_as if arguments.as_text and catalog.base_type(type_).oid in (JSON_OID, JSONB) else ""
            members.append((each.name, "json" if pairs else "text" if cast else read_as))
            values.append(CallArgument(each.name, None, variadic=each.variadic, pairs=pairs, cast=cast))
        from_json = JsonArguments(Parameter(BodyText(), "json"), arguments.many, tuple(members))
    column = SCALAR if call.result.is_scalar else ""
    return FunctionCall(function, tuple(values), value_column=column, from_json=from_json, null_as_row=True)


def _slot(argument: Argument, type_: Type) -> Parameter:
    """Return the statement's parameter for an argument.

    Only built-in types are named, because naming other types requires a privilege on their schema. PostgreSQL
    infers other types from the function.
    """
    named = type_.schema == "pg_catalog" and type_.category != "P"
    return Parameter(
        ArgumentValue(argument.name, argument.variadic), _member_type(type_) if named else "unknown"
    )


def _member_type(type_: Type) -> str:
    return _UNBOUNDED.get(type_.sql_name, type_.sql_name)


# ---------------------------------------------------------------- the response


def _response(call: _Call) -> CallResponse:
    kind, result = call.media.kind, call.result
    single = kind is MediaKind.OBJECT or (kind is MediaKind.JSON and result.is_single)
    return CallResponse(
        result.shape is ResultShape.VOID,
        result.is_single,
        kind is MediaKind.RAW and result.content is Content.BYTES,
        single and _body(call) in (Form.ARRAY, Form.STRIPPED, Form.VALUES),
    )
