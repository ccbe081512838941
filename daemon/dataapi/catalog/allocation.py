"""Allocating the names of a catalog's GraphQL types and root fields, all different; pure.

The rules are pg_graphql's (docs/reference/graphql.md, Names).  Names are the same for every role, whatever
it may see, except that a function that no role may call gets none.

Types that every schema has come first, then tables, enums, the types that pg_graphql makes for them, and
the types that features add.  So a table keeps its name whatever is made for another one, and no feature
renames a type that the schema has without it.  A type whose usual name is taken gets another one, and the
clash is reported.

Root fields: a function gives way to a table's and to ``node`` and ``heartbeat``.  If functions of different
names ask for the same field, the last one by schema and name has it.  Overloads share theirs if they agree
(``graphql.schema.functions``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from dataapi.catalog.directives import is_graphql_name
from dataapi.catalog.model import (
    Argument,
    Catalog,
    Function,
    Problem,
    Table,
    Type,
    TypeKind,
    Volatility,
    executable_by_some,
    place_of,
)
from dataapi.catalog.names import (
    argument_name,
    field_name,
    first_free,
    has_value,
    is_looked_up_by_key,
    lower_first,
    numbered,
    root_field,
    type_name,
)
from dataapi.catalog.registry import (
    FEATURE_OF_SHARED_TYPE,
    EnumType,
    NameRegistry,
    TableFieldKind,
    TableType,
    TypeOwner,
)

_COMPARED = (
    *("Int", "Float", "String", "Boolean"),
    *("BigInt", "BigFloat", "Datetime", "Date", "Time", "UUID", "Opaque"),
)

RESERVED_TYPES = frozenset(
    {
        *("Query", "Mutation", "Node", "PageInfo", "OrderByDirection", "FilterIs", "IsFilter"),
        *("ID", "JSON", "Cursor", "IDFilter"),
        *_COMPARED,
        *(f"{scalar}Filter" for scalar in _COMPARED),
        *(f"{scalar}ListFilter" for scalar in _COMPARED),
    }
)
"""The names of the types that every schema has."""

_PLAIN = (
    *(TableType.CONNECTION, TableType.EDGE, TableType.FILTER, TableType.ORDER_BY),
    *(TableType.INSERT_INPUT, TableType.UPDATE_INPUT),
    *(TableType.INSERT_RESPONSE, TableType.UPDATE_RESPONSE, TableType.DELETE_RESPONSE),
)
_AGGREGATE = (
    TableType.AGGREGATE,
    *(TableType.SUM_AGGREGATE_RESULT, TableType.AVG_AGGREGATE_RESULT),
    *(TableType.MIN_AGGREGATE_RESULT, TableType.MAX_AGGREGATE_RESULT),
)
_OF_EVERY_TABLE: dict[str, tuple[TableType, ...]] = {
    "relationFilters": (TableType.COLLECTION_FILTER, TableType.ROW_FILTER),
    "relationOrder": (TableType.COLLECTION_ORDER_BY, TableType.MIN_MAX_ORDER_BY),
}
"""The types that a feature adds to every table if one table has the feature."""
_OF_ONE_TABLE: dict[str, tuple[TableType, ...]] = {
    "upsert": (
        *(TableType.ON_CONFLICT_INPUT, TableType.CONFLICT_CONSTRAINT),
        *(TableType.INSERT_COLUMN, TableType.UPDATE_COLUMN),
    ),
    "groupBy": (
        *(TableType.GROUP_COLUMN, TableType.GROUP, TableType.GROUP_KEYS),
        TableType.COUNT_DISTINCT_AGGREGATE_RESULT,
        *(TableType.HAVING, TableType.SUM_HAVING, TableType.AVG_HAVING),
        *(TableType.MIN_HAVING, TableType.MAX_HAVING, TableType.COUNT_DISTINCT_HAVING),
    ),
}
"""The types that a feature adds to the tables that have it."""
_OF_AN_ENUM = (EnumType.FILTER, EnumType.LIST_FILTER)


def allocate_names(catalog: Catalog) -> tuple[NameRegistry, tuple[Problem, ...]]:
    """Return the names of a catalog's types and root fields, and the clashes among them."""
    allocation = _TypeAllocation(catalog)
    allocation.run()
    queries, mutations = _fields_of_tables(catalog, allocation.base_names)
    registry = NameRegistry(
        base_names=allocation.base_names,
        types=allocation.types,
        renamed=allocation.renamed,
        shared=allocation.shared,
        queries=queries,
        mutations=mutations,
    )
    functions, clashes = name_functions(catalog, registry)
    return replace(registry, functions=functions), (*allocation.problems, *clashes)


