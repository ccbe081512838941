"""Mutations of distributed tables are sent statement by statement where one needs what another returned."""

from __future__ import annotations

from dataclasses import replace

from dataapi.graphql.mutation_statements import AffectedCount, AffectedRecords, MutationStep
from dataapi.graphql.separate_statements import are_separate, bound_after, compile_separately
from dataapi.graphql.sources import Fixed
from dataapi.sql.algebra import ColumnRef, Join, Parameter, Rows
from dataapi.sql.dialects.citus import CITUS
from dataapi.sql.mutations import Insert, ValueRows
from dataapi.sql.outputs import Object, Output, Text, Value
from dataapi.sql.row_output import One
from support.catalog import MadeUp, table_named

_MADE = MadeUp()
_MADE.table("task", "id", "company_id", key=("company_id", "id"))
PLAIN = table_named(_MADE.catalog(), "task")
SHARDED = replace(PLAIN, distributed_by="company_id", colocated=1)
KEY = (("company_id", 'pg_catalog."int8"'), ("id", 'pg_catalog."int8"'))
COUNT = Object(((Text("affectedCount"), AffectedCount()),))
PARENT = One(Rows(SHARDED, join=Join((("company_id", "company_id"), ("id", "id")))), Value(ColumnRef("id")))


def step(output: Object, *companies: str) -> MutationStep:
    rows = tuple((Parameter(Fixed(company), 'pg_catalog."int8"'),) for company in companies)
    return MutationStep(Insert(SHARDED, ValueRows(("company_id",), rows)), KEY, output)


def records(output: Output) -> Object:
    return Object(((Text("records"), AffectedRecords(Object(((Text("parent"), output),)))),))


def test_what_needs_nothing_of_another_statement_is_sent_at_once() -> None:
    assert not are_separate([step(COUNT, "c")])


def test_several_fields_and_related_rows_are_sent_one_by_one() -> None:
    assert are_separate([step(COUNT, "c"), step(COUNT, "c")])
    assert are_separate([step(records(PARENT), "c")])


def test_rows_are_found_again_by_what_the_change_returned() -> None:
    [field] = compile_separately(CITUS, ["r"], [step(records(PARENT), "c")])
    change, answer = field.messages
    assert change[0].statement.text.startswith('insert into "public"."task"')
    row = ("1", '{"(3,4)"}', "{3}", "{4}")
    [bound] = bound_after(answer, {}, row)
    assert set(bound.values) == {*row, "c"}


def test_the_tenant_of_all_rows_is_said_of_every_table_that_is_read_again() -> None:
    [one] = compile_separately(CITUS, ["r"], [step(records(PARENT), "c", "c")])
    assert one.statements[-1].statement.text.count('"company_id" operator(pg_catalog.=) $') == 2
    [several] = compile_separately(CITUS, ["r"], [step(records(PARENT), "c", "d")])
    assert '"company_id" operator(pg_catalog.=) $' not in several.statements[-1].statement.text
