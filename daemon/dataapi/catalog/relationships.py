"""Relationships of a catalog's tables: foreign keys, junction tables and functions.

GraphQL and REST each have their own rules for names, for choosing a relationship, and for whether views have
the keys of their underlying tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice, product
from typing import Any, ClassVar

from dataapi.catalog.directives import DeclaredForeignKey, TableDirectives
from dataapi.catalog.model import Catalog, Column, ForeignKey, Function, Problem, Table, describe_object
from dataapi.database.sql_text import OWN_SCHEMA

MAX_VIEW_KEYS = 16
"""Maximum number of column combinations of a view that represent the same key. Others are ignored."""

Columns = tuple[str, ...]
Pairs = tuple[tuple[str, str], ...]


class Cardinality(Enum):
    """Cardinality of a relationship, the source table's side first."""

    ONE_TO_MANY = "one-to-many"
    MANY_TO_ONE = "many-to-one"
    ONE_TO_ONE = "one-to-one"
    MANY_TO_MANY = "many-to-many"


@dataclass(frozen=True, slots=True, eq=False)
class KeyRelationship:
    """One side of a foreign key. A table that references itself has both sides.

    Instances are compared by identity.

    :ivar pairs: pairs of a column of ``table`` and the matching column of ``target``.
    """

    table: Table
    target: Table
    cardinality: Cardinality
    foreign_key: ForeignKey
    outgoing: bool
    pairs: Pairs

    @property
    def schemas(self) -> tuple[str, ...]:
        return tuple(
            _equality(self.table.column(own), self.target.column(theirs)) for own, theirs in self.pairs
        )

    @property
    def to_one(self) -> bool:
        return self.cardinality is not Cardinality.ONE_TO_MANY


def _equality(own: Column | None, theirs: Column | None) -> str:
    same_schema = own is not None and theirs is not None and own.comparison_schema == theirs.comparison_schema
    return own.comparison_schema if same_schema and own is not None else OWN_SCHEMA


@dataclass(frozen=True, slots=True, eq=False)
class JunctionRelationship:
    """A many-to-many relationship: ``near`` leads to the junction table, ``far`` from there to the target.

    :ivar in_primary_key: whether the junction table's primary key contains the columns of both foreign keys.
    :ivar in_unique_key: whether any unique key of the junction table, such as the primary key, contains these
        columns.
    """

    near: KeyRelationship
    far: KeyRelationship
    in_primary_key: bool
    in_unique_key: bool
    cardinality: ClassVar = Cardinality.MANY_TO_MANY
    to_one: ClassVar = False

    @property
    def table(self) -> Table:
        return self.near.table

    @property
    def junction(self) -> Table:
        return self.near.target

    @property
    def target(self) -> Table:
        return self.far.target


@dataclass(frozen=True, slots=True, eq=False)
class ComputedRelationship:
    """A function that takes a row of ``table`` and returns rows of ``target``."""

    table: Table
    target: Table
    function: Function

    @property
    def to_one(self) -> bool:
        return self.function.returns_one_row


Relationship = KeyRelationship | JunctionRelationship | ComputedRelationship


