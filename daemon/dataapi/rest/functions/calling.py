"""Calls of functions below ``/rpc/``, planned (reference/rest.md 1.3); pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

from dataapi.access.transaction import hoisted
from dataapi.catalog.model import Function, Volatility
from dataapi.database.message import Bound
from dataapi.errors import ApiError
from dataapi.query.algebra import SCALAR, ColumnOf, Parameter
from dataapi.query.answers import TO_COME, Answered, Total, compile_answer, compile_lines
from dataapi.query.bodies import Body, Content, Form, Raw
from dataapi.query.refused import Refusal, lines_within, refusing, within
from dataapi.query.results import Value
from dataapi.query.sql import Compiled
from dataapi.rest import refusals
from dataapi.rest.aliases import warned
from dataapi.rest.context import Context, Planned, Streamed, bind
from dataapi.rest.functions.arguments import (
    CallValues,
    Given,
    by_name,
    call_of,
    given_values,
    read_arguments,
)
from dataapi.rest.functions.outcomes import Outcome, Shape
from dataapi.rest.functions.overloads import Chosen, Wanted, choose, unknown
from dataapi.rest.media import Kind, Media
from dataapi.rest.negotiating import as_bytes, negotiated, unhex
from dataapi.rest.reply import make_reply
from dataapi.rest.request.preferences import Action, applied, not_followed
from dataapi.rest.request.ranges import content_range, status_of
from dataapi.rest.resolve.fields import MostRows
from dataapi.rest.resolve.naming import named_for
from dataapi.rest.resolve.selection import LONGEST_REMEMBERED, Selection, Values, parse_pairs
from dataapi.web.messages import Reply

_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
_VALUE = Value(ColumnOf(SCALAR))
_TABULAR = (Form.CSV, Form.GEOJSON)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call, understood.

    :ivar chosen: the function.
    :ivar most: how many rows it may give (``max-affected``), None for any number.
    """

    context: Context
    given: Given
    chosen: Chosen
    outcome: Outcome
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
        """Whether the total of rows is asked for; what the planner expects of a function says nothing."""
        return self.context.preferences.counts

    @property
    def lines(self) -> bool:
        """Whether the statement gives a line for each row, of which HEAD wants none."""
        return self.media.kind is Kind.LINES and self.context.request.method != "HEAD"

    @property
    def single(self) -> bool:
        """Whether the answer must be one row, which a function that gives a set may not have."""
        return self.media.single and not self.outcome.is_single


def plan(context: Context) -> Planned | Streamed | Reply:
    """Plan a call, or answer how the function may be called.

    :raises ApiError: PGRST101 (405) for other methods, PGRST202 and PGRST203 where no function is meant or
        several are, PGRST122 and PGRST128 (400), and what arguments and the selection of rows may raise.
    """
    method = context.request.method
    if method not in _METHODS:
        raise ApiError(405, "PGRST101", f"Cannot use the {method} method on RPC")
    if method == "OPTIONS":
        return _allowed(context)
    call = _understood(context)
    streams = call.lines and not call.media.explain
    return warned(_streamed(call) if streams else _planned(call), call.selection)


def _allowed(context: Context) -> Reply:
    found = context.role.functions.named(context.schema, context.target)
    if not found:
        wanted = Wanted(context.schema, context.target, frozenset())
        raise unknown(wanted, (), context.role.functions.names(context.schema))
    reads = any(each.volatility is not Volatility.VOLATILE for each in found)
    return Reply(200, (("Allow", "OPTIONS,GET,HEAD,POST" if reads else "OPTIONS,POST"),), b"")


def _understood(context: Context) -> _Call:
    given, chosen = _chosen(context)
    function = chosen.function
    outcome = context.role.functions.outcome(function)
    ranged = context.request.headers.get("range") if context.request.method == "GET" else None
    known = len(context.request.query) <= LONGEST_REMEMBERED
    selection, values = (_remembered if known else parse_pairs)(given.aside, ranged)
    table = outcome.relation.table
    read_only = context.reading or function.volatility is not Volatility.VOLATILE
    lines = read_only and function.returns_set
    media = negotiated(context, table, whole=selection.is_whole, raw=outcome.raw, lines=lines)
    most = context.preferences.most
    if most is not None and not function.returns_set:
        raise ApiError(
            400,
            "PGRST128",
            "Function must return SETOF or TABLE when max-affected preference is used with handling=strict",
        )
    return _Call(context, given, chosen, outcome, selection, values, media, read_only, most)


_remembered = lru_cache(maxsize=1024)(parse_pairs)


