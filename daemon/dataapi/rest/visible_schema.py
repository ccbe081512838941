"""The part of a schema that a role may use: tables with their permitted operations, and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from dataapi.catalog.model import Catalog, Column, ForeignKey, Function, Privileges, Table, TableKind
from dataapi.rest.parse.query import RESERVED
from dataapi.rest.plan.functions import is_callable

_VIEWS = frozenset({TableKind.VIEW, TableKind.MATERIALIZED_VIEW})


@dataclass(frozen=True, slots=True)
class VisibleTable:
    """A table and the operations that the role may run on it.

    :ivar columns: readable or writable columns, in order.
    :ivar key: key columns for replacing rows with PUT, empty if PUT is not possible.
    """

    table: Table
    columns: tuple[Column, ...]
    read: frozenset[str]
    insert: frozenset[str]
    update: frozenset[str]
    delete: bool
    key: tuple[str, ...]

    @property
    def filterable(self) -> tuple[Column, ...]:
        return tuple(
            column for column in self.columns if column.name in self.read and column.name not in RESERVED
        )


def default_text(catalog: Catalog, column: Column) -> str | None:
    if column.generated or column.identity:
        return None
    return column.default or catalog.types[column.type].default


class VisibleSchema:
    """The part of a schema that a role may use.

    If ``privileges`` is None, it contains everything (``openapi-mode = ignore-privileges``).
    """

    def __init__(
        self,
        catalog: Catalog,
        schema: str,
        privileges: Privileges | None,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self.catalog = catalog
        self.pause = pause
        self.schema = schema
        self._privileges = privileges
        self._accessible = schema in catalog.schemas and (
            privileges is None or privileges.can_use_schema(schema)
        )

    @cached_property
    def tables(self) -> tuple[VisibleTable, ...]:
        tables = []
        for table in self.catalog.tables.values() if self._accessible else ():
            if table.schema == self.schema and not table.partition_of:
                visible = self._table(table)
                if visible.columns or visible.delete:
                    self.pause()
                    tables.append(visible)
        return tuple(tables)

    def _table(self, table: Table) -> VisibleTable:
        read = self._columns(table, "SELECT")
        insert = self._writable(table, "INSERT") if table.insertable else frozenset()
        update = self._writable(table, "UPDATE") if table.updatable else frozenset()
        used = read | insert | update
        return VisibleTable(
            table,
            tuple(column for column in table.columns if column.name in used),
            read,
            insert,
            update,
            table.deletable
            and (self._privileges is None or self._privileges.has_table_privilege(table, "DELETE")),
            self._key(table, (read & insert & update) - RESERVED),
        )

    def _key(self, table: Table, usable: frozenset[str]) -> tuple[str, ...]:
        """Return the key columns if rows can be replaced with PUT, else an empty tuple.

        ``PUT`` reads, inserts and updates the key columns.
        """
        key = self.catalog.row_key(table)
        writable = {column.name for column in table.columns if column.identity != "a"}
        return key if usable & writable >= set(key) else ()

    def _columns(self, table: Table, privilege: str) -> frozenset[str]:
        if self._privileges is None:
            return frozenset(column.name for column in table.columns)
        return self._privileges.columns(table, privilege)

    def _writable(self, table: Table, privilege: str) -> frozenset[str]:
        columns = self._columns(table, privilege)
        if table.updatable_columns is not None:
            columns &= table.updatable_columns
        return frozenset(column.name for column in table.columns if not column.generated) & columns

    def required(self, table: VisibleTable) -> frozenset[str]:
        """Return the columns that the rows of an insert must contain.

        The columns of a view have no defaults of their own. A trigger or the underlying table may fill them.
        """
        if table.table.kind in _VIEWS:
            return frozenset()
        needed = (column for column in table.columns if not column.nullable and not column.identity)
        without_default = {column.name for column in needed if default_text(self.catalog, column) is None}
        return table.insert & without_default

    @cached_property
    def executable(self) -> tuple[Function, ...]:
        """Functions that the role may execute, including computed fields that requests cannot call."""
        return tuple(
            function
            for function in self.catalog.functions
            if self._accessible
            and function.schema == self.schema
            and (self._privileges is None or self._privileges.can_execute(function))
        )

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        return tuple(function for function in self.executable if is_callable(self.catalog, function))

    @cached_property
    def references(self) -> dict[tuple[int, str], ForeignKey]:
        """Single-column foreign keys by table and column. Keys to tables take precedence over keys to views.

        Keys to columns that the role is not allowed to use are excluded, because they would disclose a
        column's name.
        """
        columns = {visible.table.oid: {column.name for column in visible.columns} for visible in self.tables}
        references: dict[tuple[int, str], ForeignKey] = {}
        keys = [*self.catalog.foreign_keys, *self.catalog.view_keys]
        keys.sort(key=lambda key: self.catalog.tables[key.foreign_table].kind in _VIEWS)
        for key in keys:
            visible = key.table in columns and key.foreign_columns[0] in columns.get(key.foreign_table, ())
            if visible and len(key.columns) == 1:
                references.setdefault((key.table, key.columns[0]), key)
        return references


def visible_keys(catalog: Catalog, tables: Mapping[int, VisibleTable]) -> Iterator[ForeignKey]:
    """Yield the foreign keys whose referencing and referenced columns the role may use."""

    def shows(oid: int, columns: tuple[str, ...]) -> bool:
        visible = tables.get(oid)
        return visible is not None and {column.name for column in visible.columns}.issuperset(columns)

    for key in (*catalog.foreign_keys, *catalog.view_keys):
        if shows(key.table, key.columns) and shows(key.foreign_table, key.foreign_columns):
            yield key
