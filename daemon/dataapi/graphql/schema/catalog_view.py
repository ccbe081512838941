"""A role's view of the catalog: its tables and their GraphQL fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from dataapi.catalog.model import Catalog, Column, Function, Privileges, Table, TypeKind
from dataapi.catalog.names import CatalogNames, FieldNames, has_by_pk_field
from dataapi.catalog.registry import TableType
from dataapi.catalog.relationships import KeyRelationship
from dataapi.graphql.schema.type_mapping import TypeMapping, mapping_of
from dataapi.sql.algebra import ColumnRef, Condition, FunctionCall, Join, OrderTerm, Rows
from dataapi.sql.statement import qualified


@dataclass(frozen=True, slots=True)
class ColumnField:
    """A column as a GraphQL field.

    ``name`` is used in input types and aggregates, ``field`` in the object type.
    """

    name: str
    field: str
    column: Column
    mapping: TypeMapping
    description: str | None


@dataclass(frozen=True, slots=True)
class ComputedField:
    """A computed field: a function of a row that returns a scalar.

    :ivar name: the field's name in the object type.
    """

    name: str
    input_name: str
    function: Function
    mapping: TypeMapping
    description: str | None


@dataclass(frozen=True, slots=True)
class RelatedField:
    """A relationship as a field, defined by a foreign key or by a function of the row.

    :ivar join: the joined columns, None for a computed relationship.
    :ivar outgoing: whether this table has the foreign key.
    :ivar unique: whether the target's keys allow at most one related row.
    :ivar disjoint: whether different rows never have the same related row.
    :ivar nullable: whether a to-one field is nullable in the schema.
    """

    name: str
    input_name: str
    target: TableView
    to_one: bool
    join: Join | None = None
    function: Function | None = None
    outgoing: bool = False
    unique: bool = False
    disjoint: bool = False
    nullable: bool = True
    description: str | None = None

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The joined columns as pairs: the target's column, then this table's."""
        return () if self.join is None else self.join.pairs

    def rows(self, where: Condition | None = None) -> Rows:
        table = self.target.table
        if self.function is None:
            return Rows(table, join=self.join, where=where, unique=self.unique)
        return Rows(table, call=FunctionCall(self.function, of_row=True), where=where, unique=self.unique)


@dataclass(eq=False)
class CatalogView:
    """A catalog as one role sees it.

    :ivar non_null: whether many-to-one relationships over NOT NULL columns are non-null
        (``graphql-non-null-relationships``).
    :ivar max_rows: the configured page size limit (``db-max-rows``), None for no limit.
    :ivar schemas: the schemas in the view, None for the whole search path.
    """

    catalog: Catalog
    names: CatalogNames
    role: str
    non_null: bool = False
    max_rows: int | None = None
    schemas: frozenset[str] | None = None

    def __post_init__(self) -> None:
        self.privileges = Privileges(self.catalog, self.role)
        self._tables: dict[int, TableView | None] = {}

    def created(self) -> list[object]:
        return [self, *filter(None, self._tables.values())]

    @cached_property
    def usable_schemas(self) -> frozenset[str]:
        schemas = self.catalog.search_path if self.schemas is None else self.schemas
        return frozenset(filter(self.privileges.can_use_schema, schemas))

    def introspectable(self) -> CatalogView | None:
        """Return the view restricted to schemas that allow introspection, None if there are none."""
        directives = self.catalog.directives
        allowed = frozenset(name for name in self.usable_schemas if directives.schema(name).introspection)
        if not allowed:
            return None
        return self if allowed == self.usable_schemas else replace(self, schemas=allowed)

    def copy_for_thread(self) -> CatalogView:
        """Return a copy that does not share lazily created values."""
        return replace(self, names=CatalogNames(self.catalog))

    @cached_property
    def used_features(self) -> frozenset[str]:
        tables = self.catalog.directives.tables.values()
        return self.catalog.features.union(*(table.features for table in tables))

    def table(self, oid: int) -> TableView | None:
        if oid in self._tables:
            return self._tables[oid]
        return self._tables.setdefault(oid, self._view_of(oid))  # another thread may have created it

    def _view_of(self, oid: int) -> TableView | None:
        table, name = self.catalog.tables.get(oid), self.catalog.base_names.get(oid)
        if table is None or name is None or table.schema not in self.usable_schemas:
            return None
        view = TableView(self, table, name)
        # An object type must have a field.
        return view if view.readable and (view.has_node_id or view.columns) else None

    def reads(self, table: Table) -> bool:
        return table.schema in self.usable_schemas and self.privileges.can(table, "SELECT")

    def table_named(self, schema: str, name: str) -> TableView | None:
        oid = self.names.tables_by_name.get((schema, name))
        return None if oid is None else self.table(oid)

    def table_of_type(self, oid: int) -> TableView | None:
        type_ = self.catalog.types.get(oid)
        return self.table(type_.relation) if type_ is not None and type_.relation else None

    def lists_enum(self, oid: int) -> bool:
        return self.privileges.can_use_type(oid) or oid in self._enums_in_use

    @cached_property
    def _enums_in_use(self) -> frozenset[int]:
        mappings: list[TypeMapping | None] = []
        for table in filter(None, map(self.table, self.catalog.base_names)):
            mappings += [field.mapping for field in table.columns]
            mappings += [field.mapping for field in table.computed]
        for function in filter(self.can_call, self.catalog.functions):
            types = (function.returns, *(argument.type for argument in function.arguments))
            mappings += map(self.mapping, types)
        return frozenset(mapping.enum for mapping in mappings if mapping is not None)

    def can_call(self, function: Function) -> bool:
        return function.schema in self.usable_schemas and self.privileges.can_execute(function)

    def mapping(self, oid: int, typmod: int = -1) -> TypeMapping | None:
        """Return the mapping of a type, None if it has no GraphQL type or is an enum outside the view."""
        mapping = mapping_of(self.catalog, oid, typmod)
        if mapping is None or not mapping.enum:
            return mapping
        return mapping if self.catalog.types[mapping.enum].schema in self.usable_schemas else None


