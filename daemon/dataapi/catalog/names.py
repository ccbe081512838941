"""The GraphQL names of tables, columns, relationships, functions and enums; pure.

The rules are the reference's (``graphql.md`` 1.1 and 1.2).  Where those give one name to two
things of the same type, the first one keeps it and the other gets a longer one that
depends only on the database's own names, so that nothing is lost and a later addition
does not rename what is there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from dataapi.catalog.directives import is_enum_value, is_graphql_name
from dataapi.catalog.model import (
    Catalog,
    Column,
    Function,
    Table,
    Type,
)
from dataapi.catalog.relationships import Relationship, Relationships

NODE_ID = "nodeId"


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


def inflect(name: str, inflection: bool) -> str:
    """Return a type name for an SQL name."""
    return pascal_case(name) if inflection else name


def inflects(catalog: Catalog, schema: str) -> bool:
    """Whether the schema's directive asks for inflection."""
    return catalog.annotations.schema(schema).inflect_names


def numbered(name: str) -> Iterator[str]:
    """Yield the name with ``_2``, ``_3`` and so on."""
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1


def _first_free(candidates: Iterable[str], taken: Container[str]) -> str:
    """Return the first candidate that is a name and free; the last one is numbered at need."""
    last = ""
    for last in candidates:
        if is_graphql_name(last) and last not in taken:
            return last
    return next(name for name in numbered(last) if name not in taken)


def enum_values(catalog: Catalog, enum: Type) -> Mapping[str, str] | None:
    """Map the enum's labels to GraphQL values; None when some label has no valid one.

    Such an enum can't be a GraphQL enum, since introspection would break every client.
    """
    mappings = catalog.annotations.enum(enum.oid).mappings
    values = {label: mappings.get(label, label) for label in enum.labels}
    if not values or not all(map(is_enum_value, values.values())) or len(set(values.values())) < len(values):
        return None
    return values


def function_field(catalog: Catalog, function: Function) -> str:
    """Name the field of a function; one leading ``_`` is dropped. May be no valid GraphQL name."""
    override = catalog.annotations.function(function.oid).name
    if override:
        return override
    name = function.name.removeprefix("_")
    return lower_first(inflect(name, inflects(catalog, function.schema)))


def column_field(catalog: Catalog, table: Table, column: Column) -> str:
    """Name the field of a column by the rules alone. May be no valid GraphQL name."""
    override = catalog.annotations.column(table.oid, column.name).name
    if override:
        return override
    if inflects(catalog, table.schema):
        return lower_first(pascal_case(column.name))
    return column.name


def relationship_field(catalog: Catalog, relationship: Relationship) -> str:
    """Name the field of a relationship by the rules alone: two may get the same name."""
    key = relationship.foreign_key
    directives = catalog.annotations.foreign_key(key.table, key.name)
    override = directives.foreign_name if relationship.outgoing else directives.local_name
    if override:
        return override
    target = catalog.tables[relationship.target]
    table_name = lower_first(_base_name(catalog, target))
    if not relationship.to_one:
        return f"{table_name}Collection"
    inflection = inflects(catalog, target.schema)
    # The reference strips the referenced column's name for the reverse side of a one-to-one.
    columns = key.columns if relationship.outgoing else key.foreign_columns
    suffix = "_id" if inflection else "Id"
    if len(columns) == 1 and columns[0].endswith(suffix) and columns[0] != suffix:
        return lower_first(inflect(columns[0].removesuffix(suffix), inflection))
    return table_name


def _base_name(catalog: Catalog, table: Table) -> str:
    return catalog.base_names.get(table.oid) or inflect(table.name, inflects(catalog, table.schema))


