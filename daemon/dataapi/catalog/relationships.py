"""How a catalog's tables are related: by foreign keys, through junction tables and by functions; pure.

Both APIs read their relationships here.  What differs is theirs: how a relationship is named and chosen, and
whether views have the keys of the tables under them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice, product
from typing import Any, ClassVar

from dataapi.catalog.directives import DeclaredForeignKey, TableDirectives
from dataapi.catalog.model import Catalog, Column, ForeignKey, Function, Problem, Table, place_of
from dataapi.database.sql_text import OWN_SCHEMA

MAX_READINGS = 16
"""How many ways a view may show the columns of one key; more of them are left out."""

Columns = tuple[str, ...]
Pairs = tuple[tuple[str, str], ...]


class Cardinality(Enum):
    """How many rows there are on either side, the side that it is seen from first."""

    ONE_TO_MANY = "one-to-many"
    MANY_TO_ONE = "many-to-one"
    ONE_TO_ONE = "one-to-one"
    MANY_TO_MANY = "many-to-many"


@dataclass(frozen=True, slots=True, eq=False)
class KeyRelationship:
    """One side of a foreign key; a table that references itself has both.  Compared by identity.

    :ivar table, target: the table that it is seen from, and the other one.
    :ivar outgoing: whether the foreign key is on ``table``.
    :ivar pairs: pairs of a column of ``table`` and the equal one of ``target``.
    """

    table: Table
    target: Table
    cardinality: Cardinality
    foreign_key: ForeignKey
    outgoing: bool
    pairs: Pairs

    @property
    def schemas(self) -> tuple[str, ...]:
        """The schemas of the operators by which the pairs are equal."""
        return tuple(
            _equality(self.table.column(own), self.target.column(theirs)) for own, theirs in self.pairs
        )

    @property
    def to_one(self) -> bool:
        """Whether at most one row of the target belongs to a row."""
        return self.cardinality is not Cardinality.ONE_TO_MANY


def _equality(own: Column | None, theirs: Column | None) -> str:
    """Return the schema of the operator by which two columns are equal."""
    alike = own is not None and theirs is not None and own.comparison_schema == theirs.comparison_schema
    return own.comparison_schema if alike and own is not None else OWN_SCHEMA


@dataclass(frozen=True, slots=True, eq=False)
class JunctionRelationship:
    """Many to many: a junction table between has a foreign key to either side.

    :ivar near: leads from the table to the junction, ``far`` from there to the target.
    :ivar in_primary_key: whether the columns of both foreign keys belong to the junction's primary key.
    :ivar in_unique_key: whether they belong to one of its unique keys, the primary one included.
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
    """A function of a row of ``table`` that returns rows of ``target``."""

    table: Table
    target: Table
    function: Function

    @property
    def to_one(self) -> bool:
        """Whether the function gives one row at most."""
        return self.function.gives_one_row


Relationship = KeyRelationship | JunctionRelationship | ComputedRelationship


