"""SQL statements of mutations. Their text contains no values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dataapi.database.sql_text import ERROR_MARKER
from dataapi.graphql.mutation_statements import (
    AffectedCount,
    AffectedRecords,
    MutationStep,
    compile_mutations,
)
from dataapi.graphql.outputs import NodeId
from dataapi.sql.algebra import ColumnRef, Compare, ComputedValue, Condition, Operator, Parameter
from dataapi.sql.mutations import (
    DEFAULT,
    Delete,
    Insert,
    JsonColumn,
    JsonRows,
    Mutation,
    OnConflict,
    Update,
    ValueRows,
)
from dataapi.sql.outputs import Object, Output, Text, Value
from dataapi.sql.statement import Guard
from hypothesis import given
from hypothesis import strategies as st
from support.catalog import MadeUp, table_named
from support.slots import parameter

if TYPE_CHECKING:
    from dataapi.catalog.model import Table

KEY = (("id", "pg_catalog.int8"),)
ID = Compare(ColumnRef("id"), Operator.EQ, parameter("where", "bigint"))


def _table() -> Table:
    builder = MadeUp()
    builder.table("thing", "id", 'na"me')
    return table_named(builder.catalog(), "thing")


THING = _table()


def slot(source: str, type_: str = "text") -> Parameter:
    return parameter(source, type_)


def members(**outputs: Output) -> Object:
    return Object(tuple((Text(name), output) for name, output in outputs.items()))


SET = ValueRows(('na"me',), ((slot("v"),),))
COUNT = members(affectedCount=AffectedCount())
OWN = members(affectedCount=AffectedCount(), records=AffectedRecords(members(id=Value(ColumnRef("id")))))


def compiled(
    mutation: Mutation, output: Object, guard: Guard | None = None
) -> list[tuple[str, tuple[str, ...], tuple[Any, ...]]]:
    """Return the text, parameter types and value sources of a mutation's statements."""
    statements = compile_mutations(((Text("r"), MutationStep(mutation, KEY, output, guard)),))
    return [(plain(each.statement.text), each.statement.types, each.sources) for each in statements]


def plain(text: str) -> str:
    text = re.sub(r"operator\(pg_catalog\.([^)]+)\)", r"\1", text)
    return re.sub(r'"t~([0-9]+)"', r"t\1", text.replace("pg_catalog.", ""))


def test_insert_is_one_statement() -> None:
    insert = Insert(THING, ValueRows(("id", 'na"me'), ((slot("a", "bigint"), DEFAULT), (None, slot("b")))))
    [(text, types, sources)] = compiled(insert, OWN)
    assert text == (
        'with t1 as (insert into "public"."thing" as t3 ("id", "na""me") values ($1, default), (null, $2) '
        'returning t3."id") '
        """select '{"r":{"affectedCount":' || count(*)::text || coalesce(',"records":[{"id":' || """
        """string_agg(coalesce(int8out(t2."id")::text, 'null'), '},{"id":') || '}]}}', ',"records":[]}}') """
        "from t1 as t2 having true"
    )
    assert (types, sources) == (("bigint", "text"), ("a", "b"))


def test_rows_in_one_json_value_have_one_slot() -> None:
    """Members of the JSON value are named by their positions."""
    columns = (
        JsonColumn("id", "pg_catalog.int8", member="0"),
        JsonColumn('na"me', "pg_catalog.text", cast="pg_catalog.jsonb", member="1"),
    )
    insert = Insert(THING, JsonRows(slot("rows", "json"), True, columns))
    [(text, _, sources)] = compiled(insert, COUNT)
    assert (
        'insert into "public"."thing" as t3 ("id", "na""me") select t4."0", t4."1"::jsonb '
        'from json_to_recordset($1) as t4("0" int8, "1" text) returning 1'
    ) in text
    assert sources == ("rows",)


def test_on_conflict_has_a_target_and_updated_columns() -> None:
    insert = Insert(THING, ValueRows(("id",), ((slot("a"),),)), OnConflict(("id",), ('na"me',)))
    [(text, _, _)] = compiled(insert, COUNT)
    assert 'values ($1) on conflict ("id") do update set "na""me" = excluded."na""me" returning 1' in text
    insert = Insert(THING, ValueRows(("id",), ((slot("a"),),)), OnConflict((), (), 'thing"key'))
    [(text, _, _)] = compiled(insert, COUNT)
    assert 'on conflict on constraint "thing""key" do nothing' in text


def test_row_limit_is_checked_in_the_changing_statement() -> None:
    guard = Guard("too many", slot("most", "bigint"))
    [(text, _, sources)] = compiled(Update(THING, SET, ID), COUNT, guard)
    assert text.startswith(
        'with t1 as (update "public"."thing" as t3 set "na""me" = $1 where t3."id" = $2 returning 1) '
    )
    assert "case when count(*) > $3 then" in text
    assert f"'{ERROR_MARKER}too many~0~' || count(*)" in text
    assert sources == ("v", "where", "most")


def test_records_with_computed_values_need_a_second_statement() -> None:
    builder = MadeUp()
    oid = builder.table("thing", "id")
    builder.function("computed", oid)
    function = builder.catalog().functions[0]
    output = members(records=AffectedRecords(members(c=Value(ComputedValue(function)))))
    guard = Guard("too many", slot("most", "bigint"))
    change, result = compiled(Update(THING, SET, None), output, guard)
    assert 'returning t3."id")' in change[0]
    assert "set_config('dataapi.keys0'" in change[0]
    assert "count(*) > $2 then" in change[0]
    assert "json_array_elements(current_setting('dataapi.keys0')::json) with ordinality" in result[0]
    assert "order by t2.place" in result[0]
    assert result[2] == ()
    # Deleted rows cannot be read again.
    assert len(compiled(Delete(THING, None), output)) == 1
    # Rows without a readable key cannot be found again.
    step = MutationStep(Update(THING, SET, None), (), output)
    assert len(compile_mutations(((Text("r"), step),))) == 1


def test_last_statement_combines_the_results_of_several_changes() -> None:
    steps = (
        (Text("a"), MutationStep(Delete(THING, ID), KEY, COUNT)),
        (parameter("alias", "text"), Text("Mutation")),
    )
    *statements, last = compile_mutations(steps)
    assert [plain(each.statement.text).count("set_config('dataapi.result") for each in statements] == [1, 1]
    assert plain(last.statement.text) == (
        """select '{"a":' || current_setting('dataapi.result0') || ',' || (select to_json($1)::text) """
        "|| ':' || current_setting('dataapi.result1') || '}'"
    )
    assert [*map(str, last.sources)] == ["alias"]


TEXTS = st.text(min_size=1)


@given(sources=st.lists(TEXTS, min_size=3, max_size=3))
def test_text_of_statements_contains_no_values(sources: list[str]) -> None:
    value, filter_value, maximum = (("request", text) for text in sources)
    condition: Condition = Compare(ColumnRef('na"me'), Operator.LIKE, parameter(filter_value, "text"))

    def texts(*bound: Any) -> list[str]:
        values = ValueRows(('na"me',), ((parameter(bound[0], "a"),),))
        mutations: tuple[Mutation, ...] = (
            Insert(THING, values),
            Update(THING, values, condition),
            Delete(THING, condition),
        )
        output = members(records=AffectedRecords(members(n=NodeId("public", "thing", ("id",)))))
        return [
            text
            for mutation in mutations
            for text, _, _ in compiled(mutation, output, Guard("r", parameter(bound[1], "b")))
        ]

    assert texts(value, maximum) == texts("other", "another")