def _chosen(context: Context) -> tuple[Given, Chosen]:
    given, functions = read_arguments(context), context.role.functions
    candidates = functions.named(context.schema, context.target)
    chosen = choose(context.catalog, candidates, given.wanted)
    if given.refusal is not None and (chosen is None or not chosen.whole):
        raise given.refusal
    if chosen is not None:
        return given, chosen
    if context.reading:
        named = by_name(given, candidates)
        chosen = choose(context.catalog, candidates, named.wanted)
        if chosen is not None:
            return named, chosen
    raise unknown(given.wanted, candidates, functions.names(context.schema))


# ---------------------------------------------------------------- the statement


def _planned(call: _Call) -> Planned:
    return Planned(
        (_statement(call),),
        call.read_only,
        lambda row: _finish(call, row),
        _settings(call),
        media=call.media,
    )


def _streamed(call: _Call) -> Streamed:
    if call.most is not None:
        # One row too many would come when others were sent.
        raise not_followed(f"max-affected={call.most}")
    told = applied(call.context.preferences, Action.STREAM)
    head = make_reply(call.context, TO_COME, 200, call.media.content_type, applied=told)
    return Streamed(_statement(call), head, settings=_settings(call))


def _settings(call: _Call) -> tuple[tuple[str, str], ...]:
    return hoisted(call.function, call.context.project.db_hoisted_tx_settings)


def _statement(call: _Call) -> Bound:
    given = call.given
    size = call.selection.size + sum(len(name) for name in given.wanted.names)
    [compiled] = call.context.role.plan(_shape(call), size, lambda: (_compile(call),))
    values = CallValues(call.values.lifted, given_values(call.function, given), given.body, call.most)
    return bind(compiled, values)


def _shape(call: _Call) -> Hashable:
    media = call.media
    return (
        "call",
        call.function.oid,
        call.chosen.whole,
        call.given.wanted.names,
        call.given.pairs is None,
        call.given.many,
        call.selection,
        (media.kind, media.stripped, media.producer, media.explain is None),
        call.context.request.method == "HEAD",
        call.counted,
        _refusal(call),
    )


def _compile(call: _Call) -> Compiled:
    context, outcome = call.context, call.outcome
    scalar = outcome.is_scalar
    called = call_of(context.catalog, call.function, call.given, whole=call.chosen.whole, scalar=scalar)
    selecting = context.selecting(call.selection)
    rows = selecting.rows(outcome.relation, called)
    record = selecting.record(outcome.relation)
    if call.lines:
        lines = compile_lines(rows, _VALUE if scalar else record, Form.ARRAY)
        return lines_within(lines, context.project.longest_line)
    body = _body(call)
    total = Total.EXACT if call.counted and not outcome.is_single else Total.NONE
    shown = _VALUE if scalar and body not in _TABULAR else named_for(record, body)
    compiled = compile_answer(rows, shown, body, total)
    if body is not Form.NONE and call.media.explain is None:
        compiled = within(compiled, context.project.max_answer)
    refusal = _refusal(call)
    return compiled if refusal is None else refusing(compiled, refusal)


def _body(call: _Call) -> Body:
    shape, kind = call.outcome.shape, call.media.kind
    if call.context.request.method == "HEAD" or shape is Shape.VOID:
        return Form.NONE
    if kind is Kind.RAW:
        return Raw(call.outcome.content)
    if call.outcome.is_scalar and kind in (Kind.JSON, Kind.OBJECT) and not call.media.stripped:
        return Form.VALUE if shape is Shape.VALUE else Form.VALUES
    return call.media.body(call.outcome.relation.table)


def _refusal(call: _Call) -> Refusal | None:
    """Return what the statement itself refuses, so that what the function did is undone."""
    if call.single:
        return Refusal(refusals.NOT_SINGLE)
    return None if call.most is None else Refusal(refusals.TOO_MANY, Parameter(MostRows(), "bigint"))


# ---------------------------------------------------------------- the answer


def _finish(call: _Call, row: Answered) -> Reply:
    context, outcome = call.context, call.outcome
    count, total = row.count, row.total
    if outcome.is_single:
        count, total = 1, 1 if call.counted else None
    offset = call.values.offset
    status = status_of(offset, count, total)
    void = outcome.shape is Shape.VOID
    return make_reply(
        context,
        row,
        204 if void else status,
        None if void else call.media.content_type,
        ("Content-Range", content_range(offset, count, total)),
        applied=applied(context.preferences, Action.CALL),
        body=_content(call, row),
    )


def _content(call: _Call, row: Answered) -> bytes:
    """Return the body's bytes; one object stands without the brackets of its array."""
    body, kind = as_bytes(call.media, row.body), call.media.kind
    if kind is Kind.RAW:
        return unhex(body) if call.outcome.content is Content.BYTES else body
    single = kind is Kind.OBJECT or (kind is Kind.JSON and call.outcome.is_single)
    if single and _body(call) in (Form.ARRAY, Form.STRIPPED, Form.VALUES):
        return body[1:-1] or b"null"
    return body
