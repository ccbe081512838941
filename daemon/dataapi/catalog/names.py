"""The GraphQL names of types and entry points, all different over a catalog, and inflection; pure.

A function gives way to a table's entry points and to ``node`` and ``heartbeat``.  Where functions of
different names ask for the same field, the last one by schema and name has it.  Overloads share theirs,
where they agree (``graphql.schema.functions``).  What gives way is numbered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from itertools import chain, count

from dataapi.catalog.directives import is_graphql_name
from dataapi.catalog.model import (
    Argument,
    Catalog,
    Function,
    Problem,
    Table,
    TableKind,
    Type,
    TypeKind,
    Volatility,
    place_of,
)
from dataapi.catalog.privileges import executable_by_some
from dataapi.concurrency.pauses import pause

_VECTORS = frozenset({"int2vector", "oidvector"})
"""Arrays by their elements, but not in how they are written."""


@lru_cache(maxsize=10_000)
def pascal_case(name: str) -> str:
    """Inflect ``account_holder`` to ``AccountHolder``; letters that are upper case stay so."""
    raised = (
        letter if before.isalnum() else letter.upper()
        for before, letter in zip("_" + name, name, strict=False)
    )
    return "".join(raised).replace("_", "")


def lower_first(name: str) -> str:
    """Turn the first letter to lower case: ``AccountHolder`` to ``accountHolder``."""
    return name[:1].lower() + name[1:]


def field_name(catalog: Catalog, schema: str, name: str) -> str:
    """Return the name of a field for an SQL name in a schema. May be no valid GraphQL name."""
    return lower_first(pascal_case(name)) if inflects(catalog, schema) else name


def type_name(catalog: Catalog, schema: str, name: str) -> str:
    """Return the name of a type for an SQL name in a schema. May be no valid GraphQL name."""
    return pascal_case(name) if inflects(catalog, schema) else name


def inflects(catalog: Catalog, schema: str) -> bool:
    """Whether the schema's directive asks for inflection."""
    return catalog.directives.schema(schema).inflect_names


def numbered(name: str) -> Iterator[str]:
    """Return the name with ``_2``, ``_3`` and so on."""
    return (f"{name}_{number}" for number in count(2))


def first_free(candidates: Iterable[str], requested: str, taken: Container[str]) -> str:
    """Return the first candidate that is a name and free, else the requested name with a number."""
    for candidate in (*candidates, requested):
        if is_graphql_name(candidate) and candidate not in taken:
            return candidate
    return next(name for name in numbered(requested) if name not in taken)


def is_list(found: Type) -> bool:
    """Whether values of the type are lists in GraphQL."""
    return found.kind is TypeKind.ARRAY and found.name not in _VECTORS


def has_value(catalog: Catalog, oid: int) -> bool:
    """Whether values of the type have a form in GraphQL: none of composites and lists of lists."""
    found = catalog.types.get(oid)
    if found is None:
        return False
    found = catalog.underlying(found)
    if is_list(found):
        element = catalog.types.get(found.element)
        return (
            element is not None
            and not is_list(catalog.underlying(element))
            and has_value(catalog, element.oid)
        )
    return found.kind not in (TypeKind.COMPOSITE, TypeKind.PSEUDO)


_SCALARS = (
    *("Int", "Float", "String", "Boolean", "ID"),
    *("BigInt", "BigFloat", "Datetime", "Date", "Time", "JSON", "UUID", "Opaque", "Cursor"),
)

RESERVED_TYPES = frozenset(
    {
        *("Query", "Mutation", "Subscription", "Node", "PageInfo"),
        *("OrderByDirection", "FilterIs", "IsFilter"),
        *_SCALARS,
        *(f"{scalar}Filter" for scalar in _SCALARS),
        *(f"{scalar}ListFilter" for scalar in _SCALARS),
    }
)
"""Type names that the schema itself uses."""

TABLE_SUFFIXES = (
    *("", "Connection", "Edge", "Filter", "OrderBy"),
    *("InsertInput", "UpdateInput", "InsertResponse", "UpdateResponse", "DeleteResponse"),
    *("Aggregate", "SumAggregateResult", "AvgAggregateResult", "MinAggregateResult", "MaxAggregateResult"),
)
"""What is put after a table's base name to name the types that are made for it."""

ENUM_SUFFIXES = ("", "Filter", "ListFilter")
"""What is put after an enum's name to name the types that are made for it."""


def missing_key(table: Table) -> str:
    """Return why a table without a key has neither a type nor entry points."""
    reason = f"{place_of(table)} has no primary key, which GraphQL needs"
    if table.kind in (TableKind.ORDINARY, TableKind.PARTITIONED):
        return reason
    return f"{reason}; the directive primary_key_columns can declare one"


