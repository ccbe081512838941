"""A tenant's constant is said of every distributed table that it follows for; shards make what they have."""

from __future__ import annotations

from dataclasses import replace

from dataapi.catalog.model import UniqueKey
from dataapi.sql.algebra import (
    ColumnOf,
    Compare,
    ComputedOf,
    FunctionCall,
    Join,
    Operator,
    OrderTerm,
    Rows,
    Through,
)
from dataapi.sql.flat_rows import flat_json
from dataapi.sql.outputs import Text, Value, compile_query
from dataapi.sql.row_output import Many, Record
from dataapi.sql.shards import ShardRows, tenant_of
from dataapi.sql.statement import Row, Writer
from support.catalog import MadeUp, table_named
from support.slots import parameter

_MADE = MadeUp()
_MADE.table("task", "id", "company", "project")
_MADE.table("membership", "id", "company", "task", "person")
TASK = replace(table_named(_MADE.catalog(), "task"), distributed_by="company")
MEMBERSHIP = replace(table_named(_MADE.catalog(), "membership"), distributed_by="company")
OURS = Compare(ColumnOf("company"), Operator.EQ, parameter("company"))
PARENT = Row('"p"', TASK, tenant=OURS)


def test_a_filter_on_the_distribution_column_names_the_tenant() -> None:
    assert tenant_of(Rows(TASK, where=OURS), None) == (OURS, None)
    other = Compare(ColumnOf("id"), Operator.EQ, parameter("id"))
    assert tenant_of(Rows(TASK, where=other), None) == (None, None)


def test_related_rows_of_the_tenant_repeat_it() -> None:
    related = Rows(TASK, join=Join((("company", "company"), ("id", "project"))))
    assert tenant_of(related, PARENT) == (OURS, OURS)


def test_rows_joined_by_other_columns_may_be_of_any_tenant() -> None:
    assert tenant_of(Rows(TASK, join=Join((("id", "project"),))), PARENT) == (None, None)
    assert tenant_of(Rows(TASK, join=Join((("company", "project"),))), PARENT) == (None, None)


def test_a_junction_table_hands_the_tenant_on() -> None:
    near = Join((("company", "company"), ("task", "id")))
    far = Join((("company", "company"), ("person", "id")))
    assert tenant_of(Rows(TASK, through=Through(MEMBERSHIP, near, far)), PARENT) == (OURS, OURS)
    apart = Through(MEMBERSHIP, near, Join((("person", "id"),)))
    assert tenant_of(Rows(TASK, through=apart), PARENT) == (None, None)


def test_tables_of_one_server_have_no_tenant() -> None:
    plain = replace(TASK, distributed_by=None)
    assert tenant_of(Rows(plain, where=OURS), PARENT) == (None, None)


GROUPED = replace(TASK, colocated=1, clustered=True)
TOGETHER = Join((("company", "company"), ("id", "project")))


def test_shards_have_what_is_related_by_the_distribution_column_within_a_group() -> None:
    rows = ShardRows(Row('"r"'), GROUPED)
    assert rows.have(Rows(GROUPED, join=TOGETHER))
    assert not rows.have(Rows(GROUPED, join=Join((("id", "project"),))))
    assert not rows.have(Rows(replace(GROUPED, colocated=2), join=TOGETHER))
    assert not rows.have(Rows(replace(TASK, distributed_by=None), join=TOGETHER))


def test_shards_have_reference_tables_however_they_are_joined() -> None:
    reference = replace(TASK, distributed_by="", colocated=0)
    assert ShardRows(Row('"r"'), GROUPED).have(Rows(reference, join=Join((("id", "project"),))))


def test_shards_have_what_a_junction_table_leads_to_by_the_distribution_column() -> None:
    junction = replace(MEMBERSHIP, colocated=1)
    near = Join((("company", "company"), ("task", "id")))
    far = Join((("company", "company"), ("person", "id")))
    rows = ShardRows(Row('"r"'), GROUPED)
    assert rows.have(Rows(GROUPED, through=Through(junction, near, far)))
    assert not rows.have(Rows(GROUPED, through=Through(junction, near, Join((("person", "id"),)))))
    assert not rows.have(Rows(GROUPED, through=Through(junction, Join((("task", "id"),)), far)))


