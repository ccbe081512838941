"""Mutation fields to changes: inserts, updates, deletes and volatile functions, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphql import FieldNode, GraphQLError

from dataapi.graphql.arguments import Tree, absent_variables
from dataapi.graphql.bulk import RowCount
from dataapi.graphql.calls import function_output
from dataapi.graphql.compiler import Compiler
from dataapi.graphql.conditions import filter_condition
from dataapi.graphql.entries import DeleteEntry, InsertEntry, MutationEntry, UpdateEntry
from dataapi.graphql.functions import FunctionEntry
from dataapi.graphql.inserts import cell, read_insert
from dataapi.graphql.sources import Bounded
from dataapi.graphql.table_view import TableView
from dataapi.query.algebra import Parameter
from dataapi.query.changes import Answer, Change, Modification, Step
from dataapi.query.conditions import Condition
from dataapi.query.modifications import Cell, Delete, Insert, Recordset, Update
from dataapi.query.nested import NestedInsert
from dataapi.query.results import AffectedCount, Output, Records

ROOT = "Mutation"


def mutation_step(compiler: Compiler, entry: MutationEntry, nodes: list[FieldNode]) -> Step:
    """Return the step of one mutation field.

    :raises GraphQLError: arguments that graphql-core's validation cannot judge.
    """
    arguments = compiler.arguments(nodes[0], ROOT)
    match entry:
        case FunctionEntry():
            return Answer(function_output(compiler, entry, nodes, arguments))
        case InsertEntry(view):
            return _change(compiler, view, "Insert", nodes, read_insert(view, arguments))
        case UpdateEntry(view):
            where = _where(compiler, view, nodes[0], arguments)
            update = Update(view.table, _assignments(view, arguments["set"]), where)
            return _change(compiler, view, "Update", nodes, update, arguments["atMost"])
        case DeleteEntry(view):
            delete = Delete(view.table, _where(compiler, view, nodes[0], arguments))
            return _change(compiler, view, "Delete", nodes, delete, arguments["atMost"])


def _where(
    compiler: Compiler, view: TableView, node: FieldNode, arguments: Mapping[str, Tree]
) -> Condition | None:
    """Return the condition of the rows to change, None for every row.

    :raises GraphQLError: the filter was meant to choose rows, but the variables in it are absent.
    """
    condition = filter_condition(view, arguments.get("filter"))
    given = next(
        (argument.value for argument in node.arguments or () if argument.name.value == "filter"), None
    )
    if condition is not None or given is None:
        return condition
    absent = absent_variables(given, compiler.variables)
    if absent:
        names = ", ".join(f"${name}" for name in absent)
        raise GraphQLError(
            f"The filter would match every row, because it has no value for {names}. Provide one, or "
            "write `filter: {}` to mean every row.",
            given,
        )
    return None


def _change(
    compiler: Compiler,
    view: TableView,
    word: str,
    nodes: list[FieldNode],
    change: Modification,
    at_most: Tree = None,
) -> Change:
    def response_field(fields: list[FieldNode]) -> Output:
        if fields[0].name.value == "affectedCount":
            return AffectedCount()
        with compiler.in_list():
            return Records(compiler.row(view, fields))

    limit = None if at_most is None else Bounded("atMost", at_most)
    # An insert may add more rows than the table was ever known to hold.
    table = view.table if limit else None
    with compiler.costing(limit or _row_count(change), table, disjoint=True):
        response = compiler.members(f"{view.name}{word}Response", nodes, response_field)
    types = {field.column.name: field.wire.parameter for field in view.columns}
    key = tuple((name, types.get(name, "unknown")) for name in view.key) if view.has_node_id else ()
    slot = None if limit is None else Parameter(limit, "bigint")
    return Change(change, key, response, slot, f"{word.lower()} impacts too many records")


def _row_count(change: Modification) -> RowCount | int:
    """Return how many rows a change without ``atMost`` affects."""
    if not isinstance(change, Insert | NestedInsert):
        return 1
    rows = change.rows
    if isinstance(rows, Recordset):
        source: Any = rows.values.source
        return RowCount(source.leaf)
    return len(rows)


def _assignments(view: TableView, given: Mapping[str, Tree]) -> tuple[tuple[str, Cell], ...]:
    if not given:
        raise GraphQLError("At least one mapping must be provided to set argument")
    fields = {field.name: field for field in view.updatable}
    return tuple((fields[name].column.name, cell(fields[name], leaf)) for name, leaf in given.items())
