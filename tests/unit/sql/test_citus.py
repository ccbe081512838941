"""SQL for Citus: tenant filters on distributed tables, and JSON that the shards compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dataapi.catalog.model import UniqueKey
from dataapi.rest.media_output import Form
from dataapi.rest.statements import compile_result
from dataapi.sql.algebra import (
    And,
    ColumnRef,
    Compare,
    ComputedValue,
    Exists,
    FunctionCall,
    Join,
    Operator,
    OrderTerm,
    Rows,
    Through,
)
from dataapi.sql.dialect import POSTGRESQL, Dialect, compile_query
from dataapi.sql.dialects.citus import CITUS
from dataapi.sql.dialects.tenants import pinned, tenant_in
from dataapi.sql.mutations import Delete, Insert, ValueRows
from dataapi.sql.outputs import Text, Value
from dataapi.sql.row_output import Many, Record
from dataapi.sql.statement import Guard
from support.catalog import MadeUp, table_named
from support.slots import parameter

_BUILDER = MadeUp()
_BUILDER.table("task", "id", "company", "project")
_BUILDER.table("membership", "id", "company", "task", "person")
TASK = replace(table_named(_BUILDER.catalog(), "task"), distributed_by="company")
MEMBERSHIP = replace(table_named(_BUILDER.catalog(), "membership"), distributed_by="company")
OURS = Compare(ColumnRef("company"), Operator.EQ, parameter("company"))
OTHER = Compare(ColumnRef("id"), Operator.EQ, parameter("id"))


def test_filter_on_the_distribution_column_sets_the_tenant() -> None:
    assert tenant_in(Rows(TASK, where=OURS)) == OURS
    assert tenant_in(Rows(TASK, where=And((OTHER, OURS)))) == OURS
    assert tenant_in(Rows(TASK, where=OTHER)) is None


def test_mutation_sets_the_tenant_by_filter_or_common_value() -> None:
    assert tenant_in(Delete(TASK, OURS)) == OURS
    company, other_company = parameter("company"), parameter("another")
    assert tenant_in(Insert(TASK, ValueRows(("company",), ((company,), (company,))))) == OURS
    assert tenant_in(Insert(TASK, ValueRows(("company",), ((company,), (other_company,))))) is None
    assert tenant_in(Insert(TASK, ValueRows(("id",), ((company,),)))) is None


def related(rows: Rows) -> Rows:
    """Return the rows with tenant filters, as rows related to a row of the tenant."""
    result = pinned(Many(Rows(TASK, where=OURS), Many(rows, ID))).output
    assert isinstance(result, Many)
    return result.rows


def test_related_rows_repeat_the_tenant_filter() -> None:
    rows = Rows(TASK, join=Join((("company", "company"), ("id", "project"))))
    assert related(rows).where == OURS
    assert related(replace(rows, where=OTHER)).where == And((OURS, OTHER))
    assert related(replace(rows, where=OURS)) == replace(rows, where=OURS)


def test_conditions_on_related_rows_repeat_the_tenant_filter() -> None:
    rows = Rows(TASK, join=TOGETHER)
    result = pinned(Rows(TASK, where=And((OURS, Exists(rows)))))
    assert result.where == And((OURS, Exists(replace(rows, where=OURS))))
    assert pinned(Delete(TASK, And((OURS, Exists(rows))))).where == result.where


def test_rows_joined_by_other_columns_have_no_tenant_filter() -> None:
    for pairs in ((("id", "project"),), (("company", "project"),)):
        rows = Rows(TASK, join=Join(pairs))
        assert related(rows) is rows


def test_tenant_filter_passes_through_a_junction_table() -> None:
    near = Join((("company", "company"), ("task", "id")))
    far = Join((("company", "company"), ("person", "id")))
    result = related(Rows(TASK, through=Through(MEMBERSHIP, near, far)))
    assert (result.where, result.through) == (OURS, Through(MEMBERSHIP, near, far, OURS))
    separate = Through(MEMBERSHIP, near, Join((("person", "id"),)))
    assert related(Rows(TASK, through=separate)).where is None


def test_tables_that_are_not_distributed_have_no_tenant() -> None:
    plain = Rows(replace(TASK, distributed_by=None), join=TOGETHER)
    assert related(plain) is plain


GROUPED = replace(TASK, colocated=1)
TOGETHER = Join((("company", "company"), ("id", "project")))
ORDER = (OrderTerm(ColumnRef("id"), nullable=False),)
ID = Value(ColumnRef("id"))
ONLY_ID = Record(((Text("id"), ID),))


def sql(rows: Rows, *members: Value | Many, dialect: Dialect = CITUS) -> str:
    """Return the statement that reads a list of rows."""
    record = Record(tuple((Text(f"m{position}"), member) for position, member in enumerate(members)))
    return compile_query(Many(rows, record), dialect).statement.text


def is_computed_on_shards(rows: Rows) -> bool:
    return '"~made0"' in sql(Rows(GROUPED), Many(rows, ID))


def test_related_rows_of_a_colocated_table_are_computed_on_shards() -> None:
    assert is_computed_on_shards(Rows(GROUPED, join=TOGETHER))
    assert not is_computed_on_shards(Rows(GROUPED, join=Join((("id", "project"),))))
    assert not is_computed_on_shards(Rows(replace(GROUPED, colocated=2), join=TOGETHER))
    assert not is_computed_on_shards(Rows(replace(TASK, distributed_by=None), join=TOGETHER))


def test_related_rows_of_a_reference_table_are_computed_on_shards() -> None:
    reference = replace(TASK, distributed_by="", colocated=0)
    related = Rows(reference, join=Join((("id", "project"),)))
    assert is_computed_on_shards(related)
    assert "~made" not in sql(Rows(reference), Many(related, ID))


def test_rows_behind_a_colocated_junction_are_computed_on_shards() -> None:
    junction = replace(MEMBERSHIP, colocated=1)
    near = Join((("company", "company"), ("task", "id")))
    far = Join((("company", "company"), ("person", "id")))
    assert is_computed_on_shards(Rows(GROUPED, through=Through(junction, near, far)))
    separate = Join((("person", "id"),))
    assert not is_computed_on_shards(Rows(GROUPED, through=Through(junction, near, separate)))
    assert not is_computed_on_shards(Rows(GROUPED, through=Through(junction, Join((("task", "id"),)), far)))


def test_related_rows_are_computed_in_the_query_of_all_shards() -> None:
    text = sql(Rows(GROUPED, order=ORDER), Many(Rows(GROUPED, join=TOGETHER), ONLY_ID))
    assert '"t~2"."~made0"' in text
    assert text.index('as "~made0"') < text.index('from "public"."task" as "t~1"')
    assert "~made" not in sql(Rows(GROUPED, where=OURS), Many(Rows(GROUPED, join=TOGETHER), ONLY_ID))


def test_distributed_rows_are_ordered_on_the_coordinator() -> None:
    assert sql(Rows(GROUPED, order=ORDER), ID).endswith('order by "t~1"."id" offset 0) as "t~2"')
    assert "offset" not in sql(Rows(GROUPED), ID)
    assert "offset" not in sql(Rows(GROUPED, order=ORDER), ID, dialect=POSTGRESQL)


def test_set_returning_function_is_not_inlined() -> None:
    builder = MadeUp()
    builder.function("tasks", returns=20, returns_set=True)
    call = FunctionCall(builder.catalog().functions[0])
    assert 'from "public"."tasks"() with ordinality as "t~1"' in sql(Rows(None, call), ID)
    assert 'from "public"."tasks"() as "t~1"' in sql(Rows(None, call), ID, dialect=POSTGRESQL)


KEYED = replace(GROUPED, unique_keys=(UniqueKey("k", ("company",), constraint=True),))
LOCAL = replace(KEYED, distributed_by=None, colocated=None)


def test_values_of_one_distributed_row_use_to_json() -> None:
    rows = Rows(KEYED, where=OURS, order=ORDER)
    expressions = 'pg_catalog.to_json("t~2"."id")', 'pg_catalog.int8out("t~2"."id")'
    assert [text in sql(rows, ID) for text in expressions] == [True, False]
    assert [text in sql(replace(rows, table=LOCAL), ID) for text in expressions] == [False, True]
    assert "int8out" in sql(Rows(GROUPED, where=OURS), ID)


def test_whole_row_of_a_shard_is_cast_to_its_table() -> None:
    builder = MadeUp()
    builder.function("label")
    label = Value(ComputedValue(builder.catalog().functions[0]))
    row = 'row("t~1"."id", "t~1"."company", "t~1"."project")::"public"."task"'
    assert row in sql(Rows(GROUPED), label)
    assert row not in sql(Rows(LOCAL), label)


def read_sql(rows: Rows, *members: Many, max_bytes: int | None = None, guard: Guard | None = None) -> str:
    """Return the SQL of a REST read that returns the rows' IDs."""
    record = Record((*ONLY_ID.members, *((Text("all"), each) for each in members)))
    result = compile_result(rows, record, Form.ARRAY, max_bytes=max_bytes, guard=guard, dialect=CITUS)
    return result.statement.text


