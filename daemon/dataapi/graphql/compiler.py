"""Compiles the fields of an operation to one output of the algebra, for one shape of its variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from graphql import FieldNode, FragmentDefinitionNode, GraphQLArgument, GraphQLError

from dataapi.catalog.model import Table
from dataapi.concurrency.pauses import pause
from dataapi.graphql.arguments import (
    InputObject,
    InputTree,
    SelectedFields,
    Selector,
    argument_trees,
    as_leaf,
)
from dataapi.graphql.collection_arguments import Grouping, aggregate_value, read_grouping, read_paging
from dataapi.graphql.conditions import equality, key_condition
from dataapi.graphql.limits import Cost, PageSize, capacity
from dataapi.graphql.outputs import (
    ConnectionOutput,
    Edges,
    Fact,
    FunctionValue,
    FunctionValues,
    FunctionVoid,
    Groups,
    NodeId,
    PageFact,
    RowCursor,
    Summary,
)
from dataapi.graphql.schema.functions import (
    FunctionArgument,
    FunctionField,
    Overload,
    ResultKind,
    arguments_error,
)
from dataapi.graphql.schema.role_schema import RoleSchema
from dataapi.graphql.schema.shared_types import NODE, PAGE_INFO
from dataapi.graphql.schema.table_view import ColumnField, ComputedField, RelatedField, TableType, TableView
from dataapi.graphql.schema.type_mapping import encode_value, encoder
from dataapi.graphql.sources import InputLeaf, Variables, decode_node_id, limit_of, response_key
from dataapi.graphql.transport import RequestRejected, Stage
from dataapi.sql.algebra import (
    AggregateFunction,
    AggregateOf,
    CallArgument,
    ColumnOf,
    ComputedOf,
    FunctionCall,
    OrderTerm,
    Parameter,
    Rows,
)
from dataapi.sql.conditions import And
from dataapi.sql.outputs import Key, Null, Object, Output, Text, Value
from dataapi.sql.row_output import One


def function_output(
    compiler: Compiler, entry: FunctionField, nodes: list[FieldNode], arguments: InputObject
) -> Output:
    """Return the output of a function's field.

    :raises GraphQLError: no overload takes the provided arguments.
    """
    own = entry.arguments()
    provided = [name for name in arguments if name in own]
    overload = entry.choose(provided)
    if overload is None:
        raise GraphQLError(arguments_error(entry, provided))
    call = _call(overload, {name: arguments[name] for name in provided})
    if entry.view is not None:
        rows = Rows(entry.view.table, call=call, unique=not overload.function.returns_set)
        if entry.shape is ResultKind.ROW:
            return compiler.one(entry.view, rows, nodes)
        paging = {name: tree for name, tree in arguments.items() if name not in own}
        return compiler.connection(entry.view, rows, nodes, paging)
    if entry.mapping is None:
        return FunctionVoid(call)
    if entry.shape is ResultKind.SCALARS:
        return FunctionValues(call, entry.mapping.form, entry.mapping.labels)
    return FunctionValue(call, entry.mapping.form, entry.mapping.labels)


def _call(overload: Overload, provided: InputObject) -> FunctionCall:
    return FunctionCall(
        overload.function,
        tuple(_argument(item, provided[item.name]) for item in overload.arguments if item.name in provided),
    )


def _argument(item: FunctionArgument, leaf: InputTree) -> CallArgument:
    value = (
        None
        if leaf is None
        else Parameter(as_leaf(leaf).source(encoder(item.mapping)), item.mapping.parameter)
    )
    return CallArgument(item.argument.name, value, item.composite)


OutputMembers = list[tuple[Key, Output]]

COUNT = AggregateOf(AggregateFunction.COUNT)

MOST_OBJECTS = 3_000
"""Objects that one operation may select, about half a second to compile.

