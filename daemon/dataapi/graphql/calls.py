"""Calls of functions as entry points to outputs."""

from __future__ import annotations

from collections.abc import Mapping

from graphql import FieldNode, GraphQLError

from dataapi.graphql.arguments import Tree
from dataapi.graphql.compiler import Compiler
from dataapi.graphql.functions import Candidate, FunctionArgument, FunctionEntry, Shape, arguments_error
from dataapi.graphql.wire import encoder
from dataapi.query.algebra import Call, CallArgument, Parameter, Rows
from dataapi.query.results import FunctionValue, FunctionValues, FunctionVoid, Output


def function_output(
    compiler: Compiler, entry: FunctionEntry, nodes: list[FieldNode], arguments: Mapping[str, Tree]
) -> Output:
    """Return the output of a function's field.

    :raises GraphQLError: no overload takes the given arguments.
    """
    own = entry.arguments()
    given = [name for name in arguments if name in own]
    candidate = entry.choose(given)
    if candidate is None:
        raise GraphQLError(arguments_error(entry, given))
    call = _call(candidate, {name: arguments[name] for name in given})
    if entry.view is not None:
        rows = Rows(entry.view.table, call=call, unique=not candidate.function.returns_set)
        if entry.shape is Shape.ROW:
            return compiler.one(entry.view, rows, nodes)
        paging = {name: tree for name, tree in arguments.items() if name not in own}
        return compiler.connection(entry.view, rows, nodes, paging)
    if entry.wire is None:
        return FunctionVoid(call)
    if entry.shape is Shape.SCALARS:
        return FunctionValues(call, entry.wire.form, entry.wire.labels)
    return FunctionValue(call, entry.wire.form, entry.wire.labels)


def _call(candidate: Candidate, given: Mapping[str, Tree]) -> Call:
    return Call(
        candidate.function,
        tuple(_argument(item, given[item.name]) for item in candidate.arguments if item.name in given),
    )


def _argument(item: FunctionArgument, leaf: Tree) -> CallArgument:
    value = None if leaf is None else Parameter(leaf.source(encoder(item.wire)), item.wire.parameter)
    return CallArgument(item.argument.name, value, item.composite)