ORDER = (OrderTerm(ColumnOf("id"), nullable=False),)
ID = Value(ColumnOf("id"))


def sql(rows: Rows, *members: Value | Many) -> str:
    """Return the statement of a list of rows."""
    record = Record(tuple((Text(f"m{place}"), member) for place, member in enumerate(members)))
    return compile_query(Many(rows, record)).statement.text


def test_related_rows_are_made_where_the_rows_of_all_shards_are_selected() -> None:
    text = sql(Rows(GROUPED, order=ORDER), Many(Rows(GROUPED, join=TOGETHER), Record(((Text("id"), ID),))))
    assert '"t~2"."~made0"' in text
    assert text.index('as "~made0"') < text.index('from "public"."task" as "t~1"')


def test_rows_of_a_cluster_are_ordered_as_a_whole_without_a_limit() -> None:
    assert sql(Rows(GROUPED, order=ORDER), ID).endswith('order by "t~1"."id" offset 0) as "t~2"')
    assert "offset" not in sql(Rows(TASK, order=ORDER), ID)
    assert "offset" not in sql(Rows(GROUPED), ID)


def test_no_function_that_returns_rows_is_read_as_a_part_of_the_statement() -> None:
    made = MadeUp()
    made.function("tasks", returns=20, returns_set=True)
    function = replace(made.catalog().functions[0], clustered=True)
    assert 'from "public"."tasks"() with ordinality as "t~1"' in sql(Rows(None, FunctionCall(function)), ID)
    plain = replace(function, clustered=False)
    assert 'from "public"."tasks"() as "t~1"' in sql(Rows(None, FunctionCall(plain)), ID)


def test_values_of_one_distributed_row_are_written_without_their_types() -> None:
    """Of several rows, or on one server, by what is fastest for the type."""
    keyed = replace(GROUPED, unique_keys=(UniqueKey("k", ("company",), constraint=True),))
    one = Rows(keyed, where=OURS, order=ORDER)
    written = 'pg_catalog.to_json("t~2"."id")', 'pg_catalog.int8out("t~2"."id")'
    assert [text in sql(one, ID) for text in written] == [True, False]
    assert [text in sql(replace(one, table=replace(keyed, distributed_by=None)), ID) for text in written] == [
        False,
        True,
    ]
    assert "int8out" in sql(Rows(GROUPED, where=OURS), ID)


def test_a_whole_row_of_a_shard_is_given_the_type_of_its_table() -> None:
    made = MadeUp()
    made.function("label")
    label = Value(ComputedOf(made.catalog().functions[0]))
    row = 'row("t~1"."id", "t~1"."company", "t~1"."project")::"public"."task"'
    assert row in sql(Rows(GROUPED), label)
    assert row not in sql(Rows(replace(GROUPED, distributed_by=None)), label)


def test_one_row_of_a_tenant_is_answered_by_its_table_alone() -> None:
    """Where nothing but its columns is asked for."""
    keyed = replace(GROUPED, unique_keys=(UniqueKey("k", ("company",), constraint=True),))
    one = Rows(keyed, where=OURS, limit=1000)
    found = flat_json(Writer(), Record(((Text("id"), ID),)), one)
    assert found is not None
    assert found.source == '"public"."task" as "t~1" where "t~1"."company" operator(pg_catalog.=) $1'
    related = Many(Rows(GROUPED, join=TOGETHER), Record(((Text("id"), ID),)))
    assert flat_json(Writer(), Record(((Text("id"), ID), (Text("all"), related))), one) is None
    for other in (
        replace(one, limit=0),
        replace(one, limit=parameter("limit")),
        replace(one, offset=parameter("offset")),
        replace(one, table=GROUPED),
        replace(one, table=replace(keyed, distributed_by=None)),
    ):
        assert flat_json(Writer(), Record(((Text("id"), ID),)), other) is None
