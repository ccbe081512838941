"""Statements that change rows for REST and answer with what was changed, in one row of ``Answered``."""

from __future__ import annotations

from dataclasses import dataclass

from dataapi.catalog.model import Table
from dataapi.database.quoting import quote_identifier
from dataapi.query.algebra import OrderTerm, Rows
from dataapi.query.answers import GUCS
from dataapi.query.bodies import Body, body_sql
from dataapi.query.changes import raised_sql
from dataapi.query.conditions import Condition
from dataapi.query.expressions import condition_sql
from dataapi.query.outputs import output_sql
from dataapi.query.records import shown_sql
from dataapi.query.refused import Refusal, counted_sql
from dataapi.query.results import Record
from dataapi.query.shown import Source
from dataapi.query.sql import Compiled, compiled
from dataapi.query.writer import Row, Writer
from dataapi.query.written import Written, inserted_sql, written_sql

_OTHERS = ('"total"', '"headers"', '"status"', '"location"', '"inserted"')


@dataclass(frozen=True, slots=True)
class Showing:
    """What an answer shows of the changed rows.

    :ivar required: shows only the rows that satisfy it.
    """

    table: Table
    record: Record
    body: Body
    order: tuple[OrderTerm, ...] = ()
    required: Condition | None = None


@dataclass(frozen=True, slots=True)
class RestChange:
    """A change and what is told of it.

    :ivar showing: None to show nothing, which takes no privilege to read.
    :ivar located: key columns of which the one changed row's values are told.
    :ivar inserted: whether the inserted rows are counted apart from the updated ones.
    :ivar most_bytes: a larger body is refused; None where none is made, as only the plan is asked for.
    """

    change: Written
    showing: Showing | None
    refusals: tuple[Refusal, ...] = ()
    located: tuple[str, ...] = ()
    inserted: bool = False
    most_bytes: int | None = 2**30


def compile_change(wanted: RestChange) -> Compiled:
    """Return the statement; if it counts inserts, the setting ``written.UPDATED`` must be "0" before."""
    writer = Writer()
    changed = writer.alias()
    row = Row(writer.alias(), derived=True)
    body, page = _body_and_page(writer, wanted.showing, changed, row)
    location = _location_sql(writer, wanted.located, changed, row)
    columns = [
        body,
        _count_sql(writer, wanted.refusals, changed),
        "null::bigint",
        *GUCS,
        location,
        inserted_sql(changed) if wanted.inserted else "null::bigint",
    ]
    query = written_sql(writer, wanted.change, row)
    answer = f"select {', '.join(columns)} from {page}"
    if wanted.showing is None or wanted.most_bytes is None:
        return compiled(f"with {changed} as ({query}) {answer}", writer)
    bounded = f'select "body", {counted_sql(wanted.most_bytes)}, {", ".join(_OTHERS)}'
    named = f'"answer"("body", "count", {", ".join(_OTHERS)})'
    return compiled(f'with {changed} as ({query}), {named} as ({answer}) {bounded} from "answer"', writer)


def _count_sql(writer: Writer, refusals: tuple[Refusal, ...], changed: str) -> str:
    """Return the number of rows that are shown, raising instead what is refused."""
    shown, affected = "pg_catalog.count(*)", f"(select pg_catalog.count(*) from {changed})"
    cases = []
    for refusal in refusals:
        count, refused = shown, "<> 1"
        if refusal.most is not None:
            count, refused = affected, f"> {writer.slot(refusal.most)}"
        cases.append(f"when {count} {refused} then {raised_sql(refusal.code, count)}")
    return f"case {' '.join(cases)} else {shown} end" if cases else shown


def _location_sql(writer: Writer, key: tuple[str, ...], changed: str, row: Row) -> str:
    """Return the key of the one row as a JSON object of texts, null when there is not one row."""
    if not key:
        return "null::json"
    only, member = writer.alias(), writer.alias()
    for name in key:
        row.column(name)
    columns = ", ".join(map(quote_identifier, key))
    listed = f"pg_catalog.json_object_agg({member}.key, {member}.value)"
    members = f"pg_catalog.json_each_text(pg_catalog.row_to_json({only})) as {member}"
    found = f"(select {listed} from (select {columns} from {changed} limit 1) as {only}, {members})"
    return f"case when pg_catalog.count(*) = 1 then {found} end"


def _body_and_page(writer: Writer, showing: Showing | None, changed: str, row: Row) -> tuple[str, str]:
    """Return the body and the ``from`` item that it is made over; what is needed of a row is named."""
    source = f"{changed} as {row.alias}"
    if showing is None:
        return "null::text", source
    if showing.required is not None:
        source += f" where {condition_sql(writer, showing.required, row)}"
    rows = Rows(showing.table, order=showing.order)
    shown = shown_sql(writer, output_sql, showing.record, Source(row, source, rows))
    return body_sql(writer, shown, showing.body), shown.item
