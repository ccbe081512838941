"""The names of the types that are made for tables and enums, all different over a catalog; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dataapi.catalog.directives import is_graphql_name
from dataapi.catalog.model import Catalog, Problem, Table, Type, TypeKind
from dataapi.catalog.names import inflect, inflects, lower_first, numbered

_SCALARS = (
    *("Int", "Float", "String", "Boolean", "ID"),
    *("BigInt", "BigFloat", "Datetime", "Date", "Time", "JSON", "UUID", "Opaque", "Cursor"),
)

RESERVED_TYPES = frozenset(
    {
        *("Query", "Mutation", "Subscription", "Node", "PageInfo", "OrderByDirection", "FilterIs"),
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

_PAUSE_EVERY = 50


def assign_base_names(
    catalog: Catalog, pause: Callable[[], None]
) -> tuple[dict[int, str], tuple[Problem, ...]]:
    """Name the types of tables that have a key and of enums, each by its oid.

    Tables are named in search path and name order, those with a directive first, then enums.  A base
    name is taken when one of the types or entry points made from it would clash.

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
        naming.add(type_.oid, place, type_, catalog.annotations.enum(type_.oid).name, ("", "Filter"))
    return naming.names, tuple(naming.problems)


class _BaseNames:
    def __init__(self, catalog: Catalog) -> None:
        self.names: dict[int, str] = {}
        self.problems: list[Problem] = []
        self._catalog = catalog
        self._types = set(RESERVED_TYPES)
        # Entry points begin with a lower-case letter, so names that differ only there clash too.
        self._entry_points: set[str] = set()

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
        chosen = next(name for name in self._candidates(candidates) if self._free(name, suffixes))
        if chosen != wanted:
            self.problems.append(
                Problem(place, f"the GraphQL name {wanted} is taken; its type is named {chosen}")
            )
        self.names[oid] = chosen
        self._types.update(chosen + suffix for suffix in suffixes)
        self._entry_points.add(lower_first(chosen))

    @staticmethod
    def _candidates(names: list[str]) -> Iterator[str]:
        yield from names
        yield from numbered(names[-1])

    def _free(self, name: str, suffixes: tuple[str, ...]) -> bool:
        if lower_first(name) in self._entry_points:
            return False
        return not any(name + suffix in self._types for suffix in suffixes)
