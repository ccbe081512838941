"""SQL statements of REST reads. Their text contains no request text."""

from __future__ import annotations

import re

import pytest
from dataapi.rest.media_output import Body, Content, Form, HandlerBody, Raw
from dataapi.rest.statements import Total, compile_lines, compile_result
from dataapi.sql.algebra import (
    ColumnRef,
    Compare,
    Join,
    JsonPath,
    Operator,
    OrderTerm,
    Quantifier,
    Rows,
    TextSearch,
    Through,
)
from dataapi.sql.outputs import Text, Value
from dataapi.sql.row_output import Many, One, Record, Spread
from hypothesis import given
from hypothesis import strategies as st
from support.catalog import MadeUp, table_named
from support.slots import parameter


def catalog_builder() -> MadeUp:
    builder = MadeUp()
    builder.table("thing", "id", "name")
    builder.table("owner", "id", "name")
    builder.table("between", "id", "thing", "owner")
    return builder


CATALOG = catalog_builder().catalog()
THING, OWNER, BETWEEN = (table_named(CATALOG, name) for name in ("thing", "owner", "between"))
ID = Compare(ColumnRef("id"), Operator.EQ, parameter("id", "pg_catalog.int8"))
BOTH = Record(((Text("id"), Value(ColumnRef("id"))), (Text("name"), Value(ColumnRef("name")))))


def plain(text: str) -> str:
    """Return a statement without unnecessary quotes and schema names."""
    text = re.sub(r"operator\(pg_catalog\.([^)]+)\)", r"\1", text)
    return re.sub(r'"public"\.|pg_catalog\.|"(?=[a-z])|(?<=[a-z0-9])"', "", text)


def test_read_by_primary_key_is_one_simple_scan() -> None:
    text = plain(compile_result(Rows(THING, where=ID), BOTH, Form.ARRAY).statement.text)
    assert text.endswith("from (select t~1.id, t~1.name from thing as t~1 where t~1.id = $1) as t~2")
    assert text.startswith("select coalesce('[{id:' || string_agg(coalesce(")
    assert "'}]', '[]'), count(*), null::bigint, current_setting(" in text
    assert text.count("select") == 2


def test_embedded_rows_are_computed_after_the_limit() -> None:
    embedded = Many(Rows(OWNER, join=Join((("id", "id"),))), BOTH)
    record = Record((*BOTH.members, (Text("owners"), embedded)))
    text = plain(compile_result(Rows(THING, limit=10), record, Form.ARRAY).statement.text)
    assert text.endswith("from (select t~1.id, t~1.name from thing as t~1 limit 10) as t~2")


def _all_statements(name: str, value: str) -> list[str]:
    """Return statements with the name and value in every position of a request."""
    slot = parameter(("value", value), "text")
    alias = parameter(("name", name), "text")
    path = JsonPath(ColumnRef("name"), False, (parameter(("step", name), "text"),), True)
    members = ((alias, Value(path)), (Text("name"), Value(ColumnRef("name"))))
    through = Rows(OWNER, through=Through(BETWEEN, Join((("thing", "id"),)), Join((("owner", "id"),))))
    single = Rows(OWNER, join=Join((("id", "id"),)), unique=True)
    record = Record(
        (
            *members,
            Spread(through, Record(((alias, Value(path)),)), many=True),
            Spread(single, Record(((alias, Value(path)),))),
            (alias, One(single, Record(members))),
        )
    )
    where = (
        Compare(path, Operator.LIKE, slot),
        Compare(path, Operator.EQ, parameter(("values", value), "text[]"), quantifier=Quantifier.ANY),
        TextSearch(ColumnRef("name"), slot, parameter(("language", name), "regconfig")),
    )
    bodies: tuple[Body, ...] = (*Form, *map(Raw, Content), HandlerBody("f", OWNER))
    return [
        compile_result(
            Rows(THING, where=each, order=(OrderTerm(path),)), record, body, total, slot
        ).statement.text
        for each in where
        for body in bodies
        for total in Total
    ] + [compile_lines(Rows(THING), record, form).statement.text for form in (Form.ARRAY, Form.CSV)]


REFERENCE = _all_statements("a", "b")


@given(st.text(), st.text())
def test_text_of_statements_contains_nothing_from_the_request(name: str, value: str) -> None:
    assert _all_statements(name, value) == REFERENCE


@pytest.mark.parametrize("total", Total)
def test_result_has_five_columns(total: Total) -> None:
    text = compile_result(Rows(THING), BOTH, Form.NONE, total, parameter("bound", "bigint")).statement.text
    columns = text.split(" from (select")[0]
    assert columns.startswith("select null::text, pg_catalog.count(*), ")
    assert text.count("pg_catalog.current_setting('response.") == 2
