"""Root fields: the fields of ``Query`` and ``Mutation`` that one role has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from graphql import GraphQLArgument, GraphQLDefaultInput, GraphQLField, GraphQLID, GraphQLInt, GraphQLList

from dataapi.catalog.names import BY_KEY, COLLECTION, DELETE, INSERT, UPDATE
from dataapi.graphql.schema.functions import FunctionField, FunctionFields, ResultKind, shown_default
from dataapi.graphql.schema.shared_types import NODE, list_of, required
from dataapi.graphql.schema.table_view import TableType, TableView
from dataapi.graphql.schema.type_mapping import DATETIME, OPAQUE
from dataapi.graphql.schema.types import TableTypes


@dataclass(frozen=True, slots=True)
class CollectionField:
    """``<table>Collection``."""

    view: TableView


@dataclass(frozen=True, slots=True)
class ByKeyField:
    """``<table>ByPk``."""

    view: TableView


@dataclass(frozen=True, slots=True)
class NodeField:
    """``node``."""


@dataclass(frozen=True, slots=True)
class HeartbeatField:
    """``heartbeat``: the database's time, which every role may ask for."""


@dataclass(frozen=True, slots=True)
class InsertField:
    """``insertInto<Table>Collection``."""

    view: TableView


@dataclass(frozen=True, slots=True)
class UpdateField:
    """``update<Table>Collection``."""

    view: TableView


@dataclass(frozen=True, slots=True)
class DeleteField:
    """``deleteFrom<Table>Collection``."""

    view: TableView


QUERY, MUTATION = "Query", "Mutation"
"""The names of the root types."""
UNLISTED = frozenset({"heartbeat"})
"""Fields of ``Query`` that work and are not listed, as in pg_graphql."""

QueryField = CollectionField | ByKeyField | NodeField | HeartbeatField | FunctionField
MutationField = InsertField | UpdateField | DeleteField | FunctionField


_QUERY_SUFFIXES: dict[type[CollectionField | ByKeyField], str] = {
    CollectionField: COLLECTION,
    ByKeyField: BY_KEY,
}
_MUTATION_PREFIXES: dict[type[InsertField | UpdateField | DeleteField], str] = {
    InsertField: INSERT,
    UpdateField: UPDATE,
    DeleteField: DELETE,
}


def _function_field(types: TableTypes, entry: FunctionField) -> GraphQLField:
    """Return the field of a function."""
    arguments = {}
    overloaded = len(entry.overloads) > 1  # a default would count as provided when the overload is chosen
    for name, (item, is_required) in entry.arguments().items():
        type_ = OPAQUE if item.composite is not None else types.output_type(item.mapping)
        default = None if overloaded else shown_default(item.argument.default, item.mapping)
        arguments[name] = GraphQLArgument(required(type_) if is_required else type_, default=default)
    match entry:
        case FunctionField(shape=ResultKind.ROWS, view=TableView() as view):
            field = types.collection_field(view, entry.description)
            field.args.update(arguments)
            return field
        case FunctionField(shape=ResultKind.ROW, view=TableView() as view):
            return GraphQLField(types.named(view.name), arguments, description=entry.description)
        case FunctionField(shape=ResultKind.VOID):
            return GraphQLField(OPAQUE, arguments, description=entry.description)
    assert entry.mapping is not None, "a function gives rows, nothing or a value"
    type_ = types.output_type(entry.mapping)
    if entry.shape is ResultKind.SCALARS:
        type_ = GraphQLList(type_)
    return GraphQLField(type_, arguments, description=entry.description)


