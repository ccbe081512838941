"""The rules of GraphQL names, and the names of the fields of a table's types, all different; pure.

The rules are pg_graphql's (docs/reference/graphql.md, Names).  Names are the same for every role, whatever
it may see; but a function that no role may call asks for none.  Types and root fields get their names in
``allocation``.

Where the rules give one name to several fields of a type, the last one has it: columns come first, in
the table's own order, then the table's foreign keys and those that point at it, by schema and name, then
functions, by schema and name.  These orders outlive a dump and restore.  But a function never has the name
that a column asks for: anyone who may create one in an exposed schema could replace the column's values.
Input types and aggregates hold only columns, so there a column gives way only to another column.

What gives way gets a longer name or a number, so that nothing is lost, and the clash is reported.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count

from dataapi.catalog.directives import is_enum_value, is_graphql_name
from dataapi.catalog.model import (
    Argument,
    Catalog,
    Column,
    Function,
    Problem,
    Table,
    TableKind,
    Type,
    TypeKind,
    executable_by_some,
    place_of,
)
from dataapi.catalog.registry import TableFieldKind
from dataapi.catalog.relationships import KeyRelationship, Relationships

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


def missing_key(table: Table) -> str:
    """Return why a table without a key has neither a type nor entry points."""
    reason = f"{place_of(table)} has no primary key, which GraphQL needs"
    if table.kind in (TableKind.ORDINARY, TableKind.PARTITIONED):
        return reason
    return f"{reason}; the directive primary_key_columns can declare one"


def root_field(kind: TableFieldKind, base: str) -> str:
    """Return the name of a root field of a table with that type name."""
    prefix, suffix = kind.value
    return f"{prefix}{base if prefix else lower_first(base)}{suffix}"


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


NODE_ID = "nodeId"


def enum_values(catalog: Catalog, enum: Type) -> Mapping[str, str] | None:
    """Map the labels of an enum to GraphQL values; None when some label has no valid one."""
    mappings = catalog.directives.enum(enum.oid).mappings
    values = {label: mappings.get(label, label) for label in enum.labels}
    if not values or not all(map(is_enum_value, values.values())) or len(set(values.values())) < len(values):
        return None
    return values


def function_field(catalog: Catalog, function: Function) -> str:
    """Name the field of a function; one leading ``_`` is dropped. May be no valid GraphQL name."""
    override = catalog.directives.function(function.oid).name
    return override or lower_first(type_name(catalog, function.schema, function.name.removeprefix("_")))


def relationship_field(catalog: Catalog, relationship: KeyRelationship) -> str:
    """Name the field of a relationship only by the rules: two may get the same name.

    After a column that GraphQL cannot name, it is named as after several columns.
    """
    key = relationship.foreign_key
    directives = catalog.directives.foreign_key(key.table, key.name)
    override = directives.foreign_name if relationship.outgoing else directives.local_name
    if override:
        return override
    target = relationship.target
    table_name = lower_first(_base_name(catalog, target))
    if not relationship.to_one:
        return f"{table_name}Collection"
    # pg_graphql strips the referenced column's name for the reverse side of a one-to-one.
    columns = key.columns if relationship.outgoing else key.foreign_columns
    suffix = "_id" if inflects(catalog, target.schema) else "Id"
    if len(columns) == 1 and columns[0].endswith(suffix):
        stripped = lower_first(type_name(catalog, target.schema, columns[0].removesuffix(suffix)))
        if is_graphql_name(stripped):
            return stripped
    return table_name


def _base_name(catalog: Catalog, table: Table) -> str:
    return catalog.base_names.get(table.oid) or type_name(catalog, table.schema, table.name)


def _longer_relationship_field(catalog: Catalog, relationship: KeyRelationship) -> str:
    """Name a relationship by its columns too: ``accountByEditorId``, ``blogCollectionByEditorId``."""
    key, collection = relationship.foreign_key, "" if relationship.to_one else "Collection"
    columns = [type_name(catalog, catalog.tables[key.table].schema, name) for name in key.columns]
    return lower_first(_base_name(catalog, relationship.target)) + collection + "By" + "And".join(columns)


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The names of the fields of one table's types; what has no valid name is absent.

    Those of the object type, ``columns``, ``relationships`` and ``computed``, are all different.

    :ivar columns: field of the object type by column name, in column order.
    :ivar inputs: name in input types and aggregates by column name, in column order.
    :ivar relationships: in order: keys of the table itself first, then keys that point at it.
    :ivar computed: functions whose only argument is the table's row type.
    :ivar other_inputs: name in input types of relationships and functions, by their field, where it is
        not the same.
    """

    columns: Mapping[str, str]
    inputs: Mapping[str, str]
    relationships: tuple[tuple[KeyRelationship, str], ...]
    computed: tuple[tuple[Function, str], ...]
    other_inputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _RequestedNames:
    """What asks for fields of a table's object type, each with the name that the rules give it."""

    columns: list[tuple[Column, str]]
    relationships: list[tuple[KeyRelationship, str]]
    functions: list[tuple[Function, str]]

    @property
    def everything(self) -> list[tuple[Column | KeyRelationship | Function, str]]:
        """Return all in the order in which a later one takes a name from an earlier one."""
        return [*self.columns, *self.relationships, *self.functions]


