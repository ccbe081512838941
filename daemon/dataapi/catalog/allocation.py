"""Allocates unique names for a catalog's GraphQL types and root fields.

See docs/reference/graphql.md, Name clashes between types. Names of tables are allocated before those of
generated types. Types of optional features come last, so that enabling a feature renames no other type.
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
    describe_object,
    executable_by_any_role,
)
from dataapi.catalog.names import (
    argument_name,
    field_name,
    first_free,
    has_by_pk_field,
    has_value,
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

_FILTERABLE_SCALARS = (
    *("Int", "Float", "String", "Boolean"),
    *("BigInt", "BigFloat", "Datetime", "Date", "Time", "UUID", "Opaque"),
)

RESERVED_TYPES = frozenset(
    {
        *("Query", "Mutation", "Node", "PageInfo", "OrderByDirection", "FilterIs", "IsFilter"),
        *("ID", "JSON", "Cursor", "IDFilter"),
        *_FILTERABLE_SCALARS,
        *(f"{scalar}Filter" for scalar in _FILTERABLE_SCALARS),
        *(f"{scalar}ListFilter" for scalar in _FILTERABLE_SCALARS),
    }
)

_BASIC_TYPES = (
    *(TableType.CONNECTION, TableType.EDGE, TableType.FILTER, TableType.ORDER_BY),
    *(TableType.INSERT_INPUT, TableType.UPDATE_INPUT),
    *(TableType.INSERT_RESPONSE, TableType.UPDATE_RESPONSE, TableType.DELETE_RESPONSE),
)
_AGGREGATE_TYPES = (
    TableType.AGGREGATE,
    *(TableType.SUM_AGGREGATE_RESULT, TableType.AVG_AGGREGATE_RESULT),
    *(TableType.MIN_AGGREGATE_RESULT, TableType.MAX_AGGREGATE_RESULT),
)
_TYPES_OF_ALL_TABLES: dict[str, tuple[TableType, ...]] = {
    "relationFilters": (TableType.COLLECTION_FILTER, TableType.ROW_FILTER),
    "relationOrder": (TableType.COLLECTION_ORDER_BY, TableType.MIN_MAX_ORDER_BY),
}
"""Types that a feature adds to all tables if it is enabled for any table."""
_TYPES_BY_TABLE: dict[str, tuple[TableType, ...]] = {
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
"""Types that a feature adds only to the tables for which it is enabled."""
_ENUM_TYPES = (EnumType.FILTER, EnumType.LIST_FILTER)


def allocate_names(catalog: Catalog) -> tuple[NameRegistry, tuple[Problem, ...]]:
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
    def __init__(self, catalog: Catalog) -> None:
        self.base_names: dict[int, str] = {}
        self.types: dict[str, TypeOwner] = {}
        self.renamed: dict[TypeOwner, str] = {}
        self.shared: dict[str, str] = {}
        self.problems: list[Problem] = []
        self._catalog = catalog
        # Root fields start with a lower-case letter, so type names that differ only in that letter clash.
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
        self._generate(with_type, _BASIC_TYPES)
        self._generate((enum.oid for _, enum in enums if enum.oid in self.base_names), _ENUM_TYPES)
        self._generate((oid for oid in with_type if self._has_aggregates(oid)), _AGGREGATE_TYPES)
        for feature, kinds in _TYPES_OF_ALL_TABLES.items():
            if feature in self._features:
                self._generate(with_type, kinds)
        for feature, kinds in _TYPES_BY_TABLE.items():
            if feature in self._features:
                self._generate((oid for oid in with_type if feature in self._features_of(oid)), kinds)
        for usual, feature in FEATURE_OF_SHARED_TYPE.items():
            if feature in self._features:
                self._share(usual)

    def _named_tables(self) -> list[tuple[str | None, Table]]:
        catalog, order = self._catalog, self._order()
        tables = [
            (catalog.directives.table(table.oid).name, table)
            for table in catalog.tables.values()
            if catalog.primary_key(table)
        ]
        return sorted(tables, key=lambda each: (each[0] is None, order[each[1].schema], each[1].name))

    def _named_enums(self) -> list[tuple[str | None, Type]]:
        catalog, order = self._catalog, self._order()
        enums = [
            (catalog.directives.enum(type_.oid).name, type_)
            for type_ in catalog.types.values()
            if type_.kind is TypeKind.ENUM and type_.schema in order
        ]
        return sorted(enums, key=lambda each: (each[0] is None, order[each[1].schema], each[1].name))

    def _order(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self._catalog.search_path)}

    def _name(self, item: Table | Type, override: str | None, kind: TableType | EnumType) -> None:
        """Allocate a name for a table or an enum: a longer name on a clash, no name if it is invalid."""
        requested = override or type_name(self._catalog, item.schema, item.name)
        if not is_graphql_name(requested):
            return
        longer = type_name(self._catalog, item.schema, f"{item.schema}_{item.name}")
        longer = longer if is_graphql_name(longer) else requested
        candidates = chain((requested, longer), numbered(longer))
        chosen = next(name for name in candidates if self._owner(name) is None)
        description = describe_object(item)
        if chosen != requested:
            owner = self._owner(requested)
            message = f"the GraphQL name {requested} is taken by {owner}; its type is named {chosen}"
            self.problems.append(Problem(description, message, clash=True))
        self.base_names[item.oid] = chosen
        self.types[chosen] = item.oid, kind
        self._fields[lower_first(chosen)] = description

    def _owner(self, base: str) -> str | None:
        return self._fields.get(lower_first(base)) or self._type_owner(base)

    def _type_owner(self, name: str) -> str | None:
        if name in RESERVED_TYPES:
            return "a built-in type"
        owner = self.types.get(name)
        if owner is None:
            return None
        oid, kind = owner
        description = describe_object(self._catalog.tables.get(oid) or self._catalog.types[oid])
        return f"the {kind} type of {description}" if kind else description

    def _generate(self, owners: Iterable[int], kinds: tuple[TableType | EnumType, ...]) -> None:
        types = self.types
        for oid in owners:
            base = self.base_names[oid]
            for kind in kinds:
                name = base + kind
                if name in types or name in RESERVED_TYPES:
                    name = self._rename(name, oid, kind)
                types[name] = oid, kind

    def _rename(self, requested: str, oid: int, kind: TableType | EnumType) -> str:
        chosen = self._numbered(requested)
        self.renamed[oid, kind] = chosen
        message = (
            f"the GraphQL name {requested} is taken by {self._type_owner(requested)}; "
            f"its {kind} type is named {chosen}"
        )
        description = describe_object(self._catalog.tables.get(oid) or self._catalog.types[oid])
        self.problems.append(Problem(description, message, clash=True))
        return chosen

    def _numbered(self, requested: str) -> str:
        return next(
            name for name in numbered(requested) if name not in self.types and name not in RESERVED_TYPES
        )

    def _share(self, usual: str) -> None:
        chosen = self._numbered(usual) if usual in self.types else usual
        if chosen != usual:
            message = (
                f"the GraphQL name {usual} is taken by {self._type_owner(usual)}; this one is named {chosen}"
            )
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
    queries: _Fields = {}
    mutations: _Fields = {}
    for oid, base in base_names.items():
        table = catalog.tables.get(oid)
        if table is None:
            continue
        for kind in _QUERIES:
            if kind is TableFieldKind.COLLECTION or has_by_pk_field(catalog, table):
                queries[root_field(kind, base)] = kind, oid
        mutations.update((root_field(kind, base), (kind, oid)) for kind in _MUTATIONS)
    return queries, mutations


def name_functions(catalog: Catalog, registry: NameRegistry) -> tuple[dict[int, str], tuple[Problem, ...]]:
    """Return the root fields of functions by function OID, and the name clashes."""
    requested: dict[bool, dict[str, list[Function]]] = {True: defaultdict(list), False: defaultdict(list)}
    for function, name in _callable_functions(catalog, registry):
        requested[function.volatility is Volatility.VOLATILE][name].append(function)
    names: dict[int, str] = {}
    clashes: list[Problem] = []
    for volatile, groups in requested.items():
        owners = _owners_of_fields(catalog, registry, volatile=volatile)
        used_names = {*owners, *groups}
        for name, functions in groups.items():
            owner = owners.get(name) or describe_object(functions[-1])
            chosen = {owner: name}
            for function in functions:
                description = describe_object(function)
                if description not in chosen:
                    chosen[description] = first_free((), name, used_names)
                    used_names.add(chosen[description])
                    message = (
                        f"the GraphQL entry point {name} belongs to {owner}; "
                        f"this one is named {chosen[description]}"
                    )
                    clashes.append(Problem(description, message, clash=True))
                names[function.oid] = chosen[description]
    return names, tuple(clashes)


def _callable_functions(catalog: Catalog, registry: NameRegistry) -> Iterator[tuple[Function, str]]:
    executable = executable_by_any_role(catalog)
    for function in sorted(catalog.functions, key=lambda each: (each.schema, each.name)):
        override = catalog.directives.function(function.oid).name
        name = override or field_name(catalog, function.schema, function.name)
        if is_graphql_name(name) and executable(function) and _can_be_called(catalog, registry, function):
            yield function, name


def _owners_of_fields(catalog: Catalog, registry: NameRegistry, *, volatile: bool) -> dict[str, str]:
    fields = registry.mutations if volatile else registry.queries
    owners = {name: describe_object(catalog.tables[oid]) for name, (_, oid) in fields.items()}
    return owners if volatile else {**owners, **dict.fromkeys(BUILT_IN_QUERIES, "a built-in field")}


BUILT_IN_QUERIES = ("node", "heartbeat")


def _can_be_called(catalog: Catalog, registry: NameRegistry, function: Function) -> bool:
    """Whether a function can be a root field. Functions whose only argument is a row are computed fields."""
    arguments = function.arguments
    if not all(_is_expressible(catalog, function, argument) for argument in arguments):
        return False
    if len(arguments) == 1 and catalog.types[arguments[0].type].relation in catalog.tables:
        return False
    result = catalog.types[function.returns]
    if result.name == "void" or result.relation in registry.base_names:
        return True
    return not function.columns and has_value(catalog, function.returns)


def _is_expressible(catalog: Catalog, function: Function, argument: Argument) -> bool:
    if argument.variadic or not argument.name:
        return False
    if not is_graphql_name(argument_name(catalog, function, argument)):
        return False
    return has_value(catalog, argument.type) or catalog.types[argument.type].kind is TypeKind.COMPOSITE
