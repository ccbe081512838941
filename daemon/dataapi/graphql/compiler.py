"""Compiles an operation's fields to the SQL algebra, for variables of given shapes (see ``input_values``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Protocol, TypeVar

from graphql import FieldNode, GraphQLError

from dataapi.catalog.model import Table
from dataapi.catalog.registry import TableType
from dataapi.graphql.arguments import InputObject, InputTree, Selector, as_leaf, as_object, stored_value
from dataapi.graphql.collection_arguments import page_size, read_page
from dataapi.graphql.filters import aggregate_of, comparison, having_condition, key_condition, operand
from dataapi.graphql.outputs import (
    CollectionAggregates,
    ConnectionOutput,
    Edges,
    FunctionValue,
    FunctionVoid,
    Groups,
    NodeId,
    PageInfo,
    PageInfoField,
    RowCursor,
)
from dataapi.graphql.schema.catalog_view import ColumnField, ComputedField, RelatedField, TableView
from dataapi.graphql.schema.functions import FunctionField, arguments_error
from dataapi.graphql.schema.role_schema import RoleSchema
from dataapi.graphql.schema.shared_types import NODE, PAGE_INFO
from dataapi.graphql.schema.type_mapping import aggregate_mapping
from dataapi.graphql.sources import PARAMETER, Alias, Fixed, InputLeaf, Variables, limit_of
from dataapi.graphql.transport import RequestRejected, Stage
from dataapi.sql.algebra import (
    Aggregate,
    AggregateFunction,
    And,
    CallArgument,
    ColumnRef,
    ComputedValue,
    FunctionCall,
    Operator,
    OrderTerm,
    Parameter,
    Rows,
)
from dataapi.sql.outputs import Key, Null, Object, Output, Text, Value
from dataapi.sql.row_output import One

GROWTH_FACTOR, GROWTH_ROWS = 2, 1_000
"""Assumed growth of a table since its rows were estimated: to twice the estimate plus a thousand."""


class PageSize(Protocol):
    """A number of rows that depends on variables."""

    @property
    def maximum(self) -> int | None:
        """The maximum number of rows, None for no limit."""

    def count(self, variables: Variables) -> int:
        """Return the number of rows."""


def capacity(table: Table) -> int | None:
    rows = table.estimated_rows
    return None if rows is None else GROWTH_FACTOR * rows + GROWTH_ROWS


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a page: its number of rows, and the costs of the pages nested in each row.

    :ivar capacity: the maximum number of rows in the table, None if unknown.
    :ivar disjoint: whether pages of different parents share no rows. All of these pages together then have at
        most ``capacity`` rows.
    """

    page: PageSize | int
    nested: tuple[Cost, ...] = ()
    capacity: int | None = None
    disjoint: bool = False

    def rows(self, variables: Variables) -> int:
        return int(self._rows(lambda page: page.count(variables)))

    def maximum(self) -> float:
        return self._rows(lambda page: inf if page.maximum is None else page.maximum)

    def _rows(self, size: Callable[[PageSize], float], parents: float = 1, *, distinct: bool = True) -> float:
        page = self.page if isinstance(self.page, int) else size(self.page)
        limit = inf if self.capacity is None else self.capacity
        distinct = distinct and self.disjoint
        rows = min(parents * min(page, limit), limit if distinct else inf)
        return rows + sum(cost._rows(size, rows, distinct=distinct) for cost in self.nested)


def function_output(
    compiler: Compiler, field: FunctionField, nodes: list[FieldNode], arguments: InputObject
) -> Output:
    """Return the output of a function's field.

    :raises GraphQLError: no overload accepts the provided arguments.
    """
    own = field.arguments()
    provided = [name for name in arguments if name in own]
    overload = field.choose(provided)
    if overload is None:
        raise GraphQLError(arguments_error(field, provided))
    values = tuple(
        CallArgument(item.argument.name, stored_value(item.mapping, arguments[item.name]), item.composite)
        for item in overload.arguments
        if item.name in provided
    )
    call = FunctionCall(overload.function, values)
    if field.view is not None:
        rows = Rows(field.view.table, call=call, unique=not overload.function.returns_set)
        if not field.is_list:
            return compiler.one(field.view, rows, nodes)
        paging = {name: tree for name, tree in arguments.items() if name not in own}
        return compiler.connection(field.view, rows, nodes, paging)
    if field.mapping is None:
        return FunctionVoid(call)
    return FunctionValue(call, field.mapping.form, field.mapping.labels, field.is_list)


def member_key(key: str, node: FieldNode) -> Key:
    if key == node.name.value:
        return Text(key)
    return Parameter(Alias(key) if key.startswith(PARAMETER) else Fixed(key), "text")