A few fragments that spread each other twice select millions without an alias, no matter how short
the document is.
"""


class Compiler:
    """Compiles the fields of one operation, keeping the response path and the cost of what it met."""

    def __init__(
        self, schema: RoleSchema, fragments: Mapping[str, FragmentDefinitionNode], variables: Variables
    ) -> None:
        self.schema = schema
        self.variables = variables
        self.selector = Selector(fragments, variables)
        self._path: list[str | int] = []
        self._costs: list[Cost] = []
        self._objects = 0

    @contextmanager
    def at(self, key: str, node: FieldNode) -> Iterator[None]:
        """Add to errors of a field its place in the document and in the response."""
        pause()
        self._path.append(key)
        try:
            yield
        except GraphQLError as error:
            if error.path is not None:
                raise
            raise GraphQLError(error.message, error.nodes or node, path=list(self._path)) from None
        finally:
            self._path.pop()

    @contextmanager
    def in_list(self) -> Iterator[None]:
        """Add to errors within the items of a list the place of the first one.

        They depend on no row, so that every item has them.
        """
        self._path.append(0)
        try:
            yield
        finally:
            self._path.pop()

    @contextmanager
    def costing(
        self, page: PageSize | int, table: Table | None = None, *, disjoint: bool = False
    ) -> Iterator[None]:
        """Count what is compiled inside as nested in the rows of a page.

        :param table: the table that the rows are in, each once; None when they may be others.
        :param disjoint: whether the rows of different parents are different ones.
        """
        outer, self._costs = self._costs, []
        try:
            yield
        except GraphQLError:
            self._costs = outer
            raise
        most = None if table is None else capacity(table)
        self._costs = [*outer, Cost(page, tuple(self._costs), most, disjoint)]

    def costs(self) -> tuple[Cost, ...]:
        """Return the costs of what was compiled."""
        return tuple(self._costs)

    def key(self, key: str, node: FieldNode) -> Key:
        """Return a member's name: the field's own, or the client's alias as a value."""
        return Text(key) if key == node.name.value else Parameter(response_key(key), "text")

    def arguments(self, node: FieldNode, type_name: str) -> dict[str, InputTree]:
        """Return the argument trees of a field of an object type."""
        arguments: dict[str, GraphQLArgument] = (
            self.schema.types.named(type_name).fields[node.name.value].args
        )
        return argument_trees(node, arguments, self.variables, tuple(self._path))

    def subfields(self, nodes: list[FieldNode], type_name: str, *interfaces: str) -> SelectedFields:
        """Return the merged selection of a field."""
        self._objects += 1
        if self._objects > MOST_OBJECTS:
            message = (
                f"The operation selects more than the {MOST_OBJECTS} objects allowed, counting each "
                "fragment wherever it is spread."
            )
            raise RequestRejected(Stage.VALIDATION, GraphQLError(message))
        names = frozenset((type_name, *interfaces))
        return self.selector.fields((node.selection_set for node in nodes), names)

    # ------------------------------------------------------------ rows

    def row(self, view: TableView, nodes: list[FieldNode]) -> Object:
        """Return the output of a row's selected fields."""
        interfaces = (NODE.name,) if view.has_node_id else ()
        members: OutputMembers = []
        for key, merged in self.subfields(nodes, view.name, *interfaces).items():
            with self.at(key, merged[0]):
                members.append((self.key(key, merged[0]), self._row_field(view, merged)))
        return Object(tuple(members))

    def _row_field(self, view: TableView, nodes: list[FieldNode]) -> Output:
        name = nodes[0].name.value
        match view.fields_by_name.get(name):
            case ColumnField(column=column, mapping=mapping):
                return Value(ColumnOf(column.name), mapping.form, mapping.labels)
            case ComputedField(function=function, mapping=mapping):
                return Value(ComputedOf(function), mapping.form, mapping.labels)
            case RelatedField() as related:
                return self._related(view, related, nodes)
        if name == "nodeId":
            return NodeId(view.table.schema, view.table.name, view.key)
        return Text(view.name)  # __typename, the only other field that validation lets through

    def _related(self, view: TableView, related: RelatedField, nodes: list[FieldNode]) -> Output:
        target = view.target(related)
        rows = view.related_rows(related)
        disjoint = view.table.is_unique(own for _, own in related.pairs)
        if related.to_one:
            return self.one(target, rows, nodes, disjoint=disjoint)
        return self.connection(target, rows, nodes, self.arguments(nodes[0], view.name), disjoint=disjoint)

    def one(self, view: TableView, rows: Rows, nodes: list[FieldNode], *, disjoint: bool = True) -> Output:
        """Return the output of at most one row."""
        with self.costing(1, disjoint=disjoint):
            return One(rows, self.row(view, nodes))

    def by_key(self, view: TableView, nodes: list[FieldNode], arguments: InputObject) -> Output:
        """Return the row with a primary key."""
        conditions = []
        missing = [field.column.name for field in view.by_key if arguments.get(field.name) is None]
        if missing:
            raise GraphQLError(f"Missing primary key column(s): {', '.join(missing)}")
        for field in view.by_key:
            conditions.append(equality(field, as_leaf(arguments[field.name]).source(encode_value)))
        rows = Rows(view.table, where=And(tuple(conditions)), unique=view.table.is_unique(view.key))
        return self.one(view, rows, nodes)

    def node(self, nodes: list[FieldNode], leaf: InputLeaf) -> Output:
        """Return the row that a node id names, null where the role sees no such table."""
        key = decode_node_id(leaf.sample)
        view = self.schema.view.table_named(key.schema, key.table)
        if view is None or not view.has_node_id:
            return Null()
        rows = Rows(view.table, where=key_condition(view, leaf), unique=view.table.is_unique(view.key))
        return self.one(view, rows, nodes)

    # ------------------------------------------------------------ connections

    def connection(
        self,
        view: TableView,
        rows: Rows,
        nodes: list[FieldNode],
        arguments: InputObject,
        *,
        disjoint: bool = True,
    ) -> Output:
        """Return a page of rows with what is selected around it.

        :param disjoint: whether the rows of different parents are different ones.
        """
        paging = read_paging(view, arguments)
        with self.costing(paging.page, None if rows.call else rows.table, disjoint=disjoint):
            members = self.members(
                TableType.CONNECTION.of(view), nodes, lambda n: self._connection_field(view, paging.order, n)
            )
        page = Rows(
            rows.table,
            call=rows.call,
            join=rows.join,
            where=paging.where,
            order=paging.order,
            limit=limit_of(paging.page),
            offset=paging.offset,
        )
        return ConnectionOutput(page, members, paging.position, paging.backward)

    def members(self, type_name: str, nodes: list[FieldNode], output: Any) -> Object:
        """Return an object whose fields are compiled one by one, ``__typename`` included."""
        members: OutputMembers = []
        for key, merged in self.subfields(nodes, type_name).items():
            with self.at(key, merged[0]):
                is_name = merged[0].name.value == "__typename"
                members.append((self.key(key, merged[0]), Text(type_name) if is_name else output(merged)))
        return Object(tuple(members))

    def _connection_field(
        self, view: TableView, order: tuple[OrderTerm, ...], nodes: list[FieldNode]
    ) -> Output:
        match nodes[0].name.value:
            case "edges":
                with self.in_list():
                    return Edges(
                        self.members(
                            TableType.EDGE.of(view), nodes, lambda n: self._edge_field(view, order, n)
                        )
                    )
            case "pageInfo":
                return self.members(PAGE_INFO.name, nodes, lambda n: PageFact(Fact(n[0].name.value)))
            case "totalCount":
                return Summary(Value(COUNT))
            case "groupBy":
                return self._groups(view, nodes)
            case _:
                return Summary(
                    self.members(TableType.AGGREGATE.of(view), nodes, lambda n: self._aggregate(view, n))
                )

    def _edge_field(self, view: TableView, order: tuple[OrderTerm, ...], nodes: list[FieldNode]) -> Output:
        return RowCursor(order) if nodes[0].name.value == "cursor" else self.row(view, nodes)

    def _aggregate(self, view: TableView, nodes: list[FieldNode]) -> Output:
        name = nodes[0].name.value
        if name == "count":
            return Value(COUNT)
        type_name = TableType.aggregate_result(name).of(view)
        return self.members(
            type_name, nodes, lambda n: aggregate_value(name, view.columns_by_name[n[0].name.value])
        )

    def _groups(self, view: TableView, nodes: list[FieldNode]) -> Output:
        arguments = self.arguments(nodes[0], TableType.CONNECTION.of(view))
        grouping = read_grouping(view, arguments)
        with self.costing(grouping.page), self.in_list():
            output = self.members(
                TableType.GROUP.of(view), nodes, lambda n: self._group_field(view, grouping, n)
            )
        return Groups(grouping.keys, grouping.having, limit_of(grouping.page), output)

    def _group_field(self, view: TableView, grouping: Grouping, nodes: list[FieldNode]) -> Output:
        if nodes[0].name.value == "aggregate":
            return self.members(TableType.AGGREGATE.of(view), nodes, lambda n: self._aggregate(view, n))
        return self.members(
            TableType.GROUP_KEYS.of(view), nodes, lambda n: grouping.key_value(view, n[0].name.value)
        )
