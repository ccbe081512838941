"""The keys that views have by the tables under them; pure.

A view whose columns are plain columns of a table, perhaps through other views, is related as that
table is, whether or not the table itself is exposed (``reference/rest.md`` 1.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

from dataapi.catalog.model import ForeignKey, Table

MOST_READINGS = 16
"""How many ways a view may show the columns of one key; more of them are left out."""

_PAUSE_EVERY = 50

Columns = tuple[str, ...]
_Shown = Mapping[int, Sequence[str]]


class Views:
    """What views show of keys: for each table under them, the views and their columns' names."""

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

    def keys(self, references: Sequence[Any], pause: Callable[[], None]) -> Iterator[ForeignKey]:
        """Yield what the foreign keys are between views, and between views and exposed tables.

        :param references: ``[name, table, its column numbers, foreign table, its column numbers, comment,
            whether the columns are unique]``.
        :param pause: called between small pieces of work.
        """
        made = 0
        for name, table_oid, numbers, foreign_oid, foreign_numbers, comment, unique in references:
            foreign_sides = list(self._sides(int(foreign_oid), foreign_numbers))
            for table, columns in self._sides(int(table_oid), numbers):
                for foreign, foreign_columns in foreign_sides:
                    if table == int(table_oid) and foreign == int(foreign_oid):
                        continue
                    if made % _PAUSE_EVERY == 0:
                        pause()
                    made += 1
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
                yield from ((view, columns) for columns in _readings(shown, numbers))


def _readings(shown: _Shown, numbers: Sequence[int]) -> Iterator[Columns]:
    return islice(product(*(shown[number] for number in numbers)), MOST_READINGS)


def _names(table: Table) -> dict[int, str]:
    return {column.number: column.name for column in table.columns}