DEFAULT_MAX_ROWS = 30
"""Default maximum number of rows per page (docs/reference/graphql.md, Directives)."""


class TableView:
    """A table as one role sees it: its readable columns and its relationships to visible tables.

    :ivar readable: the SQL names of the columns that the role may read.
    """

    def __init__(self, catalog_view: CatalogView, table: Table, name: str) -> None:
        self.catalog_view = catalog_view
        self.table = table
        self.name = name
        self.readable = catalog_view.privileges.columns(table, "SELECT")
        self._catalog = catalog_view.catalog
        self.directives = self._catalog.directives.table(table.oid)
        self.features = self.directives.features | self._catalog.features

    def name_of(self, kind: TableType) -> str:
        name = self._catalog.name_of_type(self.table.oid, kind)
        if name is None:
            raise KeyError(kind)
        return name

    @property
    def aggregates(self) -> bool:
        return self.directives.aggregate or "groupBy" in self.features

    @property
    def grouped(self) -> bool:
        return "groupBy" in self.features and bool(self.orderable_columns)

    @cached_property
    def key(self) -> tuple[str, ...]:
        return tuple(filter(self.readable.__contains__, self._catalog.primary_key(self.table)))

    @cached_property
    def has_node_id(self) -> bool:
        """Whether rows have node ids, because the role may read all key columns."""
        return self.key == self._catalog.primary_key(self.table)

    @cached_property
    def columns(self) -> tuple[ColumnField, ...]:
        return self._columns_with("SELECT")

    @cached_property
    def insertable(self) -> tuple[ColumnField, ...]:
        return self._writable("INSERT") if self.table.insertable else ()

    @cached_property
    def allows_batches(self) -> bool:
        """Whether rows can be inserted as one JSON value. Requires USAGE on the schemas of column types."""
        nested = "nestedInserts" in self.catalog_view.used_features
        return not nested and all(self.type_name(field) is not None for field in self.insertable)

    def type_name(self, field: ColumnField) -> str | None:
        """Return the SQL name of a column's type or a domain's base type, None if the role cannot use it."""
        if field.mapping.parameter != "unknown":
            return field.mapping.parameter
        type_ = self._catalog.types[field.column.type]
        if type_.kind is TypeKind.DOMAIN:
            type_ = self._catalog.types[type_.base]
        return qualified(type_) if self.catalog_view.privileges.can_use_schema(type_.schema) else None

    @cached_property
    def updatable(self) -> tuple[ColumnField, ...]:
        return self._writable("UPDATE") if self.table.updatable else ()

    @cached_property
    def deletable(self) -> bool:
        return self.table.deletable and self.catalog_view.privileges.has_table_privilege(self.table, "DELETE")

    @property
    def _names(self) -> FieldNames:
        return self.catalog_view.names.fields(self.table.oid)

    def _input_name(self, field: str) -> str:
        return self._names.other_inputs.get(field, field)

    def _columns_with(self, privilege: str) -> tuple[ColumnField, ...]:
        allowed = self.catalog_view.privileges.columns(self.table, privilege)
        names = self._names
        fields = []
        for column in self.table.columns:
            if column.name not in allowed or column.name not in names.inputs:
                continue
            mapping = self.catalog_view.mapping(column.type, column.typmod)
            if mapping is not None:
                description = self._catalog.directives.column(self.table.oid, column.name).description
                name, field = names.inputs[column.name], names.columns[column.name]
                fields.append(ColumnField(name, field, column, mapping, description))
        return tuple(fields)

    def _writable(self, privilege: str) -> tuple[ColumnField, ...]:
        names = self.table.updatable_columns
        return tuple(
            field
            for field in self._columns_with(privilege)
            if not field.column.generated and field.column.identity != "a"
            if names is None or field.column.name in names
        )

    @cached_property
    def columns_by_name(self) -> dict[str, ColumnField]:
        return {field.name: field for field in self.columns}

    @cached_property
    def fields_by_column(self) -> dict[str, ColumnField]:
        return {field.column.name: field for field in self.columns}

    @cached_property
    def orderable_columns(self) -> tuple[ColumnField, ...]:
        return tuple(column for column in self.columns if column.mapping.orderable)

    def columns_for(self, aggregate: str) -> tuple[ColumnField, ...]:
        return tuple(column for column in self.columns if column.mapping.allows(aggregate))

    @cached_property
    def fields_by_name(self) -> dict[str, ColumnField | ComputedField | RelatedField]:
        return {
            **{column.field: column for column in self.columns},
            **{field.name: field for field in self._others},
        }

    @cached_property
    def others_by_input(self) -> dict[str, ComputedField | RelatedField]:
        return {field.input_name: field for field in self._others}

    @property
    def _others(self) -> tuple[ComputedField | RelatedField, ...]:
        return (*self.computed, *self.related)

    @cached_property
    def computed(self) -> tuple[ComputedField, ...]:
        fields = []
        for function, name in self._executable():
            mapping = None if function.returns_set else self.catalog_view.mapping(function.returns)
            if mapping is not None:
                description = self._catalog.directives.function(function.oid).description
                fields.append(ComputedField(name, self._input_name(name), function, mapping, description))
        return tuple(fields)

    def _executable(self) -> Iterator[tuple[Function, str]]:
        # The function receives the whole row, so PostgreSQL requires SELECT on every column.
        if self.readable.issuperset(column.name for column in self.table.columns):
            for function, name in self._names.computed:
                if self.catalog_view.privileges.can_execute(function):
                    yield function, name

    @cached_property
    def related(self) -> tuple[RelatedField, ...]:
        by_key = (self._by_key(relationship, name) for relationship, name in self._names.relationships)
        computed = (self._by_function(function, name) for function, name in self._executable())
        return tuple(field for field in (*by_key, *computed) if field is not None)

    def _by_key(self, relationship: KeyRelationship, name: str) -> RelatedField | None:
        target = self.catalog_view.table(relationship.target.oid)
        if target is None:
            return None
        pairs = relationship.pairs
        if not all(own in self.readable and other in target.readable for own, other in pairs):
            return None
        return RelatedField(
            name,
            self._input_name(name),
            target,
            relationship.to_one,
            join=Join(tuple((other, own) for own, other in pairs), relationship.schemas),
            outgoing=relationship.outgoing,
            unique=relationship.to_one and target.table.is_unique(other for _, other in pairs),
            disjoint=self.table.is_unique(own for own, _ in pairs),
            nullable=not (self.catalog_view.non_null and self._always_exists(relationship, target)),
        )

    def _always_exists(self, relationship: KeyRelationship, target: TableView) -> bool:
        columns = [self.table.column(own) for own, _ in relationship.pairs]
        not_null = all(column is not None and not column.nullable for column in columns)
        valid = relationship.outgoing and relationship.foreign_key.validated
        return valid and not_null and not target.table.row_security

    def _by_function(self, function: Function, name: str) -> RelatedField | None:
        target = self.catalog_view.table_of_type(function.returns)
        if target is None:
            return None
        return RelatedField(
            name,
            self._input_name(name),
            target,
            function.returns_one_row,
            function=function,
            unique=not function.returns_set,
            description=self._catalog.directives.function(function.oid).description,
        )

    @cached_property
    def insertable_relations(self) -> tuple[RelatedField, ...]:
        return tuple(field for field in self.related if field.function is None and field.target.insertable)

    @cached_property
    def max_rows(self) -> int:
        schema = self._catalog.directives.schema(self.table.schema)
        return self.directives.max_rows or schema.max_rows or self.catalog_view.max_rows or DEFAULT_MAX_ROWS

    @cached_property
    def key_is_unique(self) -> bool:
        """Whether PostgreSQL enforces that the key is unique. It does not for a view's declared key."""
        return self.table.is_unique(self.key)

    @cached_property
    def key_order(self) -> tuple[OrderTerm, ...]:
        columns = filter(None, map(self.table.column, self.key))
        return tuple(
            OrderTerm(ColumnRef(column.name), nullable=column.nullable, schema=column.comparison_schema)
            for column in columns
        )

    @cached_property
    def key_types(self) -> tuple[str, ...]:
        fields = (self.fields_by_column.get(name) for name in self.key)
        return tuple("unknown" if field is None else field.mapping.parameter for field in fields)

    @cached_property
    def by_key(self) -> tuple[ColumnField, ...]:
        """The key's fields in key order, empty if the table has no ``ByPk`` field."""
        fields = tuple(self.fields_by_column[name] for name in self.key if name in self.fields_by_column)
        whole = self.has_node_id and len(fields) == len(self.key)
        return fields if whole and has_by_pk_field(self._catalog, self.table) else ()
