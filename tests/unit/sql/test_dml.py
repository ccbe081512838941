"""The queries of mutations: what they write, and that they read nothing that is not returned."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from dataapi.sql.algebra import ColumnRef, Compare, Operator
from dataapi.sql.dialect import POSTGRESQL
from dataapi.sql.dml import mutation_queries
from dataapi.sql.mutations import Delete, Insert, JsonColumn, JsonRows, MissingMember, OnConflict, Update
from dataapi.sql.statement import Row
from support.catalog import MadeUp, table_named
from support.slots import parameter

if TYPE_CHECKING:
    from dataapi.catalog.model import Table
    from dataapi.sql.mutations import Mutation


def _table() -> Table:
    made = MadeUp()
    made.table("thing", "id", 'na"me')
    return table_named(made.catalog(), "thing")


COUNTER = "dataapi.updated"
THING = _table()
ID = JsonColumn("id", "pg_catalog.int8", default="nextval('s')")
NAME = JsonColumn('na"me', "pg_catalog.text")
MERGE = OnConflict(("id",), ('na"me',), counter=COUNTER)
WHERE = Compare(ColumnRef("id"), Operator.EQ, parameter("where"))


def rows(*targets: JsonColumn, many: bool = True, missing: MissingMember = MissingMember.NULL) -> JsonRows:
    return JsonRows(parameter("rows", "json"), many, targets, missing)


def query(mutation: Mutation) -> str:
    """Return the query of a mutation, with short aliases and without PostgreSQL's own schema."""
    writer = POSTGRESQL.writer()
    name, row = writer.alias(), Row(writer.alias(), derived=True)
    text = mutation_queries(writer, mutation, name, row).replace("pg_catalog.", "")
    text = re.sub(r'"t~([0-9]+)(~object)?"', lambda m: f"{'o' if m[2] else 't'}{m[1]}", text)
    match = re.fullmatch(r"t1 as \((.*)\)", text)
    assert match is not None, text
    return match[1]


def test_what_is_not_returned_is_not_read() -> None:
    """So that no privilege to read is needed."""
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


def test_rows_without_columns_are_rows_of_defaults() -> None:
    """As many as there are objects."""
    assert query(Insert(THING, rows())) == (
        'insert into "public"."thing" as t3 select from json_array_elements($1) as o4(value) returning 1'
    )
    assert query(Insert(THING, rows(many=False))) == (
        'insert into "public"."thing" as t3 select from (select $1) as o4(value) returning 1'
    )


def test_what_an_object_lacks_takes_the_default_or_stays() -> None:
    """A default is computed only where it is needed; without one there is nothing to decide."""
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
    # Nothing but its key is given of each row.
    assert query(replace(matched, values=rows(ID))) == "select 1 where false"


def test_a_conflict_names_its_columns() -> None:
    """Updates are counted, so that what was inserted is known."""
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