class Relationships:
    """The relationships of a catalog's tables, each table's derived when it is first asked for.

    :param views: whether views have the keys of the tables under them, instead of those that directives
        declare.
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
        """Return all relationships of a table: by foreign key, through junction tables, by functions."""
        found = self._all.get(table.oid)
        if found is None:
            found = (*self.by_key(table), *self._through_junctions(table), *self._computed(table))
            self._all[table.oid] = found
        return found

    def by_key(self, table: Table) -> tuple[KeyRelationship, ...]:
        """Return a table's relationships by foreign key: its own keys first, then those that point at it.

        The order follows the tables' and columns' own order, so that a new key comes after older ones.
        """
        found = self._by_key.get(table.oid)
        if found is None:
            outgoing = sorted(self._outgoing.get(table.oid, ()), key=self._order)
            incoming = sorted(self._incoming.get(table.oid, ()), key=self._order)
            found = (*map(self._from_referencing, outgoing), *map(self._from_referenced, incoming))
            self._by_key[table.oid] = found
        return found

    def functions_of(self, table: Table) -> Sequence[Function]:
        """Return the functions whose only argument is a row of the table, in the catalog's order."""
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
    """The keys of views, by the tables under them.

    A view whose columns are plain columns of a table, perhaps through other views, is related as that table
    is, whether or not the table itself is exposed (``docs/reference/rest.md``, Relationships).
    """

    def __init__(self, surfaces: Sequence[Any], tables: Mapping[int, Table]) -> None:
        """Read the surfaces: of each view, ``[number, table, number in the table]`` for plain columns."""
        self._tables = tables
        # By table and view, the number of the table's column, and the names that the view has for it.
        self._shown: dict[int, dict[int, dict[int, list[str]]]] = defaultdict(dict)
        for oid, columns in surfaces:
            view = int(oid)
            names = _names(tables[view])
            for number, origin, origin_number in columns:
                shown = self._shown[int(origin)].setdefault(view, {})
                shown.setdefault(origin_number, []).append(names[number])

    def keys(self, references: Sequence[Any]) -> Iterator[ForeignKey]:
        """Yield what the foreign keys are between views, and between views and exposed tables.

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
        """Return, by view, the columns that show whole primary keys.

        A view over several tables has the keys of all of them that are there whole, the one whose columns
        come first before the others.

        :param keys: ``[table, its primary key's column numbers]``.
        """
        found: dict[int, list[Columns]] = defaultdict(list)
        for oid, numbers in keys:
            for view, shown in self._shown.get(int(oid), {}).items():
                if all(number in shown for number in numbers):
                    found[view].append(tuple(shown[number][0] for number in numbers))
        return {view: self._in_order(view, parts) for view, parts in found.items()}

    def _in_order(self, view: int, parts: list[Columns]) -> Columns:
        order = {column.name: column.number for column in self._tables[view].columns}
        parts.sort(key=lambda columns: min(order[name] for name in columns))
        return tuple(dict.fromkeys(name for columns in parts for name in columns))

    def _sides(self, oid: int, numbers: Sequence[int]) -> Iterator[tuple[int, Columns]]:
        """Yield the relations that have all the columns, with their names there."""
        table = self._tables.get(oid)
        if table is not None:
            names = _names(table)
            yield oid, tuple(names[number] for number in numbers)
        for view, shown in self._shown.get(oid, {}).items():
            if all(number in shown for number in numbers):
                readings = product(*(shown[number] for number in numbers))
                yield from ((view, columns) for columns in islice(readings, MAX_READINGS))


def _names(table: Table) -> dict[int, str]:
    return {column.number: column.name for column in table.columns}


def declared_keys(
    catalog: Catalog, directives: Mapping[int, TableDirectives], problems: list[Problem]
) -> list[tuple[ForeignKey, DeclaredForeignKey]]:
    """Return the foreign keys that directives of tables declare, each under a name that no constraint has.

    One that PostgreSQL has is that of the constraint.

    :param directives: by the tables' oids.
    :param problems: gets those that do not fit the tables.
    """
    tables = {(table.schema, table.name): table for table in catalog.tables.values()}
    keys = []
    for oid, annotation in directives.items():
        table = catalog.tables[oid]
        unique = [*(key.columns for key in table.unique_keys), annotation.primary_key_columns]
        for index, declared in enumerate(annotation.foreign_keys):
            foreign = tables.get((declared.foreign_schema, declared.foreign_table))
            mistake = _mistake(catalog, table, foreign, declared)
            if foreign is None or mistake:
                message = f"@graphql: foreign_keys: {mistake}; that foreign key is left out"
                problems.append(Problem(place_of(table), message))
                continue
            known = next(
                (key for key in catalog.foreign_keys if _is_same(key, oid, foreign.oid, declared)), None
            )
            key = known or ForeignKey(
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
    """Whether a key is the one that is declared, in whatever order of its columns."""
    pairs = set(zip(declared.local_columns, declared.foreign_columns, strict=True))
    same_tables = (key.table, key.foreign_table) == (table, foreign)
    return same_tables and set(zip(key.columns, key.foreign_columns, strict=True)) == pairs


def _mistake(
    catalog: Catalog, table: Table, foreign: Table | None, declared: DeclaredForeignKey
) -> str | None:
    """Return why a declared key does not fit, None for one that does."""
    if foreign is None:
        return f"no table {declared.foreign_schema}.{declared.foreign_table} is exposed"
    mistake = column_mistake(declared.foreign_columns, {column.name for column in foreign.columns})
    if mistake:
        return f"foreign_columns {mistake}"
    for local_name, foreign_name in zip(declared.local_columns, declared.foreign_columns, strict=True):
        ours, theirs = table.column(local_name), foreign.column(foreign_name)
        if ours and theirs and catalog.types[ours.type].category != catalog.types[theirs.type].category:
            return f"column {local_name!r} can't be compared with {foreign_name!r}"
    return None


def column_mistake(names: Sequence[str], columns: Collection[str]) -> str | None:
    """Return what is wrong with a list of column names, or None."""
    unknown = [name for name in names if name not in columns]
    if unknown:
        return f"names the unknown column {unknown[0]!r}"
    if len(set(names)) < len(names):
        return "names a column twice"
    return None
