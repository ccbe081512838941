"""Values are bound to statements. Frequent page sizes are constants in the statement's text."""

from __future__ import annotations

from dataclasses import dataclass

from dataapi.sql.algebra import ColumnRef, Compare, Operator, Parameter, Rows
from dataapi.sql.dialect import compile_query
from dataapi.sql.outputs import Object, Text, Value
from dataapi.sql.row_output import Many
from dataapi.sql.statement import MAX_PAGE_SIZES, Compiled
from support.catalog import MadeUp, table_named


@dataclass(frozen=True)
class Named:
    """A value source that looks up a value by name."""

    name: str

    def bind(self, values: dict[str, str | None], /) -> str | None:
        return values[self.name]


def page() -> Compiled:
    """Return a statement with a limit and a filter on a column whose name looks like a placeholder."""
    builder = MadeUp()
    builder.table("thing", "id", "limit $2 %")
    where = Compare(ColumnRef("limit $2 %"), Operator.EQ, Parameter(Named("what"), "text"))
    rows = Rows(
        table_named(builder.catalog(), "thing"), where=where, limit=Parameter(Named("first"), "bigint")
    )
    return compile_query(Many(rows, Object(((Text("id"), Value(ColumnRef("id"))),))))


def test_page_size_is_a_constant_in_the_statement() -> None:
    """PostgreSQL's planner can use a constant."""
    compiled = page()
    bound = compiled.bind({"what": "$2", "first": "10"})
    assert "limit 10" in bound.statement.text
    assert '"limit $2 %" operator(pg_catalog.=) $1' in bound.statement.text
    assert (bound.statement.types, bound.values) == (("text", "bigint"), ("$2", "10"))
    assert compiled.bind({"what": "b", "first": "10"}).statement is bound.statement


def test_number_of_statements_per_page_size_is_limited() -> None:
    compiled = page()
    bound = [compiled.bind({"what": "a", "first": str(first)}).statement for first in range(100)]
    assert len(set(bound)) == MAX_PAGE_SIZES + 1
    assert bound[-1] is compiled.statement
    for first in (None, "1; drop table thing", "-1", "\u0661"):
        assert page().bind({"what": "a", "first": first}).statement.text == compiled.statement.text


def test_unprepared_statement_is_unchanged() -> None:
    compiled = page().unprepared()
    assert compiled.bind({"what": "a", "first": "10"}).statement is compiled.statement
