"""Changes of distributed rows are statements of their own where Citus then plans them faster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from dataapi.catalog.model import UniqueKey
from dataapi.sql.algebra import And, ColumnOf, Compare, Operator
from dataapi.sql.lone_changes import compile_lone_change, compile_matching_check
from dataapi.sql.mutations import (
    Delete,
    Insert,
    JsonColumn,
    JsonRows,
    MissingMember,
    Mutation,
    OnConflict,
    Update,
    ValueRows,
)
from dataapi.sql.statement import Guard, Row
from support.catalog import MadeUp, table_named
from support.slots import parameter

if TYPE_CHECKING:
    from dataapi.catalog.model import Table

_MADE = MadeUp()
_MADE.table("task", "company", "id", "title")
_KEY = UniqueKey("k", ("company", "id"), constraint=True)
TASK = replace(table_named(_MADE.catalog(), "task"), distributed_by="company", unique_keys=(_KEY,))
COMPANY, TITLE = JsonColumn("company", 'pg_catalog."int8"'), JsonColumn("title", 'pg_catalog."text"')
BODY = parameter("body", 'pg_catalog."json"')
ONE = JsonRows(BODY, False, (COMPANY, TITLE))
OURS = Compare(ColumnOf("company"), Operator.EQ, parameter("company"))
ID = Compare(ColumnOf("id"), Operator.EQ, parameter("id"))
KEY = And((OURS, ID))


def shown(*names: str) -> Row:
    """Return a row of which columns were named."""
    row = Row('"r"')
    for name in names:
        row.column(name)
    return row


def text(mutation: Mutation, *names: str) -> str:
    """Return the statement of a change without PostgreSQL's own schema and quotes."""
    found = compile_lone_change(mutation, shown(*names))
    assert found is not None
    return found.statement.text.replace("pg_catalog.", "").replace('"', "")


def test_a_json_object_is_inserted_member_by_member() -> None:
    assert text(Insert(TASK, ONE), "title") == (
        "insert into public.task as t~1 (company, title) values "
        "(($1 operator(->>) 'company'::text)::int8, ($1 operator(->>) 'title'::text)::text) "
        "returning t~1.title"
    )


def test_null_in_json_is_null_and_what_is_not_scalar_is_read_as_its_column_is() -> None:
    columns = (JsonColumn("id", 'pg_catalog."jsonb"'), JsonColumn("title", 'pg_catalog."_text"'))
    found = text(Insert(TASK, JsonRows(BODY, False, columns)))
    assert "((array_remove(array[($1 operator(->) 'id'::text)::text], 'null'))[1]::jsonb, " in found
    made = "json_build_object('title'::text, $1 operator(->) 'title'::text)"
    assert f"(json_populate_record(null::public.task, {made})).title)" in found


def test_an_upsert_says_of_each_row_whether_it_was_inserted() -> None:
    upsert = Insert(TASK, ONE, OnConflict(("company", "id"), ("title",), counter="c"))
    assert text(upsert, "id").endswith("returning t~1.id, t~1.xmax operator(=) 0 as ~inserted")


def test_the_row_of_a_key_is_updated_and_deleted_alone() -> None:
    update = text(Update(TASK, replace(ONE, columns=(TITLE,)), KEY), "id")
    assert update.startswith(
        "update public.task as t~1 set title = ($1 operator(->>) 'title'::text)::text where "
    )
    assert text(Delete(TASK, KEY)).endswith("returning 1")


def test_the_rows_are_kept_as_values_of_the_table() -> None:
    """Columns that the answer does not show are NULL in them."""
    found = compile_lone_change(Delete(TASK, KEY), shown("title", "company"))
    assert found is not None
    assert found.statement.block is not None
    block = found.statement.block.around("execute one('x')")
    assert "for \"~row\" in execute 'execute one(''x'')' loop" in block
    assert 'row("~row"."company",null,"~row"."title")::"public"."task"' in block


def with_type(oid: int, *, nullable: bool) -> Table:
    """Return the table with another type of its column ``title``."""
    *others, title = TASK.columns
    return replace(TASK, columns=(*others, replace(title, type=oid, nullable=nullable)))


@pytest.mark.parametrize(
    "mutation",
    [
        Insert(replace(TASK, distributed_by=None), ONE),
        Insert(replace(TASK, distributed_by=""), ONE),
        Insert(TASK, replace(ONE, many=True)),
        Insert(TASK, replace(ONE, columns=())),
        Insert(TASK, JsonRows(BODY, False, (replace(TITLE, default="1"),), MissingMember.DEFAULT)),
        Insert(with_type(20000, nullable=False), ONE),
        Update(TASK, ONE, OURS),
        Update(TASK, replace(ONE, missing=MissingMember.UNCHANGED), KEY),
        Update(TASK, ValueRows(("title",), ((None,),)), ID),
        Delete(TASK, None),
    ],
)
def test_other_changes_are_queries_within_one(mutation: Mutation) -> None:
    """Of one server, of several rows, or where a value of the table's type may not lack a column."""
    assert compile_lone_change(mutation, shown("id")) is None


def test_a_column_that_takes_no_null_is_kept_where_it_is_shown() -> None:
    assert compile_lone_change(Insert(with_type(20000, nullable=False), ONE), shown("title")) is not None
    assert compile_lone_change(Insert(with_type(20000, nullable=True), ONE), shown("id")) is not None


def test_a_whole_row_is_not_kept() -> None:
    row = Row('"r"', derived=True)
    row.whole()
    assert compile_lone_change(Delete(TASK, KEY), row) is None


def test_what_a_put_row_must_satisfy_is_asked_before() -> None:
    guards = (Guard("OTHER"), Guard("TOO_MANY", parameter("most", "bigint")))
    [check] = compile_matching_check(Insert(TASK, ONE, matching=OURS), guards)
    assert check.statement.text.startswith(
        "select case when pg_catalog.count(*) operator(pg_catalog.<>) 1 then ("
    )
    assert check.statement.text.count("when") == 1
    assert compile_matching_check(Insert(TASK, ONE), guards) == ()
