"""Aggregates and grouping: which SQL aggregate a field asks for, and over which groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphql import GraphQLError

from dataapi.graphql.arguments import Tree
from dataapi.graphql.conditions import all_of, operator_conditions
from dataapi.graphql.fields import ColumnField
from dataapi.graphql.scalars import BIG_FLOAT, BIG_INT
from dataapi.graphql.sources import Bounded
from dataapi.graphql.table_view import TableView
from dataapi.graphql.wire import Wire
from dataapi.query.algebra import AggregateFunction, AggregateOf, ColumnOf, Expression
from dataapi.query.conditions import Condition
from dataapi.query.results import Null, Output, Value, WireForm

_FUNCTIONS = {
    "sum": AggregateFunction.SUM,
    "avg": AggregateFunction.AVG,
    "min": AggregateFunction.MIN,
    "max": AggregateFunction.MAX,
    "countDistinct": AggregateFunction.COUNT,
}
# PostgreSQL has no min(boolean); false is less than true.
_BOOLEAN_FUNCTIONS = {"min": AggregateFunction.EVERY, "max": AggregateFunction.SOME}


def aggregate_of(name: str, field: ColumnField) -> AggregateOf:
    """Return the aggregate of a column that a field such as ``sum`` asks for."""
    function = _FUNCTIONS[name]
    if field.wire.kind == "Boolean":
        function = _BOOLEAN_FUNCTIONS.get(name, function)
    builtin = name == "countDistinct" or field.wire.builtin
    return AggregateOf(function, ColumnOf(field.column.name), name == "countDistinct", builtin)


def aggregate_value(name: str, field: ColumnField) -> Output:
    """Return the output of a column's aggregate (specification, Aggregates: result types)."""
    aggregate = aggregate_of(name, field)
    if name in ("sum", "avg"):
        return Value(aggregate, WireForm.TEXT)
    if name == "countDistinct":
        return Value(aggregate)
    return Value(aggregate, field.wire.form, field.wire.labels)


@dataclass(frozen=True, slots=True)
class Grouping:
    """The arguments of ``groupBy``, understood.

    :ivar page: the most groups.
    """

    keys: tuple[Expression, ...]
    having: Condition | None
    page: Bounded | int

    def key_value(self, view: TableView, name: str) -> Output:
        """Return a key's output; null for a column that the rows are not grouped by."""
        field = view.columns_by_name[name]
        expression = ColumnOf(field.column.name)
        return Value(expression, field.wire.form, field.wire.labels) if expression in self.keys else Null()


def read_grouping(view: TableView, arguments: Mapping[str, Tree]) -> Grouping:
    """Return what the arguments of ``groupBy`` ask for.

    :raises GraphQLError: no column to group by.
    """
    names = dict.fromkeys(arguments["by"].sample)
    if not names:
        raise GraphQLError("groupBy needs at least one column in `by`")
    first = arguments.get("first")
    return Grouping(
        tuple(ColumnOf(name) for name in names),
        _having_condition(view, arguments.get("having") or {}),
        view.max_rows if first is None else Bounded("first", first, view.max_rows),
    )


def _having_condition(view: TableView, having: Mapping[str, Tree]) -> Condition | None:
    conditions: list[Condition] = []
    for name, member in having.items():
        if member is None:
            continue
        if name == "count":
            conditions += operator_conditions(AggregateOf(AggregateFunction.COUNT), _BIG_INT, member)
            continue
        for column, operators in member.items():
            field = view.columns_by_name[column]
            if operators is not None:
                conditions += operator_conditions(
                    aggregate_of(name, field), _wire(name, field.wire), operators
                )
    return all_of(conditions)


def _wire(name: str, wire: Wire) -> Wire:
    if name == "countDistinct":
        return _BIG_INT
    return _NUMERIC if name in ("sum", "avg") else wire


_BIG_INT = Wire(BIG_INT, 0, False, WireForm.TEXT, (), 'pg_catalog."int8"', 'pg_catalog."_int8"')
_NUMERIC = Wire(BIG_FLOAT, 0, False, WireForm.TEXT, (), 'pg_catalog."numeric"', 'pg_catalog."_numeric"')
