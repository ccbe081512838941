"""Statements with the values of a request: page sizes in use stand in the text."""

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
    """Finds a value by its name."""

    name: str

    def bind(self, values: dict[str, str | None], /) -> str | None:
        """Return the value of the name."""
        return values[self.name]


def page() -> Compiled:
    """Return a statement of a page, with a filter whose column has the text of a slot in its name."""
    made = MadeUp()
    made.table("thing", "id", "limit $2 %")
    where = Compare(ColumnRef("limit $2 %"), Operator.EQ, Parameter(Named("what"), "text"))
    rows = Rows(table_named(made.catalog(), "thing"), where=where, limit=Parameter(Named("first"), "bigint"))
    return compile_query(Many(rows, Object(((Text("id"), Value(ColumnRef("id"))),))))


def test_a_page_size_stands_in_the_statement() -> None:
    """PostgreSQL then knows it when it plans; all else stays a value."""
    compiled = page()
    bound = compiled.bind({"what": "$2", "first": "10"})
    assert "limit 10" in bound.statement.text
    assert '"limit $2 %" operator(pg_catalog.=) $1' in bound.statement.text
    assert (bound.statement.types, bound.values) == (("text", "bigint"), ("$2", "10"))
    assert compiled.bind({"what": "b", "first": "10"}).statement is bound.statement


def test_few_page_sizes_have_a_statement_of_their_own() -> None:
    """Clients may send any; so may they nothing, or what is no number."""
    compiled = page()
    bound = [compiled.bind({"what": "a", "first": str(first)}).statement for first in range(100)]
    assert len(set(bound)) == MAX_PAGE_SIZES + 1
    assert bound[-1] is compiled.statement
    for first in (None, "1; drop table thing", "-1", "\u0661"):
        assert page().bind({"what": "a", "first": first}).statement.text == compiled.statement.text


def test_what_is_not_prepared_stays_as_it_is() -> None:
    """It is planned with its values anyway."""
    compiled = page().unprepared()
    assert compiled.bind({"what": "a", "first": "10"}).statement is compiled.statement
