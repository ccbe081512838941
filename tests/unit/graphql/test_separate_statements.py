"""Mutations of distributed tables use separate messages if a statement needs another statement's result."""

from __future__ import annotations

from dataclasses import replace

from dataapi.graphql.mutation_statements import AffectedCount, AffectedRecords, MutationStep
from dataapi.graphql.separate_statements import bind_after, compile_separately, needs_several_messages
from dataapi.graphql.sources import Fixed
from dataapi.sql.algebra import ColumnRef, Join, Parameter, Rows
from dataapi.sql.dialects.citus import CITUS
from dataapi.sql.mutations import Insert, ValueRows
from dataapi.sql.outputs import Object, Output, Text, Value
from dataapi.sql.row_output import One
from support.catalog import MadeUp, table_named

_BUILDER = MadeUp()
_BUILDER.table("task", "id", "company_id", key=("company_id", "id"))
PLAIN = table_named(_BUILDER.catalog(), "task")
SHARDED = replace(PLAIN, distributed_by="company_id", colocated=1)
KEY = (("company_id", 'pg_catalog."int8"'), ("id", 'pg_catalog."int8"'))
COUNT = Object(((Text("affectedCount"), AffectedCount()),))
PARENT = One(Rows(SHARDED, join=Join((("company_id", "company_id"), ("id", "id")))), Value(ColumnRef("id")))


def step(output: Object, *companies: str) -> MutationStep:
    rows = tuple((Parameter(Fixed(company), 'pg_catalog."int8"'),) for company in companies)
    return MutationStep(Insert(SHARDED, ValueRows(("company_id",), rows)), KEY, output)


def records(output: Output) -> Object:
    return Object(((Text("records"), AffectedRecords(Object(((Text("parent"), output),)))),))


def test_independent_mutation_is_one_message() -> None:
    assert not needs_several_messages([step(COUNT, "c")])


def test_several_fields_or_related_rows_need_several_messages() -> None:
    assert needs_several_messages([step(COUNT, "c"), step(COUNT, "c")])
    assert needs_several_messages([step(records(PARENT), "c")])


def test_changed_rows_are_read_by_their_returned_keys() -> None:
    [field] = compile_separately(CITUS, ["r"], [step(records(PARENT), "c")])
    change, result = field.messages
    assert change[0].statement.text.startswith('insert into "public"."task"')
    row = ("1", '{"(3,4)"}', "{3}", "{4}")
    [bound] = bind_after(result, {}, row)
    assert set(bound.values) == {*row, "c"}


def test_common_tenant_is_a_filter_of_every_table_read() -> None:
    [same_tenant] = compile_separately(CITUS, ["r"], [step(records(PARENT), "c", "c")])
    assert same_tenant.statements[-1].statement.text.count('"company_id" operator(pg_catalog.=) $') == 2
    [two_tenants] = compile_separately(CITUS, ["r"], [step(records(PARENT), "c", "d")])
    assert '"company_id" operator(pg_catalog.=) $' not in two_tenants.statements[-1].statement.text
