"""Rules for GraphQL names, and the unique field names of a table's types.

See docs/reference/graphql.md, Names. ``allocation`` names types and root fields. A function never replaces a
column: otherwise, anyone who may create a function could replace the values of the column.
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
    describe_object,
    executable_by_any_role,
)
from dataapi.catalog.registry import TableFieldKind
from dataapi.catalog.relationships import KeyRelationship, Relationships

_VECTORS = frozenset({"int2vector", "oidvector"})
"""Array types whose text form is ``1 2`` instead of ``{1,2}``."""


@lru_cache(maxsize=10_000)
def pascal_case(name: str) -> str:
    """Convert ``account_holder`` to ``AccountHolder``. Upper-case letters are preserved."""
    letters = (
        letter if previous.isalnum() else letter.upper()
        for previous, letter in zip("_" + name, name, strict=False)
    )
    return "".join(letters).replace("_", "")


def lower_first(name: str) -> str:
    return name[:1].lower() + name[1:]


def field_name(catalog: Catalog, schema: str, name: str) -> str:
    """Return the field name for an SQL name. The result may be an invalid GraphQL name."""
    return lower_first(pascal_case(name)) if inflects(catalog, schema) else name


def type_name(catalog: Catalog, schema: str, name: str) -> str:
    return pascal_case(name) if inflects(catalog, schema) else name


def inflects(catalog: Catalog, schema: str) -> bool:
    return catalog.directives.schema(schema).inflect_names


def numbered(name: str) -> Iterator[str]:
    return (f"{name}_{number}" for number in count(2))


def first_free(candidates: Iterable[str], requested: str, used: Container[str]) -> str:
    """Return the first valid unused candidate, or the requested name with a number."""
    for candidate in (*candidates, requested):
        if is_graphql_name(candidate) and candidate not in used:
            return candidate
    return next(name for name in numbered(requested) if name not in used)


def is_list(type_: Type) -> bool:
    return type_.kind is TypeKind.ARRAY and type_.name not in _VECTORS


def has_value(catalog: Catalog, oid: int) -> bool:
    """Whether GraphQL can represent values of the type, unlike composites and lists of lists."""
    type_ = catalog.types.get(oid)
    if type_ is None:
        return False
    type_ = catalog.base_type(type_)
    if is_list(type_):
        element = catalog.types.get(type_.element)
        return (
            element is not None
            and not is_list(catalog.base_type(element))
            and has_value(catalog, element.oid)
        )
    return type_.kind not in (TypeKind.COMPOSITE, TypeKind.PSEUDO)


def missing_key(table: Table) -> str:
    reason = f"{describe_object(table)} has no primary key, which GraphQL needs"
    if table.kind in (TableKind.ORDINARY, TableKind.PARTITIONED):
        return reason
    return f"{reason}; the directive primary_key_columns can declare one"


def root_field(kind: TableFieldKind, base: str) -> str:
    prefix, suffix = kind.value
    return f"{prefix}{base if prefix else lower_first(base)}{suffix}"


KEY_TYPES = frozenset({"int2", "int4", "int8", "text", "varchar", "bpchar", "citext", "uuid"})
"""Types of primary keys that get a ``…ByPk`` entry point (docs/reference/graphql.md, Entry points)."""


def argument_name(catalog: Catalog, function: Function, argument: Argument) -> str:
    return field_name(catalog, function.schema, argument.name)


def has_by_pk_field(catalog: Catalog, table: Table) -> bool:
    columns = [table.column(name) for name in catalog.primary_key(table)]
    types = [catalog.base_type(catalog.types[column.type]) for column in columns if column is not None]
    return bool(types) and all(type_.name in KEY_TYPES for type_ in types)


NODE_ID = "nodeId"


def enum_values(catalog: Catalog, enum: Type) -> Mapping[str, str] | None:
    mappings = catalog.directives.enum(enum.oid).mappings
    values = {label: mappings.get(label, label) for label in enum.labels}
    if not values or not all(map(is_enum_value, values.values())) or len(set(values.values())) < len(values):
        return None
    return values


def function_field(catalog: Catalog, function: Function) -> str:
    """Return the field name of a function, without one leading underscore.

    The result may be an invalid GraphQL name.
    """
    override = catalog.directives.function(function.oid).name
    return override or lower_first(type_name(catalog, function.schema, function.name.removeprefix("_")))


def relationship_field(catalog: Catalog, relationship: KeyRelationship) -> str:
    """Return the preferred field name of a relationship. The names of several relationships may clash.

    A to-many relationship is named after the target table, with ``Collection``. A to-one relationship is
    named after its only column, minus the ending ``_id`` (with inflection) or ``Id`` (without inflection). If
    the column has no such ending, there are several columns, or the result is not a valid GraphQL name, it is
    named after the target table.
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
    # For the reverse side of a one-to-one relationship, pg_graphql strips the referenced column's name.
    columns = key.columns if relationship.outgoing else key.foreign_columns
    suffix = "_id" if inflects(catalog, target.schema) else "Id"
    if len(columns) == 1 and columns[0].endswith(suffix):
        stripped = lower_first(type_name(catalog, target.schema, columns[0].removesuffix(suffix)))
        if is_graphql_name(stripped):
            return stripped
    return table_name


