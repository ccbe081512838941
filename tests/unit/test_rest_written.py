"""The statements of changes by REST: what they read, and that no value is in their text."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dataapi.query.algebra import ColumnOf, Parameter
from dataapi.query.bodies import Form
from dataapi.query.changed import RestChange, Showing, compile_change
from dataapi.query.conditions import Compare, Condition, Operator
from dataapi.query.modifications import Delete
from dataapi.query.refused import Refusal
from dataapi.query.results import Record, Text, Value
from dataapi.query.written import Given, InsertGiven, Missing, OnConflict, Target, UpdateGiven
from hypothesis import given as any_of
from hypothesis import strategies as st
from support.catalog import MadeUp, table_named

if TYPE_CHECKING:
    from dataapi.catalog.model import Table
    from dataapi.query.written import Written


def _table() -> Table:
    made = MadeUp()
    made.table("thing", "id", 'na"me')
    return table_named(made.catalog(), "thing")


THING = _table()
ID = Target("id", "pg_catalog.int8", default="nextval('s')")
NAME = Target('na"me', "pg_catalog.text")
WHERE = Compare(ColumnOf("id"), Operator.EQ, Parameter("where"), builtin=True)


def rows(*targets: Target, many: bool = True, missing: Missing = Missing.NULL) -> Given:
    return Given(Parameter("rows", "json"), many, targets, missing)


def query(change: Written, **named: Any) -> str:
    """Return the query that changes, with short aliases and without PostgreSQL's own schema."""
    text = compile_change(RestChange(change, None, **named)).statement.text
    text = re.sub(r'"t~([0-9]+)(~object)?"', lambda m: f"{'o' if m[2] else 't'}{m[1]}", text)
    match = re.fullmatch(
        r"with t1 as \((.*)\) select null::text, .* from t1 as t2", text.replace("pg_catalog.", "")
    )
    assert match is not None, text
    return match[1]


def test_what_is_not_shown_is_not_read() -> None:
    """So that no privilege to read is needed."""
    assert query(InsertGiven(THING, rows(ID, NAME))) == (
        'insert into "public"."thing" as t3 ("id", "na""me") select t4."id", t4."na""me" '
        'from json_to_recordset($1) as t4("id" int8, "na""me" text) returning 1'
    )
    assert query(InsertGiven(THING, rows(NAME, many=False))) == (
        'insert into "public"."thing" as t3 ("na""me") select t4."na""me" '
        'from json_to_record($1) as t4("na""me" text) returning 1'
    )
    assert query(UpdateGiven(THING, rows(NAME), WHERE)) == (
        'update "public"."thing" as t3 set "na""me" = t4."na""me" '
        'from (select * from json_to_recordset($1) as t4("na""me" text) limit 1) as t4 '
        'where t3."id" operator(=) $2 returning 1'
    )
    assert query(UpdateGiven(THING, rows(), None)) == "select 1 where false"
    assert query(Delete(THING, None)) == 'delete from "public"."thing" as t3 returning 1'


def test_rows_without_columns_are_rows_of_defaults() -> None:
    """As many as there are objects."""
    assert query(InsertGiven(THING, rows())) == (
        'insert into "public"."thing" as t3 select from json_array_elements($1) as o4(value) returning 1'
    )
    assert query(InsertGiven(THING, rows(many=False))) == (
        'insert into "public"."thing" as t3 select from (select $1) as o4(value) returning 1'
    )


def test_what_an_object_lacks_takes_the_default_or_stays() -> None:
    """A default is computed only where it is needed; without one there is nothing to decide."""
    assert query(InsertGiven(THING, rows(ID, NAME, missing=Missing.DEFAULT))) == (
        'insert into "public"."thing" as t3 ("id", "na""me") '
        "select case when (o4.value operator(->) 'id'::text) is not null then t4.\"id\" "
        'else (nextval(\'s\')) end, t4."na""me" from json_array_elements($1) as o4(value) '
        'cross join lateral json_to_record(o4.value) as t4("id" int8, "na""me" text) returning 1'
    )
    matched = UpdateGiven(THING, rows(ID, NAME, missing=Missing.KEPT), None, ("id",))
    assert query(matched) == (
        'update "public"."thing" as t3 set "na""me" = '
        'case when (o4.value operator(->) \'na"me\'::text) is not null then t4."na""me" '
        'else t3."na""me" end from json_array_elements($1) as o4(value) '
        'cross join lateral json_to_record(o4.value) as t4("id" int8, "na""me" text) '
        'where t3."id" operator(=) t4."id" returning 1'
    )
    # Nothing but its key is given of each row.
    assert query(replace(matched, given=rows(ID))) == "select 1 where false"


def test_a_conflict_names_its_columns() -> None:
    """Updates are counted, so that what was inserted is known."""
    change = InsertGiven(THING, rows(NAME), OnConflict(("id",), merge=True))
    assert query(change, inserted=True).endswith(
        ' on conflict ("id") do update set "na""me" = excluded."na""me" where '
        "set_config('dataapi.updated', (current_setting('dataapi.updated')::bigint + 1)::text, true) <> '' "
        "returning 1"
    )
    for ignored in (
        replace(change, conflict=OnConflict(("id",), merge=False)),
        replace(change, given=rows()),
    ):
        assert query(ignored).endswith(' on conflict ("id") do nothing returning 1')
    put = replace(change, matching=WHERE)
    assert ' where t4."id" operator(=) $2 limit 1 on conflict ' in query(put)


def test_a_location_reads_the_key_alone() -> None:
    """And only where there is one row."""
    compiled = compile_change(RestChange(InsertGiven(THING, rows(NAME)), None, located=("id",)))
    assert ' returning "t~5"."id") select null::text' in compiled.statement.text
    assert "case when pg_catalog.count(*) = 1 then (select " in compiled.statement.text


@any_of(st.lists(st.text(min_size=1), min_size=3, max_size=3, unique=True))
def test_no_value_is_in_a_statements_text(sources: list[str]) -> None:
    """Whatever the front end binds, the text is the same."""

    def texts(*bound: str) -> list[str]:
        where: Condition = Compare(ColumnOf("id"), Operator.EQ, Parameter(bound[1]))
        given = Given(Parameter(bound[0], "json"), True, (ID, NAME), Missing.DEFAULT)
        showing = Showing(THING, Record(((Text("id"), Value(ColumnOf("id"))),)), Form.ARRAY, required=where)
        changes: list[Written] = [
            InsertGiven(THING, given, OnConflict(("id",), merge=True), where),
            UpdateGiven(THING, given, where, ("id",)),
            Delete(THING, where),
        ]
        refusals = (Refusal("PGRST116"), Refusal("PGRST124", Parameter(bound[2], "bigint")))
        return [
            compile_change(RestChange(change, showing, refusals, ("id",))).statement.text
            for change in changes
        ]

    assert texts(*sources) == texts("a", "b", "c")
