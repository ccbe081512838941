"""The GraphQL names of tables, columns, relationships, functions and enums; pure.

The rules are the reference's (``graphql.md`` 1.1 and 1.2).  Where those give one name to several
fields of a type, the last one has it, as there: columns come first, in the table's own order, then the
table's foreign keys and those that point at it, by schema and name, then functions, by schema and
name.  These orders outlive a dump and restore.  Each of the others gets a longer name, so that nothing
is lost, and the clash is reported.  Input types and aggregates hold columns alone, so there a column
gives way to another column only.

Names are the same for every role, whatever it may see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dataapi.catalog.directives import is_enum_value, is_graphql_name
from dataapi.catalog.entry_points import name_entry_points
from dataapi.catalog.inflection import first_free, has_value, inflect, inflects, lower_first, pascal_case
from dataapi.catalog.model import (
    Catalog,
    Column,
    Function,
    Problem,
    Table,
    Type,
)
from dataapi.catalog.relationships import Relationship, Relationships

NODE_ID = "nodeId"


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
    """Name the field of a relationship by the rules alone: two may get the same name.

    After a column that GraphQL cannot name, it is named as after several columns.
    """
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
    if len(columns) == 1 and columns[0].endswith(suffix):
        stripped = lower_first(inflect(columns[0].removesuffix(suffix), inflection))
        if is_graphql_name(stripped):
            return stripped
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
    """The names of the fields of one table's types; what has no valid name is absent.

    Those of the object type, ``columns``, ``relationships`` and ``computed``, are all different.

    :ivar columns: field of the object type by column name, in column order.
    :ivar inputs: name in input types and aggregates by column name, in column order.
    :ivar relationships: in order: keys of the table itself first, then keys that point at it.
    :ivar computed: functions whose only argument is the table's row type.
    :ivar other_inputs: name in input types of relationships and functions, by their field, where it is
        not the same.
    :ivar clashes: what gave way to what.
    """

    columns: Mapping[str, str]
    inputs: Mapping[str, str]
    relationships: tuple[tuple[Relationship, str], ...]
    computed: tuple[tuple[Function, str], ...]
    other_inputs: Mapping[str, str]
    clashes: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Something that asks for a field.

    :ivar place: what it is, as ``Problem`` names places.
    :ivar wanted: the name that the rules give it.
    :ivar others: names to try when it cannot have that one.
    """

    place: str
    wanted: str
    others: tuple[str, ...]


def _named(candidates: Sequence[_Candidate]) -> list[str]:
    """Return a name for each candidate, all different: the last one that wants a name has it."""
    owners = {each.wanted: each for each in candidates if each.wanted != NODE_ID}
    taken = {NODE_ID, *owners}
    names = []
    for each in candidates:
        name = each.wanted
        if owners.get(name) is not each:
            name = first_free(each.others, each.wanted, taken)
            taken.add(name)
        names.append(name)
    return names


def _beside(inputs: Sequence[str], others: Sequence[_Candidate], names: Sequence[str]) -> dict[str, str]:
    """Return other names for fields whose names columns have in input types.

    :param names: those of all fields of the object type, the last ones being the others'.
    """
    taken, renamed = {*inputs, *names}, {}
    for each, name in zip(others, names[len(inputs) :], strict=True):
        if name in inputs:
            renamed[name] = first_free(each.others, name, taken)
            taken.add(renamed[name])
    return renamed


def _clashes(
    type_name: str, candidates: Sequence[_Candidate], names: Sequence[str], inputs: Sequence[str]
) -> Iterator[Problem]:
    """Yield a problem for each candidate that has another name than it wants."""
    if all(each.wanted == name for each, name in zip(candidates, names, strict=True)):
        return
    owners = {each.wanted: each.place for each in candidates} | {NODE_ID: "the row's node id"}
    for number, (each, name) in enumerate(zip(candidates, names, strict=True)):
        if name == each.wanted:
            continue
        owner = owners[each.wanted]
        message = f"the GraphQL field {each.wanted} of {type_name} is {owner}; this one is {name}"
        if number < len(inputs) and inputs[number] != name:
            message += f", and still {inputs[number]} in filters, orders, inputs and aggregates"
        yield Problem(each.place, message, clash=True)


