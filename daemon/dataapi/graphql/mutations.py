"""Compiles mutation fields to the algebra: inserts, updates, deletes and volatile functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphql import FieldNode, GraphQLError

from dataapi.catalog.registry import TableFieldKind, TableType
from dataapi.graphql.arguments import InputObject, as_items, as_leaf, as_object, stored_value
from dataapi.graphql.compiler import Compiler, function_output
from dataapi.graphql.filters import filter_condition
from dataapi.graphql.mutation_statements import AffectedCount, AffectedRecords, MutationStep, OperationStep
from dataapi.graphql.schema.catalog_view import ColumnField, RelatedField, TableView
from dataapi.graphql.schema.functions import FunctionField
from dataapi.graphql.schema.role_schema import MUTATION, TableField
from dataapi.graphql.schema.type_mapping import TypeMapping, encode_value, encoder
from dataapi.graphql.sources import BoundedCount, InputLeaf, UniformRows, Variables
from dataapi.sql.algebra import Condition, Parameter
from dataapi.sql.mutations import (
    DEFAULT,
    Delete,
    Insert,
    JsonColumn,
    JsonRows,
    Mutation,
    NestedRow,
    NestedRows,
    OnConflict,
    RelatedRow,
    Update,
    ValueRows,
)
from dataapi.sql.outputs import Output
from dataapi.sql.statement import Guard


def mutation_step(compiler: Compiler, nodes: list[FieldNode]) -> OperationStep:
    arguments = compiler.arguments(nodes[0], MUTATION)
    match compiler.schema.mutation_fields.find(nodes[0].name.value):
        case FunctionField() as function:
            return function_output(compiler, function, nodes, arguments)
        case TableField(TableFieldKind.INSERT, view) as field:
            return _step(compiler, field, nodes, read_insert(view, arguments))
        case TableField(kind, view) as field:
            limit = BoundedCount("atMost", as_leaf(arguments["atMost"]))
            where = _where(compiler, view, nodes[0], arguments)
            if kind is TableFieldKind.DELETE:
                return _step(compiler, field, nodes, Delete(view.table, where), limit)
            update = Update(view.table, _assignments(view, as_object(arguments["set"])), where)
            return _step(compiler, field, nodes, update, limit)
        case None:
            raise AssertionError("validation rejects unknown fields")


def _where(compiler: Compiler, view: TableView, field: FieldNode, arguments: InputObject) -> Condition | None:
    """Return the condition of the rows to change, None for every row.

    :raises GraphQLError: the filter is only empty because its variables are absent.
    """
    condition = filter_condition(view, arguments.get("filter"))
    node = {argument.name.value: argument.value for argument in field.arguments or ()}.get("filter")
    if condition is not None or node is None:
        return condition
    absent = compiler.selector.absent_variables(compiler.selector.literals(field)["filter"])
    if absent:
        names = ", ".join(f"${name}" for name in absent)
        raise GraphQLError(
            f"The filter would match every row, because it has no value for {names}. Provide one, or "
            "write `filter: {}` to match every row.",
            node,
        )
    return None


def _step(
    compiler: Compiler,
    field: TableField,
    nodes: list[FieldNode],
    mutation: Mutation,
    limit: BoundedCount | None = None,
) -> MutationStep:
    view, response_type = field.view, TableType[f"{field.kind.name}_RESPONSE"]

    def response_field(fields: list[FieldNode]) -> Output:
        if fields[0].name.value == "affectedCount":
            return AffectedCount()
        return AffectedRecords(compiler.row(view, fields, in_list=True))

    rows = row_count(mutation) if isinstance(mutation, Insert) else 1
    # An insert may add more rows than the table is estimated to have.
    table = None if limit is None else view.table
    with compiler.costing(limit or rows, table, disjoint=True):
        response = compiler.members(view.name_of(response_type), nodes, response_field)
    key = tuple(zip(view.key, view.key_types, strict=True)) if view.has_node_id else ()
    if limit is None:
        return MutationStep(mutation, key, response)
    reason = f"{field.kind.name.lower()} impacts too many records"
    return MutationStep(mutation, key, response, Guard(reason, Parameter(limit, "bigint")))


def _assignments(view: TableView, values: InputObject) -> ValueRows:
    if not values:
        raise GraphQLError("At least one mapping must be provided to set argument")
    fields = {field.name: field for field in view.updatable}
    columns = tuple(fields[name].column.name for name in values)
    row = tuple(stored_value(fields[name].mapping, tree) for name, tree in values.items())
    return ValueRows(columns, (row,))


def read_insert(view: TableView, arguments: InputObject) -> Insert:
    """Return the rows to insert, including the related rows that objects contain.

    :raises GraphQLError: there are no objects, or the arguments are incompatible.
    """
    tree = arguments["objects"]
    if tree == []:
        raise GraphQLError("At least one record must be provided to objects")
    argument = arguments.get("onConflict")
    conflict = None if argument is None else _conflict(as_object(argument))
    if isinstance(tree, InputLeaf):
        return Insert(view.table, _batch(view, tree), conflict)
    objects = [as_object(item) for item in as_items(tree)]
    relations = {related.input_name for related in view.insertable_relations}
    if any(relations.intersection(each) for each in objects):
        if conflict is not None:
            raise GraphQLError("onConflict can't be combined with related rows in objects")
        return Insert(view.table, NestedRows(tuple(_nested_row(view, each) for each in objects)))
    return Insert(view.table, _values(view, objects), conflict)


def _values(view: TableView, objects: list[InputObject]) -> ValueRows:
    fields = [field for field in view.insertable if any(field.name in each for each in objects)]
    fields = fields or list(view.insertable[:1])  # SQL requires a column, even for a row of defaults

    rows = tuple(
        tuple(
            stored_value(field.mapping, each[field.name]) if field.name in each else DEFAULT
            for field in fields
        )
        for each in objects
    )
    return ValueRows(tuple(field.column.name for field in fields), rows)


def _conflict(argument: InputObject) -> OnConflict:
    """Return the action on conflict. Either the constraint or the columns are required, not both."""
    constraint, columns, update = (argument.get(name) for name in ("constraint", "columns", "update"))
    names = () if columns is None else as_leaf(columns).enum_values()
    if (constraint is None) is not bool(names):
        raise GraphQLError("onConflict requires either a constraint or the columns of a unique key")
    return OnConflict(
        names,
        () if update is None else tuple(dict.fromkeys(as_leaf(update).enum_values())),
        None if constraint is None else str(as_leaf(constraint).shape),
    )


def _nested_row(view: TableView, values: InputObject) -> NestedRow:
    parents: list[RelatedRow] = []
    children: list[RelatedRow] = []
    cells = [
        (field.column.name, stored_value(field.mapping, values[field.name]))
        for field in view.insertable
        if field.name in values
    ]
    for related in view.insertable_relations:
        tree = values.get(related.input_name)
        if tree is None:
            continue
        items = [as_object(item) for item in ([tree] if related.to_one else as_items(tree))]
        rows = [RelatedRow(_nested_row(related.target, item), related.pairs) for item in items]
        if related.outgoing:
            parents += rows
            _check_free(view, values, {own for _, own in related.pairs}, related)
        else:
            children += rows
            for item in items:
                _check_free(related.target, item, {column for column, _ in related.pairs}, related)
    return NestedRow(view.table, tuple(cells), tuple(parents), tuple(children))


def _check_free(view: TableView, values: InputObject, columns: set[str], related: RelatedField) -> None:
    for field in view.insertable:
        if field.column.name in columns and field.name in values:
            message = f"{field.name} can't be combined with {related.input_name}: both set the same column"
            raise GraphQLError(message)


def _batch(view: TableView, objects: InputLeaf) -> JsonRows:
    assert isinstance(objects.shape, UniformRows), "all objects of a batch have the same members"
    fields = [field for field in view.insertable if field.name in objects.shape.members]
    source = BatchSource(objects, tuple((field.name, field.mapping) for field in fields))
    columns = tuple(_json_column(view, field, str(index)) for index, field in enumerate(fields))
    return JsonRows(Parameter(source, 'pg_catalog."json"'), True, columns)


def _json_column(view: TableView, field: ColumnField, member: str) -> JsonColumn:
    """Return a column of a batch. JSON is passed as text, so that PostgreSQL stores it unchanged."""
    type_ = view.type_name(field)
    assert type_ is not None, "a batch requires that the role may use the schema of each column's type"
    if field.mapping.kind != "JSON":
        return JsonColumn(field.column.name, type_, member=member)
    text = 'pg_catalog."_text"' if field.mapping.is_list else 'pg_catalog."text"'
    return JsonColumn(field.column.name, text, cast=type_, member=member)


@dataclass(frozen=True, slots=True)
class BatchSource:
    """The rows in a variable, as a JSON array of objects. Members are named by their index in ``fields``."""

    leaf: InputLeaf
    fields: tuple[tuple[str, TypeMapping], ...]
    maximum: None = None

    def count(self, variables: Variables) -> int:
        return len(self.leaf.origin.value(variables))

    def bind(self, variables: Variables) -> str | None:
        members = [
            (name, str(index), _json_encoder(mapping)) for index, (name, mapping) in enumerate(self.fields)
        ]
        try:
            rows = [_json_object(row, members) for row in self.leaf.origin.value(variables)]
        except GraphQLError as error:
            raise self.leaf.error(error.message) from None
        return json.dumps(rows, ensure_ascii=False)


def _json_object(row: Any, members: list[tuple[str, str, Callable[[Any], Any]]]) -> dict[str, Any]:
    return {index: None if row[name] is None else encode(row[name]) for name, index, encode in members}


def _json_encoder(mapping: TypeMapping) -> Callable[[Any], Any]:
    encode = encoder(mapping)
    if not mapping.is_list:
        return encode

    def texts(values: Any) -> list[str | None]:
        if mapping.max_length is not None:
            encode(values)  # raises if a string is too long
        items = values if isinstance(values, list | tuple) else [values]
        return [None if item is None else encode_value(item) for item in items]

    return texts


def row_count(insert: Insert) -> BatchSource | int:
    if not isinstance(insert.rows, JsonRows):
        return len(insert.rows.rows)
    source = insert.rows.value.source
    assert isinstance(source, BatchSource), "JSON rows come from a variable"
    return source