class QueryFields:
    """Finds the fields of ``Query`` by name, and makes their fields on demand."""

    def __init__(self, types: TableTypes, functions: FunctionFields) -> None:
        self._types = types
        self._functions = functions

    def find(self, name: str) -> QueryField | None:
        """Return the root field of that name, None when the role has none."""
        if name == "node":
            return NodeField()
        if name == "heartbeat":
            return HeartbeatField()
        for kind, suffix in _QUERY_SUFFIXES.items():
            view = (
                self._types.view.table_by_field(name.removesuffix(suffix)) if name.endswith(suffix) else None
            )
            if view is not None and (kind is CollectionField or view.by_key):
                return kind(view)
        return self._functions.fields(volatile=False).get(name)

    def names(self) -> Iterator[str]:
        """Yield the names that are listed as fields of ``Query``."""
        yield "node"
        for base in self._types.view.names.tables_by_field:
            yield from (base + suffix for suffix in _QUERY_SUFFIXES.values())
        yield from self._functions.fields(volatile=False)

    def field(self, name: str) -> GraphQLField | None:
        """Make the field of that name, None when the role has none."""
        match self.find(name):
            case CollectionField(view):
                description = view.directives.description or f"A page of the rows of {view.name}."
                return self._types.collection_field(view, description)
            case ByKeyField(view):
                return self._by_key_field(view)
            case NodeField():
                arguments = {"nodeId": GraphQLArgument(required(GraphQLID), description="A row's node id.")}
                return GraphQLField(NODE, arguments, description="The row that a node id names.")
            case HeartbeatField():
                return GraphQLField(required(DATETIME), description="The time in the database.")
            case FunctionField() as entry:
                return _function_field(self._types, entry)
            case None:
                return None

    def _by_key_field(self, view: TableView) -> GraphQLField:
        arguments = {
            field.name: GraphQLArgument(
                required(self._types.output_type(field.mapping)),
                description=field.description or f"The row's {field.name}.",
            )
            for field in view.by_key
        }
        return GraphQLField(
            self._types.named(view.name),
            arguments,
            description=f"The row of {view.name} with that primary key.",
        )


class MutationFields:
    """Finds the fields of ``Mutation`` by name, and makes their fields on demand."""

    def __init__(self, types: TableTypes, functions: FunctionFields) -> None:
        self._types = types
        self._functions = functions

    @cached_property
    def any(self) -> bool:
        """Whether the role may change anything."""
        return any(self.find(name) is not None for name in self.names())

    def names(self) -> Iterator[str]:
        """Yield the names that may be fields of ``Mutation``."""
        for base in self._types.view.names.tables_by_type:
            yield from (f"{prefix}{base}{COLLECTION}" for prefix in _MUTATION_PREFIXES.values())
        yield from self._functions.fields(volatile=True)

    def find(self, name: str) -> MutationField | None:
        """Return the root field of that name, None when the role has none."""
        for kind, prefix in _MUTATION_PREFIXES.items():
            base = name.removeprefix(prefix).removesuffix(COLLECTION)
            if name == f"{prefix}{base}{COLLECTION}":
                view = self._types.view.table_by_type(base)
                if view is not None and _allows(view, kind):
                    return kind(view)
        return self._functions.fields(volatile=True).get(name)

    def field(self, name: str) -> GraphQLField | None:
        """Make the field of that name, None when the role has none."""
        match self.find(name):
            case InsertField(view):
                return self._insert_field(view)
            case UpdateField(view):
                arguments = {
                    "set": GraphQLArgument(
                        required(self._types.named(TableType.UPDATE_INPUT.of(view))),
                        description="The new values of columns; others stay as they are.",
                    ),
                    **self._which_rows(view),
                }
                response = required(self._types.named(TableType.UPDATE_RESPONSE.of(view)))
                return GraphQLField(
                    response,
                    arguments,
                    description=f"Changes the rows of {view.name} that match the filter.",
                )
            case DeleteField(view):
                response = required(self._types.named(TableType.DELETE_RESPONSE.of(view)))
                return GraphQLField(
                    response,
                    self._which_rows(view),
                    description=f"Removes the rows of {view.name} that match the filter.",
                )
            case FunctionField() as entry:
                return _function_field(self._types, entry)
            case None:
                return None

    def _insert_field(self, view: TableView) -> GraphQLField:
        arguments = {
            "objects": GraphQLArgument(
                list_of(self._types.named(TableType.INSERT_INPUT.of(view))), description="The rows to add."
            )
        }
        on_conflict = self._types.types.get(TableType.ON_CONFLICT_INPUT.of(view))
        if on_conflict is not None:
            arguments["onConflict"] = GraphQLArgument(
                on_conflict, description="What to do where a row is there already; by default it is an error."
            )
        response = self._types.named(TableType.INSERT_RESPONSE.of(view))
        return GraphQLField(response, arguments, description=f"Adds rows to {view.name}.")

    def _which_rows(self, view: TableView) -> dict[str, GraphQLArgument]:
        return {
            "filter": GraphQLArgument(
                self._types.named(TableType.FILTER.of(view)),
                description="Only rows that meet these conditions; all rows without.",
            ),
            "atMost": GraphQLArgument(
                required(GraphQLInt),
                default=GraphQLDefaultInput(value=1),
                description="The most rows that may be affected; more are an error that changes nothing.",
            ),
        }


def _allows(view: TableView, kind: type[InsertField | UpdateField | DeleteField]) -> bool:
    if kind is InsertField:
        return bool(view.insertable)
    return bool(view.updatable) if kind is UpdateField else view.deletable
