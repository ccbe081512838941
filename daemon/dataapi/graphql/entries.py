"""Entry points: the fields of ``Query`` as one role sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from graphql import GraphQLArgument, GraphQLField, GraphQLID

from dataapi.catalog.names import lower_first
from dataapi.graphql.common import NODE
from dataapi.graphql.scalars import DATETIME
from dataapi.graphql.types import Make, TableTypes, required
from dataapi.graphql.views import TableView


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
    """``heartbeat``: the database's time, so that ``Query`` is never empty."""


Entry = CollectionEntry | ByKeyEntry | NodeEntry | HeartbeatEntry


class QueryEntries:
    """Finds the entry points of ``Query`` by name, and makes their fields on demand."""

    def __init__(self, types: TableTypes) -> None:
        self._types = types
        self._tables: dict[str, tuple[int, bool]] = {}
        for oid, name in types.view.named_tables():
            self._tables[f"{lower_first(name)}Collection"] = oid, False
            self._tables[f"{lower_first(name)}ByPk"] = oid, True

    def find(self, name: str) -> Entry | None:
        """Return the entry point of that name, None when the role has none."""
        if name == "node":
            return NodeEntry()
        if name == "heartbeat":
            return HeartbeatEntry()
        oid, by_key = self._tables.get(name, (0, False))
        view = self._types.view.table(oid) if oid else None
        if view is None or (by_key and not view.by_key):
            return None
        return ByKeyEntry(view) if by_key else CollectionEntry(view)

    def makers(self) -> Mapping[str, Make[GraphQLField]]:
        """Return what makes each field of ``Query``."""
        names = ("node", *self._tables, "heartbeat")
        return {name: partial(self._field, name) for name in names}

    def _field(self, name: str) -> GraphQLField | None:
        match self.find(name):
            case CollectionEntry(view):
                return self._types.collection_field(view, view.directives.description)
            case ByKeyEntry(view):
                return self._by_key_field(view)
            case NodeEntry():
                arguments = {"nodeId": GraphQLArgument(required(GraphQLID))}
                return GraphQLField(NODE, arguments, description="The row that a node id names.")
            case HeartbeatEntry():
                return GraphQLField(required(DATETIME), description="The time in the database.")
            case None:
                return None

    def _by_key_field(self, view: TableView) -> GraphQLField:
        arguments = {
            field.name: GraphQLArgument(required(self._types.output_type(field.wire)))
            for field in view.by_key
        }
        return GraphQLField(
            self._types.named(view.name), arguments, description="The row with that primary key."
        )