class Relationships:
    """Relationships of a catalog's tables, computed on first use.

    :param views: true to add the foreign keys that views inherit from their tables. False to add the foreign
        keys that directives declare.
    """

    def __init__(self, catalog: Catalog, *, views: bool = False) -> None:
        self._catalog = catalog
        keys = catalog.foreign_keys
        if views:
            keys = (*(key for key in keys if not key.declared), *catalog.view_keys)
        self._outgoing: dict[int, list[ForeignKey]] = defaultdict(list)
        self._incoming: dict[int, list[ForeignKey]] = defaultdict(list)
        self._by_key: dict[int, tuple[KeyRelationship, ...]] = {}
        self._all: dict[int, tuple[Relationship, ...]] = {}
        self._functions: dict[int, list[Function]] = defaultdict(list)
        for key in keys:
            self._outgoing[key.table].append(key)
            self._incoming[key.foreign_table].append(key)
        for function in catalog.functions:
            if len(function.arguments) == 1:
                self._functions[function.arguments[0].type].append(function)

    def of(self, table: Table) -> tuple[Relationship, ...]:
        relationships = self._all.get(table.oid)
        if relationships is None:
            relationships = (*self.by_key(table), *self._through_junctions(table), *self._computed(table))
            self._all[table.oid] = relationships
        return relationships

    def by_key(self, table: Table) -> tuple[KeyRelationship, ...]:
        """Return a table's relationships by foreign key: its own keys first, then keys to it.

        Keys are ordered by table and column, so that new keys come last.
        """
        relationships = self._by_key.get(table.oid)
        if relationships is None:
            outgoing = sorted(self._outgoing.get(table.oid, ()), key=self._order)
            incoming = sorted(self._incoming.get(table.oid, ()), key=self._order)
            relationships = (*map(self._from_referencing, outgoing), *map(self._from_referenced, incoming))
            self._by_key[table.oid] = relationships
        return relationships

    def functions_of(self, table: Table) -> Sequence[Function]:
        """Return the functions whose only argument is a row of the table."""
        return self._functions.get(table.type, ())

    def _order(self, key: ForeignKey) -> tuple[int, str, list[int], str]:
        table = self._catalog.tables[key.table]
        numbers = {column.name: column.number for column in table.columns}
        position = self._catalog.search_path.index(table.schema)
        return position, table.name, [numbers[name] for name in key.columns], key.name

    def _from_referencing(self, key: ForeignKey) -> KeyRelationship:
        tables = self._catalog.tables
        cardinality = Cardinality.ONE_TO_ONE if key.unique else Cardinality.MANY_TO_ONE
        pairs = tuple(zip(key.columns, key.foreign_columns, strict=True))
        return KeyRelationship(tables[key.table], tables[key.foreign_table], cardinality, key, True, pairs)

    def _from_referenced(self, key: ForeignKey) -> KeyRelationship:
        tables = self._catalog.tables
        cardinality = Cardinality.ONE_TO_ONE if key.unique else Cardinality.ONE_TO_MANY
        pairs = tuple(zip(key.foreign_columns, key.columns, strict=True))
        return KeyRelationship(tables[key.foreign_table], tables[key.table], cardinality, key, False, pairs)

    def _through_junctions(self, table: Table) -> Iterator[JunctionRelationship]:
        for near in self.by_key(table):
            if near.cardinality is not Cardinality.ONE_TO_MANY:
                continue
            for far in self.by_key(near.target):
                other = far.foreign_key.name != near.foreign_key.name
                if far.cardinality is Cardinality.MANY_TO_ONE and other:
                    columns = {*near.foreign_key.columns, *far.foreign_key.columns}
                    primary_key = self._catalog.stored_key(near.target)
                    in_primary_key = columns <= set(primary_key)
                    unique = any(columns <= set(key.columns) for key in near.target.unique_keys)
                    yield JunctionRelationship(near, far, in_primary_key, in_primary_key or unique)

    def _computed(self, table: Table) -> Iterator[ComputedRelationship]:
        for function in self.functions_of(table):
            type_ = self._catalog.types.get(function.returns)
            target = self._catalog.tables.get(type_.relation) if type_ is not None else None
            if target is not None:
                yield ComputedRelationship(table, target, function)


class ViewKeys:
    """Keys that views derive from their underlying tables.

    A view whose columns are plain columns of a table, possibly through other views, has that table's
    relationships, even if the table is not exposed (docs/reference/rest.md, Relationships).

    :param surfaces: for each view, a list of ``[column number, table, column number in the table]`` for its
        plain columns.
    """

    def __init__(self, surfaces: Sequence[Any], tables: Mapping[int, Table]) -> None:
        self._tables = tables
        # table -> view -> column number in the table -> column names in the view
        self._view_columns: dict[int, dict[int, dict[int, list[str]]]] = defaultdict(dict)
        for oid, columns in surfaces:
            view = int(oid)
            names = _names(tables[view])
            for number, origin, origin_number in columns:
                view_columns = self._view_columns[int(origin)].setdefault(view, {})
                view_columns.setdefault(origin_number, []).append(names[number])

    def keys(self, references: Sequence[Any]) -> Iterator[ForeignKey]:
        """Yield the foreign keys between views, and between views and exposed tables.

        :param references: ``[name, table, its column numbers, foreign table, its column numbers, comment,
            whether the columns are unique]``.
        """
        for name, table_oid, numbers, foreign_oid, foreign_numbers, comment, unique in references:
            foreign_sides = list(self._sides(int(foreign_oid), foreign_numbers))
            for table, columns in self._sides(int(table_oid), numbers):
                for foreign, foreign_columns in foreign_sides:
                    if table == int(table_oid) and foreign == int(foreign_oid):
                        continue
                    yield ForeignKey(name, table, columns, foreign, foreign_columns, unique, comment)

    def primary_keys(self, keys: Sequence[Any]) -> dict[int, Columns]:
        """Return the columns that contain complete primary keys, by view.

        A view over several tables can contain several keys, sorted by their first column.

        :param keys: ``[table, its primary key's column numbers]``.
        """
        keys_by_view: dict[int, list[Columns]] = defaultdict(list)
        for oid, numbers in keys:
            for view, view_columns in self._view_columns.get(int(oid), {}).items():
                if all(number in view_columns for number in numbers):
                    keys_by_view[view].append(tuple(view_columns[number][0] for number in numbers))
        return {view: self._in_order(view, parts) for view, parts in keys_by_view.items()}

    def _in_order(self, view: int, parts: list[Columns]) -> Columns:
        order = {column.name: column.number for column in self._tables[view].columns}
        parts.sort(key=lambda columns: min(order[name] for name in columns))
        return tuple(dict.fromkeys(name for columns in parts for name in columns))

    def _sides(self, oid: int, numbers: Sequence[int]) -> Iterator[tuple[int, Columns]]:
        table = self._tables.get(oid)
        if table is not None:
            names = _names(table)
            yield oid, tuple(names[number] for number in numbers)
        for view, view_columns in self._view_columns.get(oid, {}).items():
            if all(number in view_columns for number in numbers):
                combinations = product(*(view_columns[number] for number in numbers))
                yield from ((view, columns) for columns in islice(combinations, MAX_VIEW_KEYS))