def _longer_relationship_field(catalog: Catalog, relationship: Relationship) -> str:
    """Name a relationship by its columns too: ``accountByEditorId``, ``blogCollectionByEditorId``."""
    target = catalog.tables[relationship.target]
    inflection = inflects(catalog, catalog.tables[relationship.foreign_key.table].schema)
    columns = [inflect(name, inflection) for name in relationship.foreign_key.columns]
    collection = "" if relationship.to_one else "Collection"
    return lower_first(_base_name(catalog, target)) + collection + "By" + "And".join(columns)


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The names of the fields of one table's object type, all different; what has no valid name is absent.

    :ivar columns: field by column name, in column order.
    :ivar relationships: in order: keys of the table itself first, then keys that point at it.
    :ivar computed: functions whose only argument is the table's row type.
    """

    columns: Mapping[str, str]
    relationships: tuple[tuple[Relationship, str], ...]
    computed: tuple[tuple[Function, str], ...]


class Names:
    """The field names of a catalog's tables, worked out when first asked for."""

    def __init__(self, catalog: Catalog, relationships: Relationships) -> None:
        self._catalog = catalog
        self._relationships = relationships
        self._fields: dict[int, FieldNames] = {}
        self._computed: dict[int, list[Function]] | None = None

    @cached_property
    def tables_by_type(self) -> Mapping[str, int]:
        """The oids of tables by their type's name."""
        names = self._catalog.base_names
        return {name: oid for oid, name in names.items() if oid in self._catalog.tables}

    @cached_property
    def enums_by_type(self) -> Mapping[str, int]:
        """The oids of enums by their type's name."""
        names = self._catalog.base_names
        return {name: oid for oid, name in names.items() if oid in self._catalog.types}

    @cached_property
    def tables_by_field(self) -> Mapping[str, int]:
        """The oids of tables by what their entry points begin with."""
        return {lower_first(name): oid for name, oid in self.tables_by_type.items()}

    @cached_property
    def tables_by_name(self) -> Mapping[tuple[str, str], int]:
        """The oids of tables by their schema's and their own SQL name."""
        return {(table.schema, table.name): oid for oid, table in self._catalog.tables.items()}

    def fields(self, table: int) -> FieldNames:
        """Return the field names of a table's object type."""
        found = self._fields.get(table)
        if found is None:
            found = self._fields[table] = self._name_fields(self._catalog.tables[table])
        return found

    def _name_fields(self, table: Table) -> FieldNames:
        taken = {NODE_ID, "__typename"}
        columns = self._columns(table, taken)
        relationships = self._relationship_names(table, taken)
        computed = []
        for function in self._computed_of(table):
            wanted = function_field(self._catalog, function)
            if is_graphql_name(wanted):
                name = _first_free((wanted,), taken)
                taken.add(name)
                computed.append((function, name))
        return FieldNames(columns, relationships, tuple(computed))

    def _columns(self, table: Table, taken: set[str]) -> dict[str, str]:
        annotations = self._catalog.annotations
        overridden_first = sorted(
            table.columns, key=lambda column: annotations.column(table.oid, column.name).name is None
        )
        chosen: dict[str, str] = {}
        for column in overridden_first:
            wanted = column_field(self._catalog, table, column)
            if is_graphql_name(wanted):
                chosen[column.name] = _first_free((wanted, column.name), taken)
                taken.add(chosen[column.name])
        return {column.name: chosen[column.name] for column in table.columns if column.name in chosen}

    def _relationship_names(self, table: Table, taken: set[str]) -> tuple[tuple[Relationship, str], ...]:
        catalog = self._catalog
        found = [
            relationship
            for relationship in self._relationships.of(table.oid)
            if relationship.target in catalog.base_names
        ]
        chosen: dict[Relationship, str] = {}
        for relationship in sorted(found, key=lambda relationship: not self._is_overridden(relationship)):
            wanted = relationship_field(catalog, relationship)
            name = _first_free((wanted, _longer_relationship_field(catalog, relationship)), taken)
            chosen[relationship] = name
            taken.add(name)
        return tuple((relationship, chosen[relationship]) for relationship in found)

    def _is_overridden(self, relationship: Relationship) -> bool:
        key = relationship.foreign_key
        directives = self._catalog.annotations.foreign_key(key.table, key.name)
        return (directives.foreign_name if relationship.outgoing else directives.local_name) is not None

    def _computed_of(self, table: Table) -> list[Function]:
        if self._computed is None:
            self._computed = {}
            for function in self._catalog.functions:
                if len(function.arguments) == 1:
                    self._computed.setdefault(function.arguments[0].type, []).append(function)
        return self._computed.get(table.type, [])