def assign_base_names(catalog: Catalog) -> tuple[dict[int, str], tuple[Problem, ...]]:
    """Name the types of tables that have a key and of enums, each by its oid.

    Tables are named in search path and name order, those with a directive first, then enums; the first
    one that asks for a name has it.  A base name is taken when one of the types or entry points made from
    it would clash.
    """
    order = {name: position for position, name in enumerate(catalog.search_path)}
    tables: list[tuple[str | None, Table | Type]] = [
        (catalog.directives.table(table.oid).name, table)
        for table in catalog.tables.values()
        if catalog.primary_key(table)
    ]
    enums: list[tuple[str | None, Table | Type]] = [
        (catalog.directives.enum(type_.oid).name, type_)
        for type_ in catalog.types.values()
        if type_.kind is TypeKind.ENUM and type_.schema in order
    ]
    naming = _BaseNames(catalog)
    for things, suffixes in ((tables, TABLE_SUFFIXES), (enums, ENUM_SUFFIXES)):
        things.sort(key=lambda each: (each[0] is None, order[each[1].schema], each[1].name))
        for override, thing in things:
            pause()
            naming.add(thing, override, suffixes)
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

    def add(self, thing: Table | Type, override: str | None, suffixes: tuple[str, ...]) -> None:
        """Give the thing its name, a longer one when that is taken, no name when it is not one of GraphQL."""
        requested = override or type_name(self._catalog, thing.schema, thing.name)
        if not is_graphql_name(requested):
            return
        longer = type_name(self._catalog, thing.schema, f"{thing.schema}_{thing.name}")
        longer = longer if is_graphql_name(longer) else requested
        candidates = chain((requested, longer), numbered(longer))
        chosen = next(name for name in candidates if not self._taken_by(name, suffixes))
        place = place_of(thing)
        if chosen != requested:
            owner = self._taken_by(requested, suffixes)
            message = f"the GraphQL name {requested} is taken by {owner}; its type is named {chosen}"
            self.problems.append(Problem(place, message, clash=True))
        self.names[thing.oid] = chosen
        self._types.update((chosen + suffix, place) for suffix in suffixes)
        self._entry_points[lower_first(chosen)] = place

    def _taken_by(self, name: str, suffixes: tuple[str, ...]) -> str | None:
        """Return what has a name already that would be made of this one."""
        owner = self._entry_points.get(lower_first(name))
        if owner is not None:
            return owner
        return next((self._types[name + suffix] for suffix in suffixes if name + suffix in self._types), None)


COLLECTION, BY_KEY = "Collection", "ByPk"
"""What follows a table's name in its fields of ``Query``."""
INSERT, UPDATE, DELETE = "insertInto", "update", "deleteFrom"
"""What its fields of ``Mutation`` begin with; they end as a collection does."""

KEY_TYPES = frozenset({"int2", "int4", "int8", "text", "varchar", "bpchar", "citext", "uuid"})
"""Types of primary keys that give a ``…ByPk`` entry point (docs/reference/graphql.md, Entry points)."""


def argument_name(catalog: Catalog, function: Function, argument: Argument) -> str:
    """Name an argument of a function by the rules. May be no valid GraphQL name."""
    return field_name(catalog, function.schema, argument.name)


def is_looked_up_by_key(catalog: Catalog, table: Table) -> bool:
    """Whether the types of a table's key allow a ``…ByPk`` entry point."""
    columns = [table.column(name) for name in catalog.primary_key(table)]
    types = [catalog.underlying(catalog.types[column.type]) for column in columns if column is not None]
    return bool(types) and all(type_.name in KEY_TYPES for type_ in types)


def name_entry_points(catalog: Catalog) -> tuple[dict[int, str], tuple[Problem, ...]]:
    """Name the entry points of functions that can be called, by their oids; return clashes, too."""
    tables = _of_tables(catalog)
    requested: dict[bool, dict[str, list[Function]]] = {True: defaultdict(list), False: defaultdict(list)}
    executable = executable_by_some(catalog)
    for function in sorted(catalog.functions, key=lambda each: (each.schema, each.name)):
        override = catalog.directives.function(function.oid).name
        name = override or field_name(catalog, function.schema, function.name)
        if is_graphql_name(name) and executable(function) and _can_be_called(catalog, function):
            requested[function.volatility is Volatility.VOLATILE][name].append(function)
    names: dict[int, str] = {}
    clashes: list[Problem] = []
    for volatile, groups in requested.items():
        taken = {*tables[volatile], *groups}
        for name, functions in groups.items():
            owner = tables[volatile].get(name) or place_of(functions[-1])
            chosen = {owner: name}
            for function in functions:
                place = place_of(function)
                if place not in chosen:
                    chosen[place] = first_free((), name, taken)
                    taken.add(chosen[place])
                    message = f"the GraphQL entry point {name} is {owner}; this one is {chosen[place]}"
                    clashes.append(Problem(place, message, clash=True))
                names[function.oid] = chosen[place]
    return names, tuple(clashes)


def _of_tables(catalog: Catalog) -> dict[bool, dict[str, str]]:
    """Return whose the entry points are that functions give way to, of ``Mutation`` and of ``Query``."""
    mutations: dict[str, str] = {}
    queries = dict.fromkeys(("node", "heartbeat"), "a field of every schema")
    for oid, base in catalog.base_names.items():
        table = catalog.tables.get(oid)
        if table is None:
            continue
        place = place_of(table)
        queries[lower_first(base) + COLLECTION] = place
        if is_looked_up_by_key(catalog, table):
            queries[lower_first(base) + BY_KEY] = place
        mutations.update((f"{word}{base}{COLLECTION}", place) for word in (INSERT, UPDATE, DELETE))
    return {True: mutations, False: queries}


def _can_be_called(catalog: Catalog, function: Function) -> bool:
    """Whether the function can be a field; one of a row alone is a computed field instead."""
    arguments = function.arguments
    if not all(_can_be_given(catalog, function, argument) for argument in arguments):
        return False
    if len(arguments) == 1 and catalog.types[arguments[0].type].relation in catalog.tables:
        return False
    result = catalog.types[function.returns]
    if result.name == "void" or result.relation in catalog.base_names:
        return True
    return not function.columns and has_value(catalog, function.returns)


def _can_be_given(catalog: Catalog, function: Function, argument: Argument) -> bool:
    if argument.variadic or not argument.name:
        return False
    if not is_graphql_name(argument_name(catalog, function, argument)):
        return False
    return has_value(catalog, argument.type) or catalog.types[argument.type].kind is TypeKind.COMPOSITE