class _TypeAllocation:
    """Gives each type of a schema a name, in the order of the module's docstring."""

    def __init__(self, catalog: Catalog) -> None:
        self.base_names: dict[int, str] = {}
        self.types: dict[str, TypeOwner] = {}
        self.renamed: dict[TypeOwner, str] = {}
        self.shared: dict[str, str] = {}
        self.problems: list[Problem] = []
        self._catalog = catalog
        # Root fields begin with a lower-case letter, so names that differ only there clash too.
        self._fields: dict[str, str] = {}
        directives = catalog.directives.tables.values()
        self._features = catalog.features.union(*(each.features for each in directives))

    def run(self) -> None:
        tables, enums = self._named_tables(), self._named_enums()
        for override, table in tables:
            self._name(table, override, TableType.OBJECT)
        for override, enum in enums:
            self._name(enum, override, EnumType.ENUM)
        with_type = [table.oid for _, table in tables if table.oid in self.base_names]
        self._generate(with_type, _PLAIN)
        self._generate((enum.oid for _, enum in enums if enum.oid in self.base_names), _OF_AN_ENUM)
        self._generate((oid for oid in with_type if self._has_aggregates(oid)), _AGGREGATE)
        for feature, kinds in _OF_EVERY_TABLE.items():
            if feature in self._features:
                self._generate(with_type, kinds)
        for feature, of_one in _OF_ONE_TABLE.items():
            if feature in self._features:
                self._generate((oid for oid in with_type if feature in self._features_of(oid)), of_one)
        for usual, feature in FEATURE_OF_SHARED_TYPE.items():
            if feature in self._features:
                self._share(usual)

    def _named_tables(self) -> list[tuple[str | None, Table]]:
        """Return the tables with a key and their directives' names, those with a directive first."""
        catalog, order = self._catalog, self._order()
        tables = [
            (catalog.directives.table(table.oid).name, table)
            for table in catalog.tables.values()
            if catalog.primary_key(table)
        ]
        return sorted(tables, key=lambda each: (each[0] is None, order[each[1].schema], each[1].name))

    def _named_enums(self) -> list[tuple[str | None, Type]]:
        """Return the exposed enums and their directives' names, those with a directive first."""
        catalog, order = self._catalog, self._order()
        enums = [
            (catalog.directives.enum(type_.oid).name, type_)
            for type_ in catalog.types.values()
            if type_.kind is TypeKind.ENUM and type_.schema in order
        ]
        return sorted(enums, key=lambda each: (each[0] is None, order[each[1].schema], each[1].name))

    def _order(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self._catalog.search_path)}

    def _name(self, thing: Table | Type, override: str | None, kind: TableType | EnumType) -> None:
        """Name a table or an enum: a longer name if its own is taken, none if its own is invalid."""
        requested = override or type_name(self._catalog, thing.schema, thing.name)
        if not is_graphql_name(requested):
            return
        longer = type_name(self._catalog, thing.schema, f"{thing.schema}_{thing.name}")
        longer = longer if is_graphql_name(longer) else requested
        candidates = chain((requested, longer), numbered(longer))
        chosen = next(name for name in candidates if self._owner(name) is None)
        place = place_of(thing)
        if chosen != requested:
            owner = self._owner(requested)
            message = f"the GraphQL name {requested} is taken by {owner}; its type is named {chosen}"
            self.problems.append(Problem(place, message, clash=True))
        self.base_names[thing.oid] = chosen
        self.types[chosen] = thing.oid, kind
        self._fields[lower_first(chosen)] = place

    def _owner(self, base: str) -> str | None:
        """Return the owner of a base name or of the root fields that are made from it."""
        return self._fields.get(lower_first(base)) or self._type_owner(base)

    def _type_owner(self, name: str) -> str | None:
        if name in RESERVED_TYPES:
            return "a type of every schema"
        owner = self.types.get(name)
        if owner is None:
            return None
        oid, kind = owner
        place = place_of(self._catalog.tables.get(oid) or self._catalog.types[oid])
        return f"the {kind} type of {place}" if kind else place

    def _generate(self, owners: Iterable[int], kinds: tuple[TableType | EnumType, ...]) -> None:
        """Name types that are made for tables or enums, with a number if the usual name is taken."""
        types = self.types
        for oid in owners:
            base = self.base_names[oid]
            for kind in kinds:
                name = base + kind
                if name in types or name in RESERVED_TYPES:
                    name = self._other_name(name, oid, kind)
                types[name] = oid, kind

    def _other_name(self, requested: str, oid: int, kind: TableType | EnumType) -> str:
        chosen = self._numbered(requested)
        self.renamed[oid, kind] = chosen
        message = (
            f"the GraphQL name {requested} is taken by {self._type_owner(requested)}; "
            f"its {kind} type is named {chosen}"
        )
        place = place_of(self._catalog.tables.get(oid) or self._catalog.types[oid])
        self.problems.append(Problem(place, message, clash=True))
        return chosen

    def _numbered(self, requested: str) -> str:
        return next(
            name for name in numbered(requested) if name not in self.types and name not in RESERVED_TYPES
        )

    def _share(self, usual: str) -> None:
        """Name a type that a feature adds to the schema as a whole."""
        chosen = self._numbered(usual) if usual in self.types else usual
        if chosen != usual:
            message = f"the GraphQL name {usual} is taken by {self._type_owner(usual)}; this one is {chosen}"
            feature = FEATURE_OF_SHARED_TYPE[usual]
            self.problems.append(Problem(f"feature {feature}", message, clash=True))
        self.shared[usual] = chosen

    def _features_of(self, table: int) -> frozenset[str]:
        return self._catalog.features | self._catalog.directives.table(table).features

    def _has_aggregates(self, table: int) -> bool:
        return self._catalog.directives.table(table).aggregate or "groupBy" in self._features_of(table)


