"""Changes of distributed rows are statements of their own where Citus then plans them faster."""

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

_MADE = MadeUp()
_MADE.table("task", "company", "id", "title")
_KEY = UniqueKey("k", ("company", "id"), constraint=True)
TASK = replace(table_named(_MADE.catalog(), "task"), distributed_by="company", unique_keys=(_KEY,))
COMPANY, TITLE = JsonColumn("company", 'pg_catalog."int8"'), JsonColumn("title", 'pg_catalog."text"')
BODY = parameter("body", 'pg_catalog."json"')
ONE = JsonRows(BODY, False, (COMPANY, TITLE))
OURS = Compare(ColumnRef("company"), Operator.EQ, parameter("company"))
ID = Compare(ColumnRef("id"), Operator.EQ, parameter("id"))
KEY = And((OURS, ID))


@dataclass(frozen=True)
class Text:
    """A text as a source of values."""

    text: str

    def bind(self, _values: object, /) -> str:
        """Return the text."""
        return self.text


def change(
    mutation: Mutation, *names: str, shown: object = None, guards: tuple[Guard, ...] = ()
) -> MutationSql:
    """Return what changes rows of which an answer has columns."""
    row = Row('"r"', derived=True)
    for name in names:
        row.column(name)
    return CITUS.mutation_sql(CITUS.writer(), MutationPart(mutation, '"c"', row, output=shown, guards=guards))


def text(mutation: Mutation, *names: str) -> str:
    """Return the statement of a change that is alone, without PostgreSQL's own schema and quotes."""
    [found] = change(mutation, *names).before
    return found.statement.text.replace("pg_catalog.", "").replace('"', "")


def query(mutation: Mutation) -> str:
    """Return the query of a change that is a part of a statement, as ``text`` does."""
    found = change(mutation, "id")
    assert found.before == ()
    return found.queries.replace("pg_catalog.", "").replace('"', "")


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
    found = change(Delete(TASK, KEY), "title", "company")
    [alone] = found.before
    assert isinstance(alone.statement, BlockStatement)
    block = alone.statement.block_body("execute one('x')")
    assert "for \"~row\" in execute 'execute one(''x'')' loop" in block
    assert 'row("~row"."company",null,"~row"."title")::"public"."task"' in block
    kept = """unnest(pg_catalog.current_setting('dataapi.changed_rows', true)::"public"."task"[])"""
    assert found.queries.startswith('"c" as (select "t~1"."title", "t~1"."company" from pg_catalog.' + kept)


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
    assert change(mutation, "id").before == ()


def test_so_are_changes_whose_answers_have_more_than_columns() -> None:
    related = Many(Rows(TASK, join=Join((("company", "company"),))), Value(ColumnRef("id")))
    assert change(Insert(TASK, ONE), "id", shown=related).before == ()


def test_a_column_that_takes_no_null_is_kept_where_it_is_shown() -> None:
    assert change(Insert(with_type(20000, nullable=False), ONE), "title").before
    assert change(Insert(with_type(20000, nullable=True), ONE), "id").before


def test_a_whole_row_is_not_kept() -> None:
    row = Row('"r"', derived=True)
    row.whole()
    asked = MutationPart(Delete(TASK, KEY), '"c"', row)
    assert CITUS.mutation_sql(CITUS.writer(), asked).before == ()


def test_what_a_put_row_must_satisfy_is_asked_before() -> None:
    guards = (Guard("OTHER"), Guard("TOO_MANY", parameter("most", "bigint")))
    check, _ = change(Insert(TASK, ONE, matching=OURS), guards=guards).before
    assert check.statement.text.startswith(
        "select case when pg_catalog.count(*) operator(pg_catalog.<>) 1 then ("
    )
    assert check.statement.text.count("when") == 1


def test_rows_of_an_upsert_say_whether_they_were_inserted() -> None:
    """Workers do not count in a setting of the coordinator's."""
    upsert = Insert(TASK, replace(ONE, many=True), OnConflict(("company", "id"), ("title",), counter="c"))
    assert query(upsert) == (
        "c as (insert into public.task as t~1 (company, title) select t~2.company, t~2.title "
        "from json_to_recordset($1) as t~2(company int8, title text) "
        "on conflict (company, id) do update set title = excluded.title "
        "returning t~1.id, t~1.xmax operator(=) 0 as ~inserted)"
    )
    assert change(upsert).inserted == '(select pg_catalog.count(*) from "c" where "~inserted")'


def test_rows_are_set_to_members_of_an_object() -> None:
    """It takes no table beside theirs."""
    update = Update(TASK, replace(ONE, columns=(TITLE,)), OURS)
    assert query(update).startswith(
        "c as (update public.task as t~1 set title = ($1 operator(->>) 'title'::text)::text where "
    )


def test_an_object_whose_members_are_read_as_a_row_is_read_as_a_set() -> None:
    """Citus sends no function of a single record to workers."""
    body = Parameter(Text("{}"), 'pg_catalog."json"')
    tags = JsonRows(body, False, (JsonColumn("title", 'pg_catalog."_text"'),))
    update, writer = Update(TASK, tags, OURS), CITUS.writer()
    found = CITUS.mutation_sql(writer, MutationPart(update, '"c"', Row('"r"', derived=True)))
    assert 'pg_catalog.json_to_recordset($1) as "t~2"("title" pg_catalog."_text")' in found.queries
    assert writer.sources[0].bind(None) == "[{}]"
