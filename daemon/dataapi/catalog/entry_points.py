"""The names of functions as entry points: fields of ``Query``, or of ``Mutation`` for volatile ones; pure.

A function gives way to a table's entry points and to ``node`` and ``heartbeat``, as in the reference.
Where functions of different names ask for the same field, the last one by schema and name has it.
Overloads share theirs, where they agree (``graphql.functions``).  What gives way is numbered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from dataapi.catalog.directives import is_graphql_name
from dataapi.catalog.inflection import first_free, has_value, inflects, lower_first, pascal_case
from dataapi.catalog.model import Argument, Catalog, Function, Problem, Table, TypeKind, Volatility
from dataapi.catalog.privileges import executable_by_some

COLLECTION, BY_KEY = "Collection", "ByPk"
"""What follows a table's name in its fields of ``Query``."""
INSERT, UPDATE, DELETE = "insertInto", "update", "deleteFrom"
"""What its fields of ``Mutation`` begin with; they end as a collection does."""

KEY_TYPES = frozenset({"int2", "int4", "int8", "text", "varchar", "bpchar", "citext", "uuid"})
"""Types of primary keys that give a ``…ByPk`` entry point (reference/graphql.md 1.4)."""


def argument_name(catalog: Catalog, function: Function, argument: Argument) -> str:
    """Name an argument of a function by the rules. May be no valid GraphQL name."""
    return _inflected(catalog, function, argument.name)


def is_looked_up_by_key(catalog: Catalog, table: Table) -> bool:
    """Whether the types of a table's key allow a ``…ByPk`` entry point."""
    columns = [table.column(name) for name in catalog.primary_key(table)]
    types = [catalog.underlying(catalog.types[column.type]) for column in columns if column is not None]
    return bool(types) and all(type_.name in KEY_TYPES for type_ in types)


@dataclass(frozen=True, slots=True)
class EntryPoints:
    """The entry points of functions.

    :ivar names: by the functions' oids; those that cannot be called are absent.
    :ivar clashes: what gave way to what.
    """

    names: Mapping[int, str]
    clashes: tuple[Problem, ...]


def name_entry_points(catalog: Catalog) -> EntryPoints:
    """Name the entry points of all functions of a catalog."""
    tables = _of_tables(catalog)
    wanted: dict[bool, dict[str, list[Function]]] = {True: defaultdict(list), False: defaultdict(list)}
    executable = executable_by_some(catalog)
    for function in sorted(catalog.functions, key=lambda each: (each.schema, each.name)):
        name = _wanted(catalog, function)
        if is_graphql_name(name) and executable(function) and _can_be_called(catalog, function):
            wanted[function.volatility is Volatility.VOLATILE][name].append(function)
    names: dict[int, str] = {}
    clashes: list[Problem] = []
    for volatile, groups in wanted.items():
        taken = {*tables[volatile], *groups}
        for name, functions in groups.items():
            owner = tables[volatile].get(name) or _place(functions[-1])
            chosen = {owner: name}
            for function in functions:
                place = _place(function)
                if place not in chosen:
                    chosen[place] = first_free((), name, taken)
                    taken.add(chosen[place])
                    message = f"the GraphQL entry point {name} is {owner}; this one is {chosen[place]}"
                    clashes.append(Problem(place, message, clash=True))
                names[function.oid] = chosen[place]
    return EntryPoints(names, tuple(clashes))


def _of_tables(catalog: Catalog) -> dict[bool, dict[str, str]]:
    """Return whose the entry points are that functions give way to, of ``Mutation`` and of ``Query``."""
    mutations: dict[str, str] = {}
    queries = dict.fromkeys(("node", "heartbeat"), "a field of every schema")
    for oid, base in catalog.base_names.items():
        table = catalog.tables.get(oid)
        if table is None:
            continue
        place = f"table {table.schema}.{table.name}"
        queries[lower_first(base) + COLLECTION] = place
        if is_looked_up_by_key(catalog, table):
            queries[lower_first(base) + BY_KEY] = place
        mutations.update((f"{word}{base}{COLLECTION}", place) for word in (INSERT, UPDATE, DELETE))
    return {True: mutations, False: queries}


def _place(function: Function) -> str:
    return f"function {function.schema}.{function.name}"


def _wanted(catalog: Catalog, function: Function) -> str:
    override = catalog.annotations.function(function.oid).name
    return override or _inflected(catalog, function, function.name)


def _inflected(catalog: Catalog, function: Function, name: str) -> str:
    return lower_first(pascal_case(name)) if inflects(catalog, function.schema) else name


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
