"""Mutations of distributed tables are separate statements if Citus plans separate statements faster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from dataapi.catalog.model import UniqueKey
from dataapi.database.citus import BlockStatement
from dataapi.sql.algebra import And, ColumnRef, Compare, Join, Operator, Parameter, Rows
from dataapi.sql.dialect import MutationPart, MutationSql
from dataapi.sql.dialects.citus import CITUS
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
from dataapi.sql.outputs import Value
from dataapi.sql.row_output import Many
from dataapi.sql.statement import Guard, Row
from support.catalog import MadeUp, table_named
from support.slots import parameter

if TYPE_CHECKING:
    from dataapi.catalog.model import Table

_BUILDER = MadeUp()
_BUILDER.table("task", "company", "id", "title")
_KEY = UniqueKey("k", ("company", "id"), constraint=True)
TASK = replace(table_named(_BUILDER.catalog(), "task"), distributed_by="company", unique_keys=(_KEY,))
COMPANY, TITLE = JsonColumn("company", 'pg_catalog."int8"'), JsonColumn("title", 'pg_catalog."text"')
BODY = parameter("body", 'pg_catalog."json"')
ONE = JsonRows(BODY, False, (COMPANY, TITLE))
OURS = Compare(ColumnRef("company"), Operator.EQ, parameter("company"))
ID = Compare(ColumnRef("id"), Operator.EQ, parameter("id"))
KEY = And((OURS, ID))


@dataclass(frozen=True)
class Text:
    """A value source that returns a constant."""

    text: str

    def bind(self, _values: object, /) -> str:
        return self.text


def change(
    mutation: Mutation, *names: str, output: object = None, guards: tuple[Guard, ...] = ()
) -> MutationSql:
    """Return the SQL of a mutation that returns the columns ``names``."""
    row = Row('"r"', derived=True)
    for name in names:
        row.column(name)
    return CITUS.mutation_sql(
        CITUS.writer(), MutationPart(mutation, '"c"', row, output=output, guards=guards)
    )


def text(mutation: Mutation, *names: str) -> str:
    """Return the statement of a standalone mutation, without pg_catalog and quotes."""
    [standalone] = change(mutation, *names).before
    return standalone.statement.text.replace("pg_catalog.", "").replace('"', "")


def query(mutation: Mutation) -> str:
    """Return the query of a mutation that is part of a statement, without pg_catalog and quotes."""
    mutation_sql = change(mutation, "id")
    assert mutation_sql.before == ()
    return mutation_sql.queries.replace("pg_catalog.", "").replace('"', "")


def test_json_object_is_inserted_as_separate_values() -> None:
    assert text(Insert(TASK, ONE), "title") == (
        "insert into public.task as t~1 (company, title) values "
        "(($1 operator(->>) 'company'::text)::int8, ($1 operator(->>) 'title'::text)::text) "
        "returning t~1.title"
    )


def test_json_null_is_null_and_other_values_have_column_types() -> None:
    columns = (JsonColumn("id", 'pg_catalog."jsonb"'), JsonColumn("title", 'pg_catalog."_text"'))
    statement = text(Insert(TASK, JsonRows(BODY, False, columns)))
    assert "((array_remove(array[($1 operator(->) 'id'::text)::text], 'null'))[1]::jsonb, " in statement
    row = "json_build_object('title'::text, $1 operator(->) 'title'::text)"
    assert f"(json_populate_record(null::public.task, {row})).title)" in statement


def test_standalone_upsert_returns_whether_each_row_was_inserted() -> None:
    upsert = Insert(TASK, ONE, OnConflict(("company", "id"), ("title",), counter="c"))
    assert text(upsert, "id").endswith("returning t~1.id, t~1.xmax operator(=) 0 as ~inserted")


def test_update_and_delete_by_key_are_standalone() -> None:
    update = text(Update(TASK, replace(ONE, columns=(TITLE,)), KEY), "id")
    assert update.startswith(
        "update public.task as t~1 set title = ($1 operator(->>) 'title'::text)::text where "
    )
    assert text(Delete(TASK, KEY)).endswith("returning 1")


def test_changed_rows_are_stored_as_values_of_the_table() -> None:
    """Columns that are not returned are NULL."""
    sql = change(Delete(TASK, KEY), "title", "company")
    [standalone] = sql.before
    assert isinstance(standalone.statement, BlockStatement)
    block = standalone.statement.block_body("execute one('x')")
    assert "for \"~row\" in execute 'execute one(''x'')' loop" in block
    assert 'row("~row"."company",null,"~row"."title")::"public"."task"' in block
    stored = """unnest(pg_catalog.current_setting('dataapi.changed_rows', true)::"public"."task"[])"""
    assert sql.queries.startswith('"c" as (select "t~1"."title", "t~1"."company" from pg_catalog.' + stored)


def with_type(oid: int, *, nullable: bool) -> Table:
    """Return the table TASK with another type of the column ``title``."""
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
def test_other_mutations_are_part_of_one_statement(mutation: Mutation) -> None:
    assert change(mutation, "id").before == ()


def test_mutation_that_returns_related_rows_is_not_standalone() -> None:
    related = Many(Rows(TASK, join=Join((("company", "company"),))), Value(ColumnRef("id")))
    assert change(Insert(TASK, ONE), "id", output=related).before == ()


def test_returned_not_null_columns_allow_standalone_mutations() -> None:
    assert change(Insert(with_type(20000, nullable=False), ONE), "title").before
    assert change(Insert(with_type(20000, nullable=True), ONE), "id").before


def test_mutation_that_returns_whole_rows_is_not_standalone() -> None:
    row = Row('"r"', derived=True)
    row.whole()
    part = MutationPart(Delete(TASK, KEY), '"c"', row)
    assert CITUS.mutation_sql(CITUS.writer(), part).before == ()


def test_condition_of_a_put_row_is_checked_before() -> None:
    guards = (Guard("OTHER"), Guard("TOO_MANY", parameter("most", "bigint")))
    check, _ = change(Insert(TASK, ONE, matching=OURS), guards=guards).before
    assert check.statement.text.startswith(
        "select case when pg_catalog.count(*) operator(pg_catalog.<>) 1 then ("
    )
    assert check.statement.text.count("when") == 1


def test_upsert_returns_whether_each_row_was_inserted() -> None:
    upsert = Insert(TASK, replace(ONE, many=True), OnConflict(("company", "id"), ("title",), counter="c"))
    assert query(upsert) == (
        "c as (insert into public.task as t~1 (company, title) select t~2.company, t~2.title "
        "from json_to_recordset($1) as t~2(company int8, title text) "
        "on conflict (company, id) do update set title = excluded.title "
        "returning t~1.id, t~1.xmax operator(=) 0 as ~inserted)"
    )
    assert change(upsert).inserted == '(select pg_catalog.count(*) from "c" where "~inserted")'


def test_rows_are_updated_from_members_of_an_object() -> None:
    update = Update(TASK, replace(ONE, columns=(TITLE,)), OURS)
    assert query(update).startswith(
        "c as (update public.task as t~1 set title = ($1 operator(->>) 'title'::text)::text where "
    )


def test_object_with_composite_members_is_read_as_a_record_set() -> None:
    body = Parameter(Text("{}"), 'pg_catalog."json"')
    tags = JsonRows(body, False, (JsonColumn("title", 'pg_catalog."_text"'),))
    update, writer = Update(TASK, tags, OURS), CITUS.writer()
    sql = CITUS.mutation_sql(writer, MutationPart(update, '"c"', Row('"r"', derived=True)))
    assert 'pg_catalog.json_to_recordset($1) as "t~2"("title" pg_catalog."_text")' in sql.queries
    assert writer.sources[0].bind(None) == "[{}]"
