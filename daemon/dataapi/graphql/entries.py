"""Entry points: the fields of ``Query`` and ``Mutation`` as one role sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from graphql import GraphQLArgument, GraphQLDefaultInput, GraphQLField, GraphQLID, GraphQLInt, GraphQLList

from dataapi.catalog.entry_points import BY_KEY, COLLECTION, DELETE, INSERT, UPDATE
from dataapi.graphql.common import NODE
from dataapi.graphql.defaults import shown_default
from dataapi.graphql.functions import FunctionEntry, FunctionViews, Shape
from dataapi.graphql.scalars import DATETIME, OPAQUE
from dataapi.graphql.table_view import TableView
from dataapi.graphql.types import TableTypes
from dataapi.graphql.wrappers import list_of, required


@dataclass(frozen=True, slots=True)
class CollectionEntry:
    """``<table>Collection``."""

    view: TableView


@dataclass(frozen=True, slots=True)
class ByKeyEntry:
    """``<table>ByPk``."""

    view: TableView


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """``node``."""


@dataclass(frozen=True, slots=True)
class HeartbeatEntry:
    """``heartbeat``: the database's time, which every role may ask for."""


@dataclass(frozen=True, slots=True)
class InsertEntry:
    """``insertInto<Table>Collection``."""

    view: TableView


@dataclass(frozen=True, slots=True)
class UpdateEntry:
    """``update<Table>Collection``."""

    view: TableView


@dataclass(frozen=True, slots=True)
class DeleteEntry:
    """``deleteFrom<Table>Collection``."""

    view: TableView


UNLISTED = frozenset({"heartbeat"})
"""Fields of ``Query`` that are answered and not shown, as in the reference."""

QueryEntry = CollectionEntry | ByKeyEntry | NodeEntry | HeartbeatEntry | FunctionEntry
MutationEntry = InsertEntry | UpdateEntry | DeleteEntry | FunctionEntry


_QUERY_SUFFIXES: dict[type[CollectionEntry | ByKeyEntry], str] = {
    CollectionEntry: COLLECTION,
    ByKeyEntry: BY_KEY,
}
_MUTATION_PREFIXES: dict[type[InsertEntry | UpdateEntry | DeleteEntry], str] = {
    InsertEntry: INSERT,
    UpdateEntry: UPDATE,
    DeleteEntry: DELETE,
}


def _function_field(types: TableTypes, entry: FunctionEntry) -> GraphQLField:
    """Return the field of a function."""
    arguments = {}
    overloaded = len(entry.candidates) > 1  # a default would count as given when the overload is chosen
    for name, (item, is_required) in entry.arguments().items():
        type_ = OPAQUE if item.composite is not None else types.output_type(item.wire)
        default = None if overloaded else shown_default(item.argument.default, item.wire)
        arguments[name] = GraphQLArgument(required(type_) if is_required else type_, default=default)
    match entry:
        case FunctionEntry(shape=Shape.ROWS, view=TableView() as view):
            field = types.collection_field(view, entry.description)
            field.args.update(arguments)
            return field
        case FunctionEntry(shape=Shape.ROW, view=TableView() as view):
            return GraphQLField(types.named(view.name), arguments, description=entry.description)
        case FunctionEntry(shape=Shape.VOID):
            return GraphQLField(OPAQUE, arguments, description=entry.description)
    assert entry.wire is not None, "a function gives rows, nothing or a value"
    type_ = types.output_type(entry.wire)
    if entry.shape is Shape.SCALARS:
        type_ = GraphQLList(type_)
    return GraphQLField(type_, arguments, description=entry.description)