_Fields = dict[str, tuple[TableFieldKind, int]]
_QUERIES = (TableFieldKind.COLLECTION, TableFieldKind.BY_KEY)
_MUTATIONS = (TableFieldKind.INSERT, TableFieldKind.UPDATE, TableFieldKind.DELETE)


def _fields_of_tables(catalog: Catalog, base_names: dict[int, str]) -> tuple[_Fields, _Fields]:
    """Return the root fields of tables, of ``Query`` and of ``Mutation``."""
    queries: _Fields = {}
    mutations: _Fields = {}
    for oid, base in base_names.items():
        table = catalog.tables.get(oid)
        if table is None:
            continue
        for kind in _QUERIES:
            if kind is TableFieldKind.COLLECTION or is_looked_up_by_key(catalog, table):
                queries[root_field(kind, base)] = kind, oid
        mutations.update((root_field(kind, base), (kind, oid)) for kind in _MUTATIONS)
    return queries, mutations


def name_functions(catalog: Catalog, registry: NameRegistry) -> tuple[dict[int, str], tuple[Problem, ...]]:
    """Return the names of the root fields of functions by oid, and the clashes among them."""
    requested: dict[bool, dict[str, list[Function]]] = {True: defaultdict(list), False: defaultdict(list)}
    for function, name in _callable_functions(catalog, registry):
        requested[function.volatility is Volatility.VOLATILE][name].append(function)
    names: dict[int, str] = {}
    clashes: list[Problem] = []
    for volatile, groups in requested.items():
        owners = _owners_of_fields(catalog, registry, volatile=volatile)
        taken = {*owners, *groups}
        for name, functions in groups.items():
            owner = owners.get(name) or place_of(functions[-1])
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


def _callable_functions(catalog: Catalog, registry: NameRegistry) -> Iterator[tuple[Function, str]]:
    """Yield the functions that can be root fields for some role, with the names that they ask for."""
    executable = executable_by_some(catalog)
    for function in sorted(catalog.functions, key=lambda each: (each.schema, each.name)):
        override = catalog.directives.function(function.oid).name
        name = override or field_name(catalog, function.schema, function.name)
        if is_graphql_name(name) and executable(function) and _can_be_called(catalog, registry, function):
            yield function, name


def _owners_of_fields(catalog: Catalog, registry: NameRegistry, *, volatile: bool) -> dict[str, str]:
    """Return the owners of the root fields that take precedence over functions."""
    fields = registry.mutations if volatile else registry.queries
    owners = {name: place_of(catalog.tables[oid]) for name, (_, oid) in fields.items()}
    return owners if volatile else {**owners, **dict.fromkeys(COMMON_QUERIES, "a field of every schema")}


COMMON_QUERIES = ("node", "heartbeat")
"""The fields of ``Query`` that every schema has."""


def _can_be_called(catalog: Catalog, registry: NameRegistry, function: Function) -> bool:
    """Whether the function can be a field; one whose only argument is a row is a computed field instead."""
    arguments = function.arguments
    if not all(_can_be_given(catalog, function, argument) for argument in arguments):
        return False
    if len(arguments) == 1 and catalog.types[arguments[0].type].relation in catalog.tables:
        return False
    result = catalog.types[function.returns]
    if result.name == "void" or result.relation in registry.base_names:
        return True
    return not function.columns and has_value(catalog, function.returns)


def _can_be_given(catalog: Catalog, function: Function, argument: Argument) -> bool:
    if argument.variadic or not argument.name:
        return False
    if not is_graphql_name(argument_name(catalog, function, argument)):
        return False
    return has_value(catalog, argument.type) or catalog.types[argument.type].kind is TypeKind.COMPOSITE