def _owners(requested: Sequence[tuple[Column | KeyRelationship | Function, str]]) -> dict[str, int]:
    """Return by name which of those that ask for it has it: the last one, but no function before a column."""
    columns = {name for thing, name in requested if isinstance(thing, Column)}
    return {
        name: number
        for number, (thing, name) in enumerate(requested)
        if name != NODE_ID and not (isinstance(thing, Function) and name in columns)
    }


class CatalogNames:
    """The field names of a catalog's tables, worked out when first asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._relationships = Relationships(catalog)
        self._fields: dict[int, FieldNames] = {}
        self._values: dict[int, bool] = {}
        self._executable = executable_by_some(catalog)

    @cached_property
    def keyless_by_field(self) -> Mapping[str, Table]:
        """The tables without a key by the names that their root fields would have."""
        catalog = self._catalog
        return {
            root_field(kind, catalog.directives.table(table.oid).name or _base_name(catalog, table)): table
            for table in catalog.tables.values()
            if not catalog.primary_key(table)
            for kind in TableFieldKind
        }

    @cached_property
    def tables_by_name(self) -> Mapping[tuple[str, str], int]:
        """The oids of tables by their schema's and their own SQL name."""
        return {(table.schema, table.name): oid for oid, table in self._catalog.tables.items()}

    def fields(self, table: int) -> FieldNames:
        found = self._fields.get(table)
        if found is None:
            found = self._fields[table] = self._name_fields(self._catalog.tables[table])
        return found

    def clashes(self, table: int) -> Iterator[Problem]:
        """Yield a problem for each field of a table's object type that has another name than it asks for."""
        requested = self._requested(self._catalog.tables[table])
        everything = requested.everything
        if len({NODE_ID, *(name for _, name in everything)}) > len(everything):
            return
        owners = {
            name: self._place(table, everything[number][0]) for name, number in _owners(everything).items()
        }
        owners[NODE_ID] = "the row's node id"
        type_name = _base_name(self._catalog, self._catalog.tables[table])
        inputs = self._named(requested.columns)
        for number, ((thing, name), chosen) in enumerate(
            zip(everything, self._named(everything), strict=True)
        ):
            if name == chosen:
                continue
            message = f"the GraphQL field {name} of {type_name} is {owners[name]}; this one is {chosen}"
            if number < len(inputs) and inputs[number] != chosen:
                message += f", and still {inputs[number]} in filters, orders, inputs and aggregates"
            yield Problem(self._place(table, thing), message, clash=True)

    def _requested(self, table: Table) -> _RequestedNames:
        catalog = self._catalog
        columns = []
        for column in table.columns:
            override = catalog.directives.column(table.oid, column.name).name
            name = override or field_name(catalog, table.schema, column.name)
            if is_graphql_name(name) and self._has_value(column.type):
                columns.append((column, name))
        related = [
            each for each in self._relationships.by_key(table) if each.target.oid in catalog.base_names
        ]
        return _RequestedNames(
            columns,
            [(each, relationship_field(catalog, each)) for each in sorted(related, key=self._rank)],
            [(each, function_field(catalog, each)) for each in self._computed(table)],
        )

    def _has_value(self, type_: int) -> bool:
        known = self._values.get(type_)
        if known is None:
            known = self._values[type_] = has_value(self._catalog, type_)
        return known

    def _name_fields(self, table: Table) -> FieldNames:
        requested = self._requested(table)
        names = self._named(requested.everything)
        inputs = self._named(requested.columns)
        unused = iter(names)
        columns = zip(requested.columns, unused, strict=False)
        relationships = zip(requested.relationships, unused, strict=False)
        functions = zip(requested.functions, unused, strict=False)
        fields = {column.name: name for (column, _), name in columns}
        by_relationship = {each: name for (each, _), name in relationships}
        return FieldNames(
            columns=fields,
            inputs=dict(zip(fields, inputs, strict=True)),
            relationships=tuple(
                (each, by_relationship[each])
                for each in self._relationships.by_key(table)
                if each in by_relationship
            ),
            computed=tuple((each, name) for (each, _), name in functions),
            other_inputs=self._beside(inputs, requested, names),
        )

    def _named(self, requested: Sequence[tuple[Column | KeyRelationship | Function, str]]) -> list[str]:
        """Return a name for each, all different: its owner has the one that it asks for."""
        owners = _owners(requested)
        taken = {NODE_ID, *owners}
        names = []
        for number, (thing, name) in enumerate(requested):
            chosen = name
            if owners.get(name) != number:
                chosen = first_free(self._others(thing), name, taken)
                taken.add(chosen)
            names.append(chosen)
        return names

    def _beside(
        self, inputs: Sequence[str], requested: _RequestedNames, names: Sequence[str]
    ) -> dict[str, str]:
        """Return other names for fields whose names columns have in input types."""
        taken, renamed = {*inputs, *names}, {}
        for (thing, _), name in zip(requested.everything[len(inputs) :], names[len(inputs) :], strict=True):
            if name in inputs:
                renamed[name] = first_free(self._others(thing), name, taken)
                taken.add(renamed[name])
        return renamed

    def _others(self, thing: Column | KeyRelationship | Function) -> tuple[str, ...]:
        """Return names to try for what cannot have the one that it asks for."""
        match thing:
            case Column(name=name):
                return (name,)
            case KeyRelationship():
                return (_longer_relationship_field(self._catalog, thing),)
            case Function():
                return ()

    def _place(self, oid: int, thing: Column | KeyRelationship | Function) -> str:
        """Return what something of a table is, as ``Problem`` names places."""
        match thing:
            case KeyRelationship(foreign_key=key):
                return place_of(key, self._catalog.tables[key.table])
            case _:
                return place_of(thing, self._catalog.tables[oid])

    def _rank(self, relationship: KeyRelationship) -> tuple[bool, bool, str, str, int, str]:
        """Return what relationships are sorted by before names are given to them."""
        key = relationship.foreign_key
        table = self._catalog.tables[key.table]
        incoming = not relationship.outgoing
        if key.declared:  # its made-up name ends in its number
            return incoming, True, table.schema, table.name, len(key.name), key.name
        return incoming, False, table.schema, key.name, 0, table.name

    def _computed(self, table: Table) -> Iterator[Function]:
        """Yield the functions that can be fields of a row for some role."""
        functions = self._relationships.functions_of(table)
        for function in sorted(functions, key=lambda each: (each.schema, each.name)):
            if self._executable(function) and self._gives_field(function):
                yield function

    def _gives_field(self, function: Function) -> bool:
        if not is_graphql_name(function_field(self._catalog, function)):
            return False
        result = self._catalog.types.get(function.returns)
        if result is not None and result.relation in self._catalog.base_names:
            return True
        return not function.returns_set and has_value(self._catalog, function.returns)
