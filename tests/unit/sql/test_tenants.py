"""A tenant's constant is said of every distributed table of a statement that it follows for."""

from __future__ import annotations

from dataclasses import replace

from dataapi.sql.algebra import ColumnOf, Compare, Join, Operator, Rows, Through
from dataapi.sql.expressions import tenant_of
from dataapi.sql.statement import Row
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
    near, far = (("company", "company"), ("task", "id")), (("company", "company"), ("person", "id"))
    assert tenant_of(Rows(TASK, through=Through(MEMBERSHIP, near, far)), PARENT) == (OURS, OURS)
    apart = Through(MEMBERSHIP, near, (("person", "id"),))
    assert tenant_of(Rows(TASK, through=apart), PARENT) == (None, None)


def test_tables_of_one_server_have_no_tenant() -> None:
    plain = replace(TASK, distributed_by=None)
    assert tenant_of(Rows(plain, where=OURS), PARENT) == (None, None)