class Names:
    """The field names of a catalog's tables, worked out when first asked for."""

    def __init__(self, catalog: Catalog, relationships: Relationships) -> None:
        self._catalog = catalog
        self._relationships = relationships
        self._fields: dict[int, FieldNames] = {}

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

    @cached_property
    def entry_points(self) -> Mapping[int, str]:
        """The names of functions' entry points by their oids."""
        return name_entry_points(self._catalog).names

    def fields(self, table: int) -> FieldNames:
        """Return the field names of a table's types."""
        found = self._fields.get(table)
        if found is None:
            found = self._fields[table] = self._name_fields(self._catalog.tables[table])
        return found

    def _name_fields(self, table: Table) -> FieldNames:
        columns = [
            column
            for column in table.columns
            if is_graphql_name(column_field(self._catalog, table, column))
            and has_value(self._catalog, column.type)
        ]
        shown = [
            each for each in self._relationships.of(table.oid) if each.target in self._catalog.base_names
        ]
        related = sorted(shown, key=self._rank)
        functions = self._computed.get(table.type, [])
        candidates = [
            *(self._column(table, column) for column in columns),
            *map(self._relationship, related),
            *map(self._function, functions),
        ]
        names = _named(candidates)
        inputs = _named(candidates[: len(columns)])
        others = names[len(columns) :]
        by_relationship = dict(zip(related, others, strict=False))
        return FieldNames(
            columns={column.name: name for column, name in zip(columns, names, strict=False)},
            inputs={column.name: name for column, name in zip(columns, inputs, strict=True)},
            relationships=tuple((each, by_relationship[each]) for each in shown),
            computed=tuple(zip(functions, others[len(related) :], strict=True)),
            other_inputs=_beside(inputs, candidates[len(columns) :], names),
            clashes=tuple(_clashes(_base_name(self._catalog, table), candidates, names, inputs)),
        )

    def _column(self, table: Table, column: Column) -> _Candidate:
        place = f"column {table.schema}.{table.name}.{column.name}"
        return _Candidate(place, column_field(self._catalog, table, column), (column.name,))

    def _relationship(self, relationship: Relationship) -> _Candidate:
        key = relationship.foreign_key
        table = self._catalog.tables[key.table]
        return _Candidate(
            f"foreign key {key.name} of table {table.schema}.{table.name}",
            relationship_field(self._catalog, relationship),
            (_longer_relationship_field(self._catalog, relationship),),
        )

    def _function(self, function: Function) -> _Candidate:
        place = f"function {function.schema}.{function.name}"
        return _Candidate(place, function_field(self._catalog, function), ())

    def _rank(self, relationship: Relationship) -> tuple[bool, bool, str, str, int, str]:
        """Return what relationships are sorted by before names are given to them."""
        key = relationship.foreign_key
        table = self._catalog.tables[key.table]
        incoming = not relationship.outgoing
        if key.declared:  # its made-up name ends in its number
            return incoming, True, table.schema, table.name, len(key.name), key.name
        return incoming, False, table.schema, key.name, 0, table.name

    @cached_property
    def _computed(self) -> Mapping[int, list[Function]]:
        """The functions that can be fields of a row, by its type's oid."""
        found: dict[int, list[Function]] = {}
        for function in sorted(self._catalog.functions, key=lambda each: (each.schema, each.name)):
            if len(function.arguments) == 1 and self._gives_field(function):
                found.setdefault(function.arguments[0].type, []).append(function)
        return found

    def _gives_field(self, function: Function) -> bool:
        if not is_graphql_name(function_field(self._catalog, function)):
            return False
        result = self._catalog.types.get(function.returns)
        if result is not None and result.relation in self._catalog.base_names:
            return True
        return not function.returns_set and has_value(self._catalog, function.returns)
