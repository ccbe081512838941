"""SQL statements of REST mutations: result columns and text without values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataapi.rest.media_output import Form
from dataapi.rest.statements import UPDATED, MutationQuery, Representation, compile_mutation
from dataapi.sql.algebra import ColumnRef, Compare, Condition, Operator
from dataapi.sql.mutations import Delete, Insert, JsonColumn, JsonRows, MissingMember, OnConflict, Update
from dataapi.sql.outputs import Text, Value
from dataapi.sql.row_output import Record
from dataapi.sql.statement import Guard
from hypothesis import given as any_of
from hypothesis import strategies as st
from support.catalog import MadeUp, table_named
from support.slots import parameter

if TYPE_CHECKING:
    from dataapi.catalog.model import Table
    from dataapi.sql.mutations import Mutation


def _table() -> Table:
    builder = MadeUp()
    builder.table("thing", "id", 'na"me')
    return table_named(builder.catalog(), "thing")


THING = _table()
ID = JsonColumn("id", "pg_catalog.int8", default="nextval('s')")
NAME = JsonColumn('na"me', "pg_catalog.text")
MERGE = OnConflict(("id",), ('na"me',), counter=UPDATED)
ROWS = JsonRows(parameter("rows", "json"), True, (NAME,))


def test_location_needs_only_the_key() -> None:
    [compiled] = compile_mutation(MutationQuery(Insert(THING, ROWS), None, located=("id",)))
    assert ' returning "t~5"."id") select null::text' in compiled.statement.text
    assert "case when pg_catalog.count(*) operator(pg_catalog.=) 1 then (select " in compiled.statement.text


@any_of(st.lists(st.text(min_size=1), min_size=3, max_size=3, unique=True))
def test_text_of_statements_contains_no_values(sources: list[str]) -> None:
    def texts(*bound: str) -> list[str]:
        where: Condition = Compare(ColumnRef("id"), Operator.EQ, parameter(bound[1]))
        rows = JsonRows(parameter(bound[0], "json"), True, (ID, NAME), MissingMember.DEFAULT)
        representation = Representation(
            THING, Record(((Text("id"), Value(ColumnRef("id"))),)), Form.ARRAY, required=where
        )
        changes: list[Mutation] = [
            Insert(THING, rows, MERGE, where),
            Update(THING, rows, where, ("id",)),
            Delete(THING, where),
        ]
        guards = (Guard("PGRST116"), Guard("PGRST124", parameter(bound[2], "bigint")))
        return [
            compile_mutation(MutationQuery(change, representation, guards, ("id",)))[-1].statement.text
            for change in changes
        ]

    assert texts(*sources) == texts("a", "b", "c")
