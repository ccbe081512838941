"""A read's shape to the algebra: rows of a table with what is selected of each; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dataapi.catalog.model import Column, Table
from dataapi.errors import ApiError
from dataapi.query.algebra import ColumnOf, Join, OrderTerm, Parameter, Rows
from dataapi.query.answers import Form, Total, compile_answer
from dataapi.query.results import Key, Many, Object, One, Output, Text, Value
from dataapi.query.sql import Compiled
from dataapi.rest.grammar import parse_order, parse_select
from dataapi.rest.ranges import Window
from dataapi.rest.shape import Shape
from dataapi.rest.syntax import Embed, Field, Item, Star, Term
from dataapi.rest.tables import ReadableTables
from dataapi.rest.unsupported import unsupported

Windows = Mapping[str, Window]


@dataclass(frozen=True, slots=True)
class Alias:
    """A member's name as the client gave it."""

    text: str

    def bind(self, windows: Windows) -> str:  # noqa: ARG002 - the sources' interface
        """Return the name."""
        return self.text


@dataclass(frozen=True, slots=True)
class Limit:
    """How many rows of a resource are asked for."""

    path: str

    def bind(self, windows: Windows) -> str:
        """Return the number."""
        return str(windows[self.path].limit)


@dataclass(frozen=True, slots=True)
class Offset:
    """How many rows of a resource are skipped."""

    path: str

    def bind(self, windows: Windows) -> str:
        """Return the number."""
        return str(windows[self.path].offset)


Source = Alias | Limit | Offset
Member = tuple[Key, Output]


def compile_read(tables: ReadableTables, shape: Shape, most: int | None) -> Compiled:
    """Return the statement of a read, whose slots take their values from ``Source``s.

    :param most: the most rows that an embedded resource gives.
    :raises ApiError: for what is not there, not available or cannot be understood.
    """
    items = parse_select(shape.select)
    table = tables.find(shape.schema, shape.table)
    compiler = _Compiler(tables, shape, most)
    output = compiler.members(table, items, "")
    total = Total.EXACT if shape.counted else Total.NONE
    compiled = compile_answer(compiler.rows(table, "", None), output, Form.ARRAY, total)
    compiler.check_used()
    return compiled


class _Compiler:
    """Compiles one read, keeping account of which parameters found their resource."""

    def __init__(self, tables: ReadableTables, shape: Shape, most: int | None) -> None:
        self._tables = tables
        self._orders = dict(shape.orders)
        self._limited = shape.limited
        self._moved = shape.moved
        self._most = most
        self._used: set[str] = set()

    def rows(self, table: Table, path: str, join: Join | None) -> Rows:
        """Return the rows of a resource in the order and within the window asked for."""
        self._used.add(path)
        order = self._orders.get(path)
        terms = parse_order(order, f"{path}.order" if path else "order") if order else ()
        limit = Parameter(Limit(path), "bigint") if path in self._limited else self._most
        return Rows(
            table,
            join=join,
            order=tuple(_order_term(table, term) for term in terms),
            limit=limit,
            offset=Parameter(Offset(path), "bigint") if path in self._moved else None,
        )

    def members(self, table: Table, items: tuple[Item, ...], path: str) -> Object:
        """Return the object of a row."""
        members: list[Member] = []
        for item in items:
            match item:
                case Star():
                    members += [(Text(each.name), Value(ColumnOf(each.name))) for each in table.columns]
                case Field():
                    members.append(_field(table, item))
                case Embed():
                    members.append(self._embed(table, item, path))
        return Object(tuple(members))

    def _embed(self, table: Table, embed: Embed, path: str) -> Member:
        if embed.spread:
            raise unsupported(f'Spreading an embedded resource is not available yet: "...{embed.name}".')
        if "inner" in embed.hints:
            raise unsupported(f'Inner joins are not available yet: "{embed.name}!inner".')
        way, target = self._tables.relationship(table, embed)
        inner = f"{path}.{embed.key}" if path else embed.key
        key = _key(target.name if embed.name == target.name else None, embed.key)
        join = Join(tuple((theirs, own) for own, theirs in way.pairs))
        output = self.members(target, embed.items, inner)
        if not way.to_one:
            return key, Many(self.rows(target, inner, join), output)
        if inner in self._orders or inner in self._limited or inner in self._moved:
            raise unsupported(f"'{inner}' is at most one row, which cannot be ordered or limited.")
        return key, One(Rows(target, join=join, unique=True), output)

    def check_used(self) -> None:
        """Refuse parameters for resources that were not embedded."""
        for path in (*self._orders, *self._limited, *self._moved):
            if path not in self._used:
                name = path.rpartition(".")[2]
                raise ApiError(
                    400,
                    "PGRST108",
                    f"'{name}' is not an embedded resource in this request",
                    hint=f"Verify that '{name}' is included in the 'select' query parameter.",
                )


def _key(of_catalog: str | None, name: str) -> Key:
    """Return a member's name: one of the catalog's, or the client's as a value."""
    return Text(name) if name == of_catalog else Parameter(Alias(name), "text")


def _field(table: Table, field: Field) -> Member:
    if field.aggregate is not None:
        raise unsupported(f'Aggregates are not available yet: "{field.name}.{field.aggregate}()".')
    if field.cast is not None:
        raise unsupported(f'Casts are not available yet: "{field.name}::{field.cast}".')
    if field.path:
        raise unsupported(f'Paths into JSON are not available yet: "{field.name}->{field.path[0].operand}".')
    column = _column(table, field.name)
    return _key(column.name, field.alias or column.name), Value(ColumnOf(column.name))


def _order_term(table: Table, term: Term) -> OrderTerm:
    if term.relation is not None:
        raise unsupported(f'Ordering by a resource is not available yet: "{term.relation}({term.name})".')
    if term.path:
        raise unsupported(f'Paths into JSON are not available yet: "{term.name}->{term.path[0].operand}".')
    column = _column(table, term.name)
    descending = bool(term.descending)
    # PostgreSQL takes nulls for the largest values unless it is told otherwise.
    nulls_first = descending if term.nulls_first is None else term.nulls_first
    return OrderTerm(ColumnOf(column.name), descending, nulls_first, column.nullable)


def _column(table: Table, name: str) -> Column:
    column = table.column(name)
    if column is None:
        raise ApiError(400, "42703", f"column {table.name}.{name} does not exist")
    return column
