"""How a catalog's tables are related, seen from each table; pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum

from dataapi.catalog.model import Catalog, ForeignKey


class RelationshipKind(Enum):
    """How many rows are on either side, the side that it is seen from first."""

    MANY_TO_ONE = "many-to-one"
    ONE_TO_MANY = "one-to-many"
    ONE_TO_ONE = "one-to-one"


@dataclass(frozen=True, slots=True)
class Relationship:
    """One side of a foreign key.

    :ivar outgoing: whether the foreign key is on ``table``; a self reference has both sides.
    :ivar table, target: oids of the table that it is seen from and of the other one.
    :ivar pairs: pairs of a column of ``table`` and the equal one of ``target``.
    """

    kind: RelationshipKind
    foreign_key: ForeignKey
    outgoing: bool
    table: int
    target: int
    pairs: tuple[tuple[str, str], ...]

    @property
    def to_one(self) -> bool:
        """Whether at most one row of the target belongs to a row."""
        return self.kind is not RelationshipKind.ONE_TO_MANY


class Relationships:
    """The relationships of a catalog, indexed by table."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._outgoing: dict[int, list[ForeignKey]] = defaultdict(list)
        self._incoming: dict[int, list[ForeignKey]] = defaultdict(list)
        self._found: dict[int, tuple[Relationship, ...]] = {}
        for key in catalog.foreign_keys:
            self._outgoing[key.table].append(key)
            self._incoming[key.foreign_table].append(key)

    def of(self, table: int) -> tuple[Relationship, ...]:
        """Return the table's relationships: its own foreign keys, then those that point at it.

        The order follows the tables' and columns' own order, so that a new key comes after older ones.
        """
        found = self._found.get(table)
        if found is None:
            outgoing = sorted(self._outgoing.get(table, ()), key=self._order)
            incoming = sorted(self._incoming.get(table, ()), key=self._order)
            found = (*map(_from_referencing, outgoing), *map(_from_referenced, incoming))
            self._found[table] = found
        return found

    def _order(self, key: ForeignKey) -> tuple[int, str, list[int], str]:
        table = self._catalog.tables[key.table]
        numbers = {column.name: column.number for column in table.columns}
        position = self._catalog.search_path.index(table.schema)
        return position, table.name, [numbers[name] for name in key.columns], key.name


def _from_referencing(key: ForeignKey) -> Relationship:
    kind = RelationshipKind.ONE_TO_ONE if key.unique else RelationshipKind.MANY_TO_ONE
    pairs = tuple(zip(key.columns, key.foreign_columns, strict=True))
    return Relationship(kind, key, True, key.table, key.foreign_table, pairs)


def _from_referenced(key: ForeignKey) -> Relationship:
    kind = RelationshipKind.ONE_TO_ONE if key.unique else RelationshipKind.ONE_TO_MANY
    pairs = tuple(zip(key.foreign_columns, key.columns, strict=True))
    return Relationship(kind, key, False, key.foreign_table, key.table, pairs)