def _base_name(catalog: Catalog, table: Table) -> str:
    return catalog.base_names.get(table.oid) or type_name(catalog, table.schema, table.name)


def _qualified_relationship_field(catalog: Catalog, relationship: KeyRelationship) -> str:
    key, collection = relationship.foreign_key, "" if relationship.to_one else "Collection"
    columns = [type_name(catalog, catalog.tables[key.table].schema, name) for name in key.columns]
    return lower_first(_base_name(catalog, relationship.target)) + collection + "By" + "And".join(columns)


@dataclass(frozen=True, slots=True)
class FieldNames:
    """Field names of one table's types. Objects without a valid name are omitted.

    All names in ``columns``, ``relationships`` and ``computed`` are distinct: they are the object type's
    fields.

    :ivar columns: object type fields by column name, in column order.
    :ivar inputs: names in input types and aggregates by column name, in column order.
    :ivar relationships: the table's own foreign keys first, then foreign keys to it.
    :ivar computed: functions whose only argument is the table's row type.
    :ivar other_inputs: names of relationships and functions in input types by field, if they differ from the
        field's name.
    """

    columns: Mapping[str, str]
    inputs: Mapping[str, str]
    relationships: tuple[tuple[KeyRelationship, str], ...]
    computed: tuple[tuple[Function, str], ...]
    other_inputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _RequestedNames:
    columns: list[tuple[Column, str]]
    relationships: list[tuple[KeyRelationship, str]]
    functions: list[tuple[Function, str]]

    @property
    def candidates(self) -> list[tuple[Column | KeyRelationship | Function, str]]:
        return [*self.columns, *self.relationships, *self.functions]


def _owners(requested: Sequence[tuple[Column | KeyRelationship | Function, str]]) -> dict[str, int]:
    """Return the index of the item that gets each requested name.

    This is the last item that requests the name, except that a function never replaces a column.
    """
    columns = {name for item, name in requested if isinstance(item, Column)}
    return {
        name: index
        for index, (item, name) in enumerate(requested)
        if name != NODE_ID and not (isinstance(item, Function) and name in columns)
    }