COUNT = Aggregate(AggregateFunction.COUNT)

MAX_OBJECTS = 3_000
"""Maximum number of objects that one operation may select. Compiling this many takes about half a second.

A short document with fragments that spread each other twice could select millions.
"""


FieldOutput = Callable[[list[FieldNode]], Output]
T = TypeVar("T")


class Compiler:
    """Compiles the fields of one operation, and tracks the response path and the costs of the pages."""

    def __init__(self, schema: RoleSchema, selector: Selector) -> None:
        self.schema = schema
        self.selector = selector
        self._path: list[str | int] = []
        self.costs: list[Cost] = []
        self._objects = 0

    def at(self, key: str, nodes: list[FieldNode], compiled: Callable[[list[FieldNode]], T]) -> T:
        """Compile a field and return its output.

        :raises GraphQLError: compilation fails. The error contains the location and response path.
        """
        depth = len(self._path)
        self._path.append(key)
        try:
            return compiled(nodes)
        except GraphQLError as error:
            if error.path is not None:
                raise
            raise GraphQLError(error.message, error.nodes or nodes[0], path=list(self._path)) from None
        finally:
            del self._path[depth:]

    @contextmanager
    def costing(
        self, page: PageSize | int, table: Table | None = None, *, disjoint: bool = False
    ) -> Iterator[None]:
        """Add the cost of a page. Pages compiled in this context are nested in the rows of that page.

        :param table: the table of the rows, None if a row may occur several times or belongs to no table.
        :param disjoint: whether the pages of different parents share no rows.
        """
        outer, self.costs = self.costs, []
        maximum = None if table is None else capacity(table)
        try:
            yield
            outer.append(Cost(page, tuple(self.costs), maximum, disjoint))
        finally:
            self.costs = outer

    def arguments(self, node: FieldNode, type_name: str) -> dict[str, InputTree]:
        arguments = self.schema.object_type(type_name).fields[node.name.value].args
        return self.selector.arguments(node, arguments, tuple(self._path))

    def members(
        self,
        type_name: str,
        nodes: list[FieldNode],
        output: FieldOutput,
        interfaces: tuple[str, ...] = (),
        *,
        in_list: bool = False,
    ) -> Object:
        """Return the output of an object with its selected fields.

        :param in_list: whether the object is a list item. If so, paths of errors contain the index 0, because
            compilation errors concern all items.
        """
        self._objects += 1
        if self._objects > MAX_OBJECTS:
            message = (
                f"The operation selects more than the {MAX_OBJECTS} objects allowed, counting each "
                "fragment wherever it is spread."
            )
            raise RequestRejected(Stage.VALIDATION, message)
        selected = self.selector.fields(
            (node.selection_set for node in nodes), frozenset((type_name, *interfaces))
        )
        if in_list:
            self._path.append(0)
        members: list[tuple[Key, Output]] = []
        for key, merged in selected.items():
            node = merged[0]
            is_typename = node.name.value == "__typename"
            value = Text(type_name) if is_typename else self.at(key, merged, output)
            members.append((member_key(key, node), value))
        if in_list:
            self._path.pop()
        return Object(tuple(members))

    def row(self, view: TableView, nodes: list[FieldNode], *, in_list: bool = False) -> Object:
        interfaces = (NODE.name,) if view.has_node_id else ()
        return self.members(view.name, nodes, partial(self._row_field, view), interfaces, in_list=in_list)

    def _row_field(self, view: TableView, nodes: list[FieldNode]) -> Output:
        match view.fields_by_name.get(nodes[0].name.value):
            case ColumnField(column=column, mapping=mapping):
                return Value(ColumnRef(column.name), mapping.form, mapping.labels)
            case ComputedField(function=function, mapping=mapping):
                return Value(ComputedValue(function), mapping.form, mapping.labels)
            case RelatedField() as related:
                return self._related(view, related, nodes)
            case None:  # nodeId: validation has rejected unknown fields
                return NodeId(view.table.schema, view.table.name, view.key)

    def _related(self, view: TableView, related: RelatedField, nodes: list[FieldNode]) -> Output:
        target, rows, disjoint = related.target, related.rows(), related.disjoint
        if related.to_one:
            return self.one(target, rows, nodes, disjoint=disjoint)
        return self.connection(target, rows, nodes, self.arguments(nodes[0], view.name), disjoint=disjoint)

    def one(self, view: TableView, rows: Rows, nodes: list[FieldNode], *, disjoint: bool = True) -> Output:
        with self.costing(1, disjoint=disjoint):
            return One(rows, self.row(view, nodes))

    def by_key(self, view: TableView, nodes: list[FieldNode], arguments: InputObject) -> Output:
        missing = [field.column.name for field in view.by_key if arguments.get(field.name) is None]
        if missing:
            raise GraphQLError(f"Missing primary key column(s): {', '.join(missing)}")
        conditions = tuple(
            comparison(operand(field), field.mapping, Operator.EQ, as_leaf(arguments[field.name]))
            for field in view.by_key
        )
        rows = Rows(view.table, where=And(conditions), unique=view.key_is_unique)
        return self.one(view, rows, nodes)

    def node(self, nodes: list[FieldNode], leaf: InputLeaf) -> Output:
        """Return the row with a node id, null if the role cannot see the table."""
        key = leaf.decoded()
        view = self.schema.view.table_named(key.schema, key.table)
        if view is None or not view.has_node_id:
            return Null()
        rows = Rows(view.table, where=key_condition(view, leaf), unique=view.key_is_unique)
        return self.one(view, rows, nodes)

    def connection(
        self,
        view: TableView,
        rows: Rows,
        nodes: list[FieldNode],
        arguments: InputObject,
        *,
        disjoint: bool = True,
    ) -> Output:
        page = read_page(view, rows, arguments)
        with self.costing(page.size, None if rows.call else rows.table, disjoint=disjoint):
            output = partial(self._connection_field, view, page.rows.order)
            members = self.members(view.name_of(TableType.CONNECTION), nodes, output)
        return ConnectionOutput(page.rows, members, page.position, page.backward)

    def _connection_field(
        self, view: TableView, order: tuple[OrderTerm, ...], nodes: list[FieldNode]
    ) -> Output:
        match nodes[0].name.value:
            case "edges":
                edge = partial(self._edge_field, view, order)
                return Edges(self.members(view.name_of(TableType.EDGE), nodes, edge, in_list=True))
            case "pageInfo":
                return self.members(
                    PAGE_INFO.name, nodes, lambda fields: PageInfo(PageInfoField(fields[0].name.value))
                )
            case "totalCount":
                return CollectionAggregates(Value(COUNT))
            case "groupBy":
                return self._groups(view, nodes)
            case _:
                return CollectionAggregates(self._aggregate(view, nodes))

    def _edge_field(self, view: TableView, order: tuple[OrderTerm, ...], nodes: list[FieldNode]) -> Output:
        return RowCursor(order) if nodes[0].name.value == "cursor" else self.row(view, nodes)

    def _aggregate(self, view: TableView, nodes: list[FieldNode]) -> Output:
        return self.members(view.name_of(TableType.AGGREGATE), nodes, partial(self._aggregate_field, view))

    def _aggregate_field(self, view: TableView, nodes: list[FieldNode]) -> Output:
        name = nodes[0].name.value
        if name == "count":
            return Value(COUNT)
        column = partial(self._aggregate_of_column, view, name)
        return self.members(view.name_of(TableType.aggregate_result(name)), nodes, column)

    def _aggregate_of_column(self, view: TableView, name: str, nodes: list[FieldNode]) -> Output:
        field = view.columns_by_name[nodes[0].name.value]
        aggregate = aggregate_of(name, field)
        if name == "countDistinct":
            return Value(aggregate)
        mapping = aggregate_mapping(name, field.mapping)
        return Value(aggregate, mapping.form, mapping.labels)

    def _groups(self, view: TableView, nodes: list[FieldNode]) -> Output:
        arguments = self.arguments(nodes[0], view.name_of(TableType.CONNECTION))
        keys = tuple(map(ColumnRef, dict.fromkeys(as_leaf(arguments["by"]).enum_values())))
        if not keys:
            raise GraphQLError("groupBy needs at least one column in `by`")
        having = having_condition(view, as_object(arguments.get("having") or {}))
        page = page_size(view, "first", arguments)
        with self.costing(page):
            group = partial(self._group_field, view, keys)
            output = self.members(view.name_of(TableType.GROUP), nodes, group, in_list=True)
        return Groups(keys, having, limit_of(page), output)

    def _group_field(self, view: TableView, keys: tuple[ColumnRef, ...], nodes: list[FieldNode]) -> Output:
        if nodes[0].name.value == "aggregate":
            return self._aggregate(view, nodes)
        return self.members(view.name_of(TableType.GROUP_KEYS), nodes, partial(self._key_field, view, keys))

    def _key_field(self, view: TableView, keys: tuple[ColumnRef, ...], nodes: list[FieldNode]) -> Output:
        field = view.columns_by_name[nodes[0].name.value]
        key = ColumnRef(field.column.name)
        return Value(key, field.mapping.form, field.mapping.labels) if key in keys else Null()