def _names(table: Table) -> dict[int, str]:
    return {column.number: column.name for column in table.columns}


def declared_keys(
    catalog: Catalog, directives: Mapping[int, TableDirectives], problems: list[Problem]
) -> list[tuple[ForeignKey, DeclaredForeignKey]]:
    """Return the foreign keys that directives declare, with generated names.

    If PostgreSQL has the same foreign key, PostgreSQL's is returned instead. Problems are added to
    ``problems``.
    """
    tables = {(table.schema, table.name): table for table in catalog.tables.values()}
    keys = []
    for oid, table_directives in directives.items():
        table = catalog.tables[oid]
        unique = [*(key.columns for key in table.unique_keys), table_directives.primary_key_columns]
        for index, declared in enumerate(table_directives.foreign_keys):
            foreign = tables.get((declared.foreign_schema, declared.foreign_table))
            mistake = _mistake(catalog, table, foreign, declared)
            if foreign is None or mistake:
                message = f"@graphql: foreign_keys: {mistake}; that foreign key is ignored"
                problems.append(Problem(describe_object(table), message))
                continue
            existing = next(
                (key for key in catalog.foreign_keys if _is_same(key, oid, foreign.oid, declared)), None
            )
            key = existing or ForeignKey(
                name=f"@graphql foreign_keys[{index}]",
                table=table.oid,
                columns=declared.local_columns,
                foreign_table=foreign.oid,
                foreign_columns=declared.foreign_columns,
                unique=any(set(columns) <= set(declared.local_columns) for columns in unique if columns),
                comment=None,
                declared=True,
            )
            keys.append((key, declared))
    return keys


def _is_same(key: ForeignKey, table: int, foreign: int, declared: DeclaredForeignKey) -> bool:
    pairs = set(zip(declared.local_columns, declared.foreign_columns, strict=True))
    same_tables = (key.table, key.foreign_table) == (table, foreign)
    return same_tables and set(zip(key.columns, key.foreign_columns, strict=True)) == pairs


def _mistake(
    catalog: Catalog, table: Table, foreign: Table | None, declared: DeclaredForeignKey
) -> str | None:
    if foreign is None:
        return f"table {declared.foreign_schema}.{declared.foreign_table} is not exposed"
    mistake = column_mistake(declared.foreign_columns, {column.name for column in foreign.columns})
    if mistake:
        return f"foreign_columns {mistake}"
    for local_name, foreign_name in zip(declared.local_columns, declared.foreign_columns, strict=True):
        ours, theirs = table.column(local_name), foreign.column(foreign_name)
        if ours and theirs and catalog.types[ours.type].category != catalog.types[theirs.type].category:
            return f"column {local_name!r} cannot be compared with {foreign_name!r}"
    return None


def column_mistake(names: Sequence[str], columns: Collection[str]) -> str | None:
    unknown = [name for name in names if name not in columns]
    if unknown:
        return f"lists the unknown column {unknown[0]!r}"
    if len(set(names)) < len(names):
        return "lists a column twice"
    return None