class CatalogNames:
    """Field names of a catalog's tables, computed on first use."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._relationships = Relationships(catalog)
        self._fields: dict[int, FieldNames] = {}
        self._values: dict[int, bool] = {}
        self._executable = executable_by_any_role(catalog)

    @cached_property
    def keyless_by_field(self) -> Mapping[str, Table]:
        catalog = self._catalog
        return {
            root_field(kind, catalog.directives.table(table.oid).name or _base_name(catalog, table)): table
            for table in catalog.tables.values()
            if not catalog.primary_key(table)
            for kind in TableFieldKind
        }

    @cached_property
    def tables_by_name(self) -> Mapping[tuple[str, str], int]:
        return {(table.schema, table.name): oid for oid, table in self._catalog.tables.items()}

    def fields(self, table: int) -> FieldNames:
        names = self._fields.get(table)
        if names is None:
            names = self._fields[table] = self._name_fields(self._catalog.tables[table])
        return names

    def clashes(self, table: int) -> Iterator[Problem]:
        requested = self._requested(self._catalog.tables[table])
        candidates = requested.candidates
        if len({NODE_ID, *(name for _, name in candidates)}) > len(candidates):
            return
        owners = {
            name: self._describe(table, candidates[index][0]) for name, index in _owners(candidates).items()
        }
        owners[NODE_ID] = "the row's node ID"
        type_name = _base_name(self._catalog, self._catalog.tables[table])
        inputs = self._assign_names(requested.columns)
        for index, ((item, name), chosen) in enumerate(
            zip(candidates, self._assign_names(candidates), strict=True)
        ):
            if name == chosen:
                continue
            message = (
                f"the GraphQL field {name} of {type_name} belongs to {owners[name]}; "
                f"this one is named {chosen}"
            )
            if index < len(inputs) and inputs[index] != chosen:
                message += f", but {inputs[index]} in filters, orders, inputs and aggregates"
            yield Problem(self._describe(table, item), message, clash=True)

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
        result = self._values.get(type_)
        if result is None:
            result = self._values[type_] = has_value(self._catalog, type_)
        return result

    def _name_fields(self, table: Table) -> FieldNames:
        requested = self._requested(table)
        names = self._assign_names(requested.candidates)
        inputs = self._assign_names(requested.columns)
        remaining = iter(names)
        columns = zip(requested.columns, remaining, strict=False)
        relationships = zip(requested.relationships, remaining, strict=False)
        functions = zip(requested.functions, remaining, strict=False)
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
            other_inputs=self._input_names(inputs, requested, names),
        )

    def _assign_names(
        self, requested: Sequence[tuple[Column | KeyRelationship | Function, str]]
    ) -> list[str]:
        """Return a unique name for each item. ``_owners`` selects the items that keep the requested name."""
        owners = _owners(requested)
        used = {NODE_ID, *owners}
        names = []
        for index, (item, name) in enumerate(requested):
            chosen = name
            if owners.get(name) != index:
                chosen = first_free(self._alternatives(item), name, used)
                used.add(chosen)
            names.append(chosen)
        return names

    def _input_names(
        self, inputs: Sequence[str], requested: _RequestedNames, names: Sequence[str]
    ) -> dict[str, str]:
        used, renamed = {*inputs, *names}, {}
        for (item, _), name in zip(requested.candidates[len(inputs) :], names[len(inputs) :], strict=True):
            if name in inputs:
                renamed[name] = first_free(self._alternatives(item), name, used)
                used.add(renamed[name])
        return renamed

    def _alternatives(self, item: Column | KeyRelationship | Function) -> tuple[str, ...]:
        match item:
            case Column(name=name):
                return (name,)
            case KeyRelationship():
                return (_qualified_relationship_field(self._catalog, item),)
            case Function():
                return ()

    def _describe(self, oid: int, item: Column | KeyRelationship | Function) -> str:
        match item:
            case KeyRelationship(foreign_key=key):
                return describe_object(key, self._catalog.tables[key.table])
            case _:
                return describe_object(item, self._catalog.tables[oid])

    def _rank(self, relationship: KeyRelationship) -> tuple[bool, bool, str, str, int, str]:
        key = relationship.foreign_key
        table = self._catalog.tables[key.table]
        incoming = not relationship.outgoing
        if key.declared:  # sort generated names by the number at their end
            return incoming, True, table.schema, table.name, len(key.name), key.name
        return incoming, False, table.schema, key.name, 0, table.name

    def _computed(self, table: Table) -> Iterator[Function]:
        functions = self._relationships.functions_of(table)
        for function in sorted(functions, key=lambda each: (each.schema, each.name)):
            if self._executable(function) and self._can_be_field(function):
                yield function

    def _can_be_field(self, function: Function) -> bool:
        if not is_graphql_name(function_field(self._catalog, function)):
            return False
        result = self._catalog.types.get(function.returns)
        if result is not None and result.relation in self._catalog.base_names:
            return True
        return not function.returns_set and has_value(self._catalog, function.returns)
