"""The names of the types that are made for tables and enums, all different over a catalog; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dataapi.catalog.directives import is_graphql_name
from dataapi.catalog.inflection import inflect, inflects, lower_first, numbered
from dataapi.catalog.model import Catalog, Problem, Table, Type, TypeKind

_SCALARS = (
    *("Int", "Float", "String", "Boolean", "ID"),
    *("BigInt", "BigFloat", "Datetime", "Date", "Time", "JSON", "UUID", "Opaque", "Cursor"),
)

RESERVED_TYPES = frozenset(
    {
        *(
            "Query",
            "Mutation",
            "Subscription",
            "Node",
            "PageInfo",
            "OrderByDirection",
            "FilterIs",
            "IsFilter",
        ),
        *_SCALARS,
        *(f"{scalar}Filter" for scalar in _SCALARS),
        *(f"{scalar}ListFilter" for scalar in _SCALARS),
    }
)
"""Type names that the schema itself uses."""

TABLE_SUFFIXES = (
    "",
    "Connection",
    "Edge",
    "Filter",
    "OrderBy",
    "InsertInput",
    "UpdateInput",
    "InsertResponse",
    "UpdateResponse",
    "DeleteResponse",
    "Aggregate",
    "SumAggregateResult",
    "AvgAggregateResult",
    "MinAggregateResult",
    "MaxAggregateResult",
)
"""What is put after a table's base name to name the types that are made for it."""

ENUM_SUFFIXES = ("", "Filter", "ListFilter")
"""What is put after an enum's name to name the types that are made for it."""

_PAUSE_EVERY = 50


def assign_base_names(
    catalog: Catalog, pause: Callable[[], None]
) -> tuple[dict[int, str], tuple[Problem, ...]]:
    """Name the types of tables that have a key and of enums, each by its oid.

    Tables are named in search path and name order, those with a directive first, then enums; the first
    one that wants a name has it.  (The reference leaves open which one has it.)  A base name is taken
    when one of the types or entry points made from it would clash.

    :param pause: called between small pieces of work.
    """
    order = {name: position for position, name in enumerate(catalog.search_path)}
    tables = [table for table in catalog.tables.values() if catalog.primary_key(table)]
    tables.sort(
        key=lambda table: (catalog.annotations.table(table.oid).name is None, order[table.schema], table.name)
    )
    enums = [
        type_ for type_ in catalog.types.values() if type_.kind is TypeKind.ENUM and type_.schema in order
    ]
    enums.sort(
        key=lambda type_: (catalog.annotations.enum(type_.oid).name is None, order[type_.schema], type_.name)
    )
    naming = _BaseNames(catalog)
    for number, table in enumerate(tables):
        if number % _PAUSE_EVERY == 0:
            pause()
        place = f"table {table.schema}.{table.name}"
        naming.add(table.oid, place, table, catalog.annotations.table(table.oid).name, TABLE_SUFFIXES)
    for type_ in enums:
        place = f"enum {type_.schema}.{type_.name}"
        naming.add(type_.oid, place, type_, catalog.annotations.enum(type_.oid).name, ENUM_SUFFIXES)
    return naming.names, tuple(naming.problems)


class _BaseNames:
    def __init__(self, catalog: Catalog) -> None:
        self.names: dict[int, str] = {}
        self.problems: list[Problem] = []
        self._catalog = catalog
        # What each name is taken by.
        self._types = dict.fromkeys(RESERVED_TYPES, "a type of every schema")
        # Entry points begin with a lower-case letter, so names that differ only there clash too.
        self._entry_points: dict[str, str] = {}

    def add(
        self, oid: int, place: str, thing: Table | Type, override: str | None, suffixes: tuple[str, ...]
    ) -> None:
        """Give the thing its name, a longer one when that is taken, none when it is no GraphQL name."""
        inflection = inflects(self._catalog, thing.schema)
        wanted = override or inflect(thing.name, inflection)
        if not is_graphql_name(wanted):
            return
        longer = inflect(f"{thing.schema}_{thing.name}", inflection)
        candidates = [wanted, longer if is_graphql_name(longer) else wanted]
        chosen = next(name for name in self._candidates(candidates) if not self._taken_by(name, suffixes))
        if chosen != wanted:
            owner = self._taken_by(wanted, suffixes)
            message = f"the GraphQL name {wanted} is taken by {owner}; its type is named {chosen}"
            self.problems.append(Problem(place, message, clash=True))
        self.names[oid] = chosen
        self._types.update((chosen + suffix, place) for suffix in suffixes)
        self._entry_points[lower_first(chosen)] = place

    @staticmethod
    def _candidates(names: list[str]) -> Iterator[str]:
        yield from names
        yield from numbered(names[-1])

    def _taken_by(self, name: str, suffixes: tuple[str, ...]) -> str | None:
        """Return what has a name already that would be made of this one."""
        owner = self._entry_points.get(lower_first(name))
        if owner is not None:
            return owner
        return next((self._types[name + suffix] for suffix in suffixes if name + suffix in self._types), None)
