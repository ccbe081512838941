"""The part of a schema that a role may use, and an incremental JSON encoder; pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import Any

from dataapi.catalog.directive_reader import without_directives
from dataapi.catalog.model import Catalog, Column, ForeignKey, Function, Privileges, Table, TableKind
from dataapi.rest.parse.query import RESERVED
from dataapi.rest.plan.functions import is_callable

_VIEWS = frozenset({TableKind.VIEW, TableKind.MATERIALIZED_VIEW})


@dataclass(frozen=True, slots=True)
class VisibleTable:
    """A table and the operations that the role may run on it.

    :ivar columns: readable or writable columns, in order.
    :ivar read: names of the readable columns.
    :ivar insert: names of the columns that can be inserted.
    :ivar update: names of the columns that can be updated.
    :ivar key: key columns by which rows can be replaced with PUT, empty if they cannot.
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


class VisibleSchema:
    """The part of a schema that a role may use.

    :param privileges: privileges of the role, None to describe everything (``openapi-mode =
        ignore-privileges``).
    :param pause: called between small pieces of work.
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
        """Return the key if rows can be replaced by it.

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

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        return tuple(
            function
            for function in self.catalog.functions
            if self._accessible
            and function.schema == self.schema
            and (self._privileges is None or self._privileges.can_execute(function))
            and is_callable(self.catalog, function)
        )

    @cached_property
    def references(self) -> dict[tuple[int, str], ForeignKey]:
        """Single-column foreign keys by table and column.  Keys to tables take precedence over keys to views.

        Keys to columns that the role may not use are excluded, because they would disclose a column's name.
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


def column_description(visible: VisibleSchema, table: VisibleTable, column: Column) -> str | None:
    """Return a column's comment with notes on keys, in the form that clients parse."""
    notes = []
    if column.name in visible.catalog.row_key(table.table):
        notes.append("This is a Primary Key.<pk/>")
    key = visible.references.get((table.table.oid, column.name))
    if key is not None:
        foreign, other = visible.catalog.tables[key.foreign_table].name, key.foreign_columns[0]
        notes.append(f"This is a Foreign Key to `{foreign}.{other}`.<fk table='{foreign}' column='{other}'/>")
    text = without_directives(column.comment)
    if not notes:
        return text
    return "\n".join([*([f"{text}\n"] if text else []), "Note:", *notes])


def summary(comment: str | None) -> tuple[str | None, str | None]:
    text = without_directives(comment)
    if text is None:
        return None, None
    first, _, rest = text.partition("\n")
    return first, rest.lstrip("\n") or None


class Note(Enum):
    """Information for OpenAPI 2.0 only.  Notes are keys in the 3.1 document that are not encoded.

    :cvar TABLE: table of a schema of rows.
    :cvar TYPE: SQL name of a schema's type.
    :cvar DEFAULT: default of a column, as SQL text if it is an expression.
    :cvar LABELS: labels of a column's enum.
    :cvar PARAMETER: parameter behind a reference to a column's filter.
    :cvar COMMENT: whole comment of a function.
    :cvar LAST_OVERLOAD: operations of the last of several functions with one name.
    """

    TABLE = auto()
    TYPE = auto()
    DEFAULT = auto()
    LABELS = auto()
    PARAMETER = auto()
    COMMENT = auto()
    LAST_OVERLOAD = auto()


# Keys other than strings, such as notes, are skipped.
_TEXT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), skipkeys=True).encode


@dataclass(frozen=True, slots=True)
class ObjectMembers:
    """The members of an object, computed while encoding.  Values may be ``ObjectMembers`` too.

    :ivar pairs: returns the members with unique names.
    """

    pairs: Callable[[], Iterable[tuple[str, Any]]]


def members(**values: Any) -> ObjectMembers:
    return ObjectMembers(values.items)


def without_empty(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != []}


def encode(value: Any, pause: Callable[[], None]) -> bytes:
    """Encode a value as JSON.

    :param pause: called after each member of ``ObjectMembers``.
    """
    return b"".join(piece.encode() for piece in _pieces(value, pause))


def _pieces(value: Any, pause: Callable[[], None]) -> Iterator[str]:
    if not isinstance(value, ObjectMembers):
        yield _TEXT(value)
        return
    separator = "{"
    for name, member in value.pairs():
        yield f"{separator}{_TEXT(name)}:"
        yield from _pieces(member, pause)
        pause()
        separator = ","
    yield "{}" if separator == "{" else "}"
