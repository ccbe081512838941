"""The arguments of an insert to rows, related rows and what happens on a conflict."""

from __future__ import annotations

from collections.abc import Mapping

from graphql import GraphQLError

from dataapi.graphql.arguments import ObjectList, Tree
from dataapi.graphql.bulk import read_rows
from dataapi.graphql.fields import ColumnField, RelatedField
from dataapi.graphql.table_view import TableView
from dataapi.graphql.wire import encoder
from dataapi.query.algebra import Parameter
from dataapi.query.modifications import DEFAULT, Cell, Conflict, Default, Insert
from dataapi.query.nested import NestedInsert, NestedRow, Related

Given = Mapping[str, Tree]


def read_insert(view: TableView, arguments: Given) -> Insert | NestedInsert:
    """Return the rows to insert; with related rows when any object names some.

    :raises GraphQLError: no objects, or arguments that exclude each other.
    """
    objects: list[Given] = arguments["objects"]
    if not objects:
        raise GraphQLError("At least one record must be provided to objects")
    conflict = _conflict(arguments.get("onConflict"))
    relations = {related.input_name for related, _ in view.insertable_relations}
    if any(relations.intersection(given) for given in objects):
        if conflict is not None:
            raise GraphQLError("onConflict can't be combined with related rows in objects")
        return NestedInsert(view.table, tuple(_nested_row(view, given) for given in objects))
    many = read_rows(view, objects) if isinstance(objects, ObjectList) else None
    if many is not None:
        return Insert(view.table, tuple(field.column.name for field in many[0]), many[1], conflict)
    fields = [field for field in view.insertable if any(field.name in given for given in objects)]
    fields = fields or list(view.insertable[:1])  # SQL needs one column to write a row of defaults
    rows = tuple(tuple(_cell_or_default(field, given) for field in fields) for given in objects)
    return Insert(view.table, tuple(field.column.name for field in fields), rows, conflict)


def _cell_or_default(field: ColumnField, given: Given) -> Cell | Default:
    return cell(field, given[field.name]) if field.name in given else DEFAULT


def cell(field: ColumnField, leaf: Tree) -> Cell:
    """Return the value to write to a column."""
    return None if leaf is None else Parameter(leaf.source(encoder(field.wire)), field.wire.parameter)


def _conflict(given: Given | None) -> Conflict | None:
    """Return what to do on a conflict; exactly one of the constraint and the columns is named."""
    if given is None:
        return None
    constraint, columns, update = (given.get(name) for name in ("constraint", "columns", "update"))
    names = () if columns is None else tuple(columns.sample)
    if (constraint is None) is not bool(names):
        raise GraphQLError("onConflict takes either a constraint or the columns of a unique key")
    return Conflict(
        None if constraint is None else constraint.sample,
        names,
        () if update is None else tuple(dict.fromkeys(update.sample)),
    )


def _nested_row(view: TableView, given: Given) -> NestedRow:
    parents: list[Related] = []
    children: list[Related] = []
    values = [
        (field.column.name, cell(field, given[field.name]))
        for field in view.insertable
        if field.name in given
    ]
    for related, target in view.insertable_relations:
        tree = given.get(related.input_name)
        if tree is None:
            continue
        items = [tree] if related.to_one else tree
        rows = [Related(_nested_row(target, item), related.pairs) for item in items]
        if related.outgoing:
            parents += rows
            _refuse(view, given, {own for _, own in related.pairs}, related)
        else:
            children += rows
            for item in items:
                _refuse(target, item, {column for column, _ in related.pairs}, related)
    return NestedRow(view.table, tuple(values), tuple(parents), tuple(children))


def _refuse(view: TableView, given: Given, columns: set[str], related: RelatedField) -> None:
    """Refuse a row that names a column which its relationship to another row of the insert sets."""
    for field in view.insertable:
        if field.column.name in columns and field.name in given:
            message = f"{field.name} can't be given together with {related.input_name}, which sets it"
            raise GraphQLError(message)