ONE = Rows(KEYED, where=OURS, limit=1000)


def test_one_row_of_a_tenant_needs_no_subquery() -> None:
    suffix = ' from "public"."task" as "t~1" where "t~1"."company" operator(pg_catalog.=) $1'
    assert read_sql(ONE).endswith(suffix)
    assert read_sql(ONE).count("select ") == 1
    for other in (
        replace(ONE, limit=0),
        replace(ONE, limit=parameter("limit")),
        replace(ONE, offset=parameter("offset")),
        replace(ONE, table=GROUPED),
        replace(ONE, table=LOCAL),
    ):
        assert not read_sql(other).endswith(suffix)
    assert not read_sql(ONE, Many(Rows(GROUPED, join=TOGETHER), ONLY_ID)).endswith(suffix)


def test_size_of_one_row_is_the_sum_of_its_parts() -> None:
    text = read_sql(ONE, max_bytes=100, guard=Guard("one"))
    assert text.count("select ") == 1
    size = len('[{"id":,}]') + 20
    assert f"else case when {size} operator(pg_catalog.>) 100 then" in text


def shard(rows: int, cost: float) -> dict[str, Any]:
    return {"Remote Plan": [[{"Plan": {"Plan Rows": rows, "Total Cost": cost}}]]}


def test_planned_rows_of_a_local_plan() -> None:
    plans = [{"Plan": {"Node Type": "Seq Scan", "Plan Rows": 7, "Total Cost": 0.0}}]
    assert [POSTGRESQL.planned_rows(plans), CITUS.planned_rows(plans)] == [7, 7]


def test_planned_rows_of_shards_are_added_except_empty_ones() -> None:
    """PostgreSQL estimates at least one row, even for an empty shard."""
    tasks = [shard(20, 1.25), shard(1, 0.0), shard(30, 1.5), shard(1, 8.27)]
    plan = {"Plan Rows": 100_000, "Distributed Query": {"Job": {"Tasks": tasks}}}
    assert CITUS.planned_rows([{"Plan": plan}]) == 51