class QueryEntries:
    """Finds the entry points of ``Query`` by name, and makes their fields on demand."""

    def __init__(self, types: TableTypes, functions: FunctionViews) -> None:
        self._types = types
        self._functions = functions

    def find(self, name: str) -> QueryEntry | None:
        """Return the entry point of that name, None when the role has none."""
        if name == "node":
            return NodeEntry()
        if name == "heartbeat":
            return HeartbeatEntry()
        for kind, suffix in _QUERY_SUFFIXES.items():
            view = (
                self._types.view.table_by_field(name.removesuffix(suffix)) if name.endswith(suffix) else None
            )
            if view is not None and (kind is CollectionEntry or view.by_key):
                return kind(view)
        return self._functions.entries(volatile=False).get(name)

    def names(self) -> Iterator[str]:
        """Yield the names that are shown as fields of ``Query``."""
        yield "node"
        for base in self._types.view.names.tables_by_field:
            yield from (base + suffix for suffix in _QUERY_SUFFIXES.values())
        yield from self._functions.entries(volatile=False)

    def field(self, name: str) -> GraphQLField | None:
        """Make the field of that name, None when the role has none."""
        match self.find(name):
            case CollectionEntry(view):
                description = view.directives.description or f"A page of the rows of {view.name}."
                return self._types.collection_field(view, description)
            case ByKeyEntry(view):
                return self._by_key_field(view)
            case NodeEntry():
                arguments = {"nodeId": GraphQLArgument(required(GraphQLID), description="A row's node id.")}
                return GraphQLField(NODE, arguments, description="The row that a node id names.")
            case HeartbeatEntry():
                return GraphQLField(required(DATETIME), description="The time in the database.")
            case FunctionEntry() as entry:
                return _function_field(self._types, entry)
            case None:
                return None

    def _by_key_field(self, view: TableView) -> GraphQLField:
        arguments = {
            field.name: GraphQLArgument(
                required(self._types.output_type(field.wire)),
                description=field.description or f"The row's {field.name}.",
            )
            for field in view.by_key
        }
        return GraphQLField(
            self._types.named(view.name),
            arguments,
            description=f"The row of {view.name} with that primary key.",
        )


class MutationEntries:
    """Finds the entry points of ``Mutation`` by name, and makes their fields on demand."""

    def __init__(self, types: TableTypes, functions: FunctionViews) -> None:
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
        yield from self._functions.entries(volatile=True)

    def find(self, name: str) -> MutationEntry | None:
        """Return the entry point of that name, None when the role has none."""
        for kind, prefix in _MUTATION_PREFIXES.items():
            base = name.removeprefix(prefix).removesuffix(COLLECTION)
            if name == f"{prefix}{base}{COLLECTION}":
                view = self._types.view.table_by_type(base)
                if view is not None and _allows(view, kind):
                    return kind(view)
        return self._functions.entries(volatile=True).get(name)

    def field(self, name: str) -> GraphQLField | None:
        """Make the field of that name, None when the role has none."""
        match self.find(name):
            case InsertEntry(view):
                return self._insert_field(view)
            case UpdateEntry(view):
                arguments = {
                    "set": GraphQLArgument(
                        required(self._types.named(f"{view.name}UpdateInput")),
                        description="The new values of columns; others stay as they are.",
                    ),
                    **self._which_rows(view),
                }
                response = required(self._types.named(f"{view.name}UpdateResponse"))
                return GraphQLField(
                    response,
                    arguments,
                    description=f"Changes the rows of {view.name} that match the filter.",
                )
            case DeleteEntry(view):
                response = required(self._types.named(f"{view.name}DeleteResponse"))
                return GraphQLField(
                    response,
                    self._which_rows(view),
                    description=f"Removes the rows of {view.name} that match the filter.",
                )
            case FunctionEntry() as entry:
                return _function_field(self._types, entry)
            case None:
                return None

    def _insert_field(self, view: TableView) -> GraphQLField:
        arguments = {
            "objects": GraphQLArgument(
                list_of(self._types.named(f"{view.name}InsertInput")), description="The rows to add."
            )
        }
        on_conflict = self._types.types.get(f"{view.name}OnConflictInput")
        if on_conflict is not None:
            arguments["onConflict"] = GraphQLArgument(
                on_conflict, description="What to do where a row is there already; by default it is an error."
            )
        response = self._types.named(f"{view.name}InsertResponse")
        return GraphQLField(response, arguments, description=f"Adds rows to {view.name}.")

    def _which_rows(self, view: TableView) -> dict[str, GraphQLArgument]:
        return {
            "filter": GraphQLArgument(
                self._types.named(f"{view.name}Filter"),
                description="Only rows that meet these conditions; all rows without.",
            ),
            "atMost": GraphQLArgument(
                required(GraphQLInt),
                default=GraphQLDefaultInput(value=1),
                description="The most rows that may be affected; more are an error that changes nothing.",
            ),
        }


def _allows(view: TableView, kind: type[InsertEntry | UpdateEntry | DeleteEntry]) -> bool:
    if kind is InsertEntry:
        return bool(view.insertable)
    return bool(view.updatable) if kind is UpdateEntry else view.deletable
