"""Queries of mutations write the given columns and read only the returned columns."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from dataapi.sql.algebra import ColumnRef, Compare, Operator
from dataapi.sql.dialect import POSTGRESQL
from dataapi.sql.dml import mutation_queries
from dataapi.sql.mutations import (
    Delete,
    Insert,
    JsonColumn,
    JsonRows,
    MissingMember,
    NestedRow,
    NestedRows,
    OnConflict,
    RelatedRow,
    Update,
)
from dataapi.sql.statement import Row
from support.catalog import MadeUp, table_named
from support.slots import parameter

if TYPE_CHECKING:
    from dataapi.catalog.model import Table
    from dataapi.sql.mutations import Mutation


def _table() -> Table:
    builder = MadeUp()
    builder.table("thing", "id", 'na"me')
    return table_named(builder.catalog(), "thing")


COUNTER = "dataapi.updated"
THING = _table()
ID = JsonColumn("id", "pg_catalog.int8", default="nextval('s')")
NAME = JsonColumn('na"me', "pg_catalog.text")
MERGE = OnConflict(("id",), ('na"me',), counter=COUNTER)
WHERE = Compare(ColumnRef("id"), Operator.EQ, parameter("where"))


def rows(*targets: JsonColumn, many: bool = True, missing: MissingMember = MissingMember.NULL) -> JsonRows:
    return JsonRows(parameter("rows", "json"), many, targets, missing)


def query(mutation: Mutation) -> str:
    """Return the query of a mutation with shortened aliases and without pg_catalog."""
    writer = POSTGRESQL.writer()
    name, row = writer.alias(), Row(writer.alias(), derived=True)
    text = mutation_queries(writer, mutation, name, row).replace("pg_catalog.", "")
    text = re.sub(r'"t~([0-9]+)(~object)?"', lambda m: f"{'o' if m[2] else 't'}{m[1]}", text)
    match = re.fullmatch(r"t1 as \((.*)\)", text)
    assert match is not None, text
    return match[1]


def test_only_returned_columns_are_read() -> None:
    assert query(Insert(THING, rows(ID, NAME))) == (
        'insert into "public"."thing" as t3 ("id", "na""me") select t4."id", t4."na""me" '
        'from json_to_recordset($1) as t4("id" int8, "na""me" text) returning 1'
    )
    assert query(Insert(THING, rows(NAME, many=False))) == (
        'insert into "public"."thing" as t3 ("na""me") select t4."na""me" '
        'from json_to_record($1) as t4("na""me" text) returning 1'
    )
    assert query(Update(THING, rows(NAME), WHERE)) == (
        'update "public"."thing" as t3 set "na""me" = t4."na""me" '
        'from (select * from json_to_recordset($1) as t4("na""me" text) limit 1) as t4 '
        'where t3."id" operator(=) $2 returning 1'
    )
    assert query(Update(THING, rows(), None)) == "select 1 where false"
    assert query(Delete(THING, None)) == 'delete from "public"."thing" as t3 returning 1'


def test_rows_without_columns_get_defaults() -> None:
    assert query(Insert(THING, rows())) == (
        'insert into "public"."thing" as t3 select from json_array_elements($1) as o4(value) returning 1'
    )
    assert query(Insert(THING, rows(many=False))) == (
        'insert into "public"."thing" as t3 select from (select $1) as o4(value) returning 1'
    )


def test_missing_members_get_the_default_or_stay_unchanged() -> None:
    assert query(Insert(THING, rows(ID, NAME, missing=MissingMember.DEFAULT))) == (
        'insert into "public"."thing" as t3 ("id", "na""me") '
        "select case when (o4.value operator(->) 'id'::text) is not null then t4.\"id\" "
        'else (nextval(\'s\')) end, t4."na""me" from json_array_elements($1) as o4(value) '
        'cross join lateral json_to_record(o4.value) as t4("id" int8, "na""me" text) returning 1'
    )
    matched = Update(THING, rows(ID, NAME, missing=MissingMember.UNCHANGED), None, ("id",))
    assert query(matched) == (
        'update "public"."thing" as t3 set "na""me" = '
        'case when (o4.value operator(->) \'na"me\'::text) is not null then t4."na""me" '
        'else t3."na""me" end from json_array_elements($1) as o4(value) '
        'cross join lateral json_to_record(o4.value) as t4("id" int8, "na""me" text) '
        'where t3."id" operator(=) t4."id" returning 1'
    )
    # The rows contain only the key, so there is nothing to update.
    assert query(replace(matched, values=rows(ID))) == "select 1 where false"


def test_on_conflict_lists_columns_and_counts_updates() -> None:
    """The counter distinguishes updates from inserts."""
    change = Insert(THING, rows(NAME), MERGE)
    assert query(change).endswith(
        ' on conflict ("id") do update set "na""me" = excluded."na""me" where '
        "set_config('dataapi.updated', (current_setting('dataapi.updated')::bigint operator(+) 1)::text, "
        "true) operator(<>) '' returning 1"
    )
    for ignored in (
        replace(change, conflict=OnConflict(("id",), ())),
        replace(change, rows=rows(), conflict=OnConflict(("id",), (), counter=COUNTER)),
    ):
        assert query(ignored).endswith(' on conflict ("id") do nothing returning 1')
    put = replace(change, matching=WHERE)
    assert ' where t4."id" operator(=) $2 limit 1 on conflict ' in query(put)


# ---------------------------------------------------------------- nested rows

FOUND = OnConflict(('na"me',), ())


def nested(*inserted: NestedRow) -> str:
    writer = POSTGRESQL.writer()
    name, row = writer.alias(), Row(writer.alias(), derived=True)
    return mutation_queries(writer, Insert(THING, NestedRows(inserted)), name, row)


def test_rows_of_one_json_array_are_one_query() -> None:
    parent = NestedRow(THING, rows(NAME, many=False))
    child = NestedRow(THING, rows(NAME), parents=(RelatedRow(parent, (("id", "id"),)),))
    text = nested(child)
    assert text.count("insert into") == 2
    assert text.count("json_to_recordset") == 1


def test_skipped_row_is_looked_up_only_if_another_row_needs_its_key() -> None:
    parent = NestedRow(THING, rows(NAME, many=False), conflict=FOUND, number=7)
    child = NestedRow(THING, rows(NAME, many=False), parents=(RelatedRow(parent, (("id", "id"),)),))
    lookup = "not exists (select from "
    assert lookup in nested(child)
    assert "hidden or was just inserted~7~" in nested(child)
    assert lookup not in nested(parent)
    # The row does not contain the columns of the key, so no existing row can match.
    without = replace(parent, values=rows(ID, many=False))
    assert lookup not in nested(replace(child, parents=(RelatedRow(without, (("id", "id"),)),)))


def test_parents_with_one_number_are_inserted_once_if_they_may_exist() -> None:
    def inserts(conflict: OnConflict | None) -> int:
        parent = NestedRow(THING, rows(NAME, many=False), conflict=conflict, number=1)
        child = NestedRow(THING, rows(NAME, many=False), parents=(RelatedRow(parent, (("id", "id"),)),))
        return nested(child, child).count("insert into")

    assert inserts(MERGE) == inserts(FOUND) == 3
    assert inserts(None) == 4


def test_unions_of_many_rows_are_divided() -> None:
    assert " as materialized (" not in nested(*[NestedRow(THING, ())] * 32)
    text = nested(*[NestedRow(THING, ())] * 33)
    assert text.count(" as materialized (") == 2
