"""What one role sees of one table: its columns, computed fields and relationships as GraphQL fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from dataapi.catalog.field_names import FieldNames
from dataapi.catalog.model import Column, Function, Table, TypeKind
from dataapi.catalog.names import is_looked_up_by_key
from dataapi.catalog.relationships import KeyRelationship
from dataapi.graphql.schema.type_mapping import TypeMapping, mapping_of
from dataapi.sql.algebra import ColumnOf, FunctionCall, Join, OrderTerm, Rows
from dataapi.sql.conditions import Condition
from dataapi.sql.writer import qualified

if TYPE_CHECKING:
    from dataapi.graphql.schema.catalog_view import CatalogView


@dataclass(frozen=True, slots=True)
class ColumnField:
    """A column as a field.

    :ivar name: its name in input types and aggregates.
    :ivar field: its name in the object type.
    """

    name: str
    field: str
    column: Column
    mapping: TypeMapping
    description: str | None


@dataclass(frozen=True, slots=True)
class ComputedField:
    """A computed scalar field.

    :ivar input_name: the name in input types.
    """

    name: str
    input_name: str
    function: Function
    mapping: TypeMapping
    description: str | None


@dataclass(frozen=True, slots=True)
class RelatedField:
    """A relationship as a field, by foreign key or by a function of the row.

    :ivar input_name: the name in input types.
    :ivar target: the oid of the related table.
    :ivar pairs: ``(target's column, own column)``; empty for a computed relationship.
    :ivar function: the one of a computed relationship.
    :ivar outgoing: whether the foreign key is this table's own.
    :ivar unique: whether at most one row is related, by the target's keys alone.
    :ivar disjoint: whether different rows have different related rows.
    :ivar nullable: of a to-one field, whether the schema shows it as nullable.
    """

    name: str
    input_name: str
    target: int
    to_one: bool
    pairs: tuple[tuple[str, str], ...] = ()
    function: Function | None = None
    outgoing: bool = False
    unique: bool = False
    disjoint: bool = False
    nullable: bool = True
    description: str | None = None


DEFAULT_MAX_ROWS = 30
"""The page cap where no directive or configuration sets one (docs/reference/graphql.md, Directives)."""


class TableType(StrEnum):
    """The types of a table: the name of each is that of the table with this ending."""

    COLLECTION_FILTER = "CollectionFilter"
    COLLECTION_ORDER_BY = "CollectionOrderBy"
    MIN_MAX_ORDER_BY = "MinMaxOrderBy"
    ON_CONFLICT_INPUT = "OnConflictInput"
    CONFLICT_CONSTRAINT = "ConflictConstraint"
    INSERT_COLUMN = "InsertColumn"
    UPDATE_COLUMN = "UpdateColumn"
    GROUP_COLUMN = "GroupColumn"
    GROUP = "Group"
    GROUP_KEYS = "GroupKeys"
    COUNT_DISTINCT_AGGREGATE_RESULT = "CountDistinctAggregateResult"
    HAVING = "Having"
    SUM_HAVING = "SumHaving"
    AVG_HAVING = "AvgHaving"
    MIN_HAVING = "MinHaving"
    MAX_HAVING = "MaxHaving"
    COUNT_DISTINCT_HAVING = "CountDistinctHaving"
    FILTER = "Filter"
    ORDER_BY = "OrderBy"
    INSERT_INPUT = "InsertInput"
    UPDATE_INPUT = "UpdateInput"
    OBJECT = ""
    CONNECTION = "Connection"
    EDGE = "Edge"
    INSERT_RESPONSE = "InsertResponse"
    UPDATE_RESPONSE = "UpdateResponse"
    DELETE_RESPONSE = "DeleteResponse"
    AGGREGATE = "Aggregate"
    SUM_AGGREGATE_RESULT = "SumAggregateResult"
    AVG_AGGREGATE_RESULT = "AvgAggregateResult"
    MIN_AGGREGATE_RESULT = "MinAggregateResult"
    MAX_AGGREGATE_RESULT = "MaxAggregateResult"

    def of(self, view: TableView) -> str:
        """Return the name of a table's type."""
        return view.name + self

    @classmethod
    def aggregate_result(cls, aggregate: str) -> TableType:
        """Return the type of an aggregate's field such as ``sum`` or ``countDistinct``."""
        return cls(f"{aggregate[0].upper()}{aggregate[1:]}AggregateResult")

    @classmethod
    def having(cls, aggregate: str) -> TableType:
        """Return the type of the conditions on an aggregate such as ``sum`` or ``countDistinct``."""
        return cls(f"{aggregate[0].upper()}{aggregate[1:]}Having")


class TableView:
    """One table as a role sees it: only columns with SELECT, only relationships to tables it sees."""

    def __init__(self, catalog_view: CatalogView, table: Table, name: str) -> None:
        self.table = table
        self.name = name
        self._role = catalog_view
        self._catalog = catalog_view.catalog
        self.directives = self._catalog.directives.table(table.oid)
        self.features = self.directives.features | catalog_view.features

    @property
    def aggregates(self) -> bool:
        """Whether the table has the types of aggregates."""
        return self.directives.aggregate or "groupBy" in self.features

    @property
    def grouped(self) -> bool:
        """Whether the table has ``groupBy``."""
        return "groupBy" in self.features and bool(self.orderable_columns)

    @property
    def schema_features(self) -> frozenset[str]:
        """The features that some table of the role's schema uses."""
        return self._role.used_features

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key columns that the role may read."""
        readable = self._role.privileges.columns(self.table, "SELECT")
        return tuple(name for name in self._catalog.primary_key(self.table) if name in readable)

    @cached_property
    def has_node_id(self) -> bool:
        """Whether rows have node ids: the role reads the whole key."""
        return self.key == self._catalog.primary_key(self.table)

    @cached_property
    def columns(self) -> tuple[ColumnField, ...]:
        """The readable columns that have a GraphQL type and a valid name."""
        return self._columns_with("SELECT")

    @cached_property
    def insertable(self) -> tuple[ColumnField, ...]:
        """The columns that an insert may set."""
        return self._writable("INSERT") if self.table.insertable else ()

    @cached_property
    def allows_batches(self) -> bool:
        """Whether many rows can be inserted as one value: the role may name the types of all columns."""
        nested = "nestedInserts" in self.schema_features
        return not nested and all(self.type_name(field) is not None for field in self.insertable)

    def type_name(self, field: ColumnField) -> str | None:
        """Return the SQL name of a column's type (a domain's base), None when the role may not name it."""
        if field.mapping.parameter != "unknown":
            return field.mapping.parameter
        found = self._catalog.types[field.column.type]
        if found.kind is TypeKind.DOMAIN:
            found = self._catalog.types[found.base]
        return qualified(found) if self._role.privileges.can_use_schema(found.schema) else None

    @cached_property
    def updatable(self) -> tuple[ColumnField, ...]:
        """The columns that an update may set."""
        return self._writable("UPDATE") if self.table.updatable else ()

    @cached_property
    def deletable(self) -> bool:
        """Whether the role may delete rows."""
        return self.table.deletable and self._role.privileges.can_whole(self.table, "DELETE")

    @property
    def _names(self) -> FieldNames:
        return self._role.names.fields(self.table.oid)

    def _input_name(self, field: str) -> str:
        return self._names.other_inputs.get(field, field)

    def _columns_with(self, privilege: str) -> tuple[ColumnField, ...]:
        """Return the columns that the role has a privilege on and GraphQL a type and a name for."""
        allowed = self._role.privileges.columns(self.table, privilege)
        names = self._names
        fields = []
        for column in self.table.columns:
            if column.name not in allowed or column.name not in names.inputs:
                continue
            mapping = mapping_of(self._catalog, column.type, column.typmod)
            if mapping is not None and self._role.shows(mapping):
                description = self._catalog.directives.column(self.table.oid, column.name).description
                name, field = names.inputs[column.name], names.columns[column.name]
                fields.append(ColumnField(name, field, column, mapping, description))
        return tuple(fields)

    def _writable(self, privilege: str) -> tuple[ColumnField, ...]:
        """Return the columns that the role may write."""
        names = self.table.updatable_columns
        return tuple(
            field
            for field in self._columns_with(privilege)
            if not field.column.generated and field.column.identity != "a"
            if names is None or field.column.name in names
        )

    @cached_property
    def columns_by_name(self) -> dict[str, ColumnField]:
        """The readable columns by their name in input types and aggregates."""
        return {field.name: field for field in self.columns}

    @cached_property
    def fields_by_column(self) -> dict[str, ColumnField]:
        """The readable columns by their SQL names."""
        return {field.column.name: field for field in self.columns}

    @cached_property
    def orderable_columns(self) -> tuple[ColumnField, ...]:
        """The readable columns to order and group by."""
        return tuple(column for column in self.columns if column.mapping.orderable)

    def columns_for(self, aggregate: str) -> tuple[ColumnField, ...]:
        """Return the readable columns that an aggregate such as ``sum`` applies to."""
        return tuple(column for column in self.columns if column.mapping.allows(aggregate))

    @cached_property
    def fields_by_name(self) -> dict[str, ColumnField | ComputedField | RelatedField]:
        """The fields of the object type by name, without ``nodeId``."""
        return {
            **{column.field: column for column in self.columns},
            **{field.name: field for field in self._others},
        }

    @cached_property
    def others_by_input(self) -> dict[str, ComputedField | RelatedField]:
        """The fields that are no columns by their names in input types, where features add them."""
        return {field.input_name: field for field in self._others}

    @property
    def _others(self) -> tuple[ComputedField | RelatedField, ...]:
        return (*self.computed, *self.related)

    @cached_property
    def computed(self) -> tuple[ComputedField, ...]:
        """The computed fields of scalar, enum and array types whose functions the role may execute."""
        fields = []
        for function, name in self._executable():
            mapping = None if function.returns_set else mapping_of(self._catalog, function.returns)
            if mapping is not None and self._role.shows(mapping):
                description = self._catalog.directives.function(function.oid).description
                fields.append(ComputedField(name, self._input_name(name), function, mapping, description))
        return tuple(fields)

    def _executable(self) -> Iterator[tuple[Function, str]]:
        # A function is passed the whole row, for which PostgreSQL requires SELECT on every column.
        readable = self._role.privileges.columns(self.table, "SELECT")
        if not readable.issuperset(column.name for column in self.table.columns):
            return
        for function, name in self._names.computed:
            if self._role.privileges.can_execute(function):
                yield function, name

    @cached_property
    def related(self) -> tuple[RelatedField, ...]:
        """The relationships to tables that the role sees."""
        by_key = (self._by_key(relationship, name) for relationship, name in self._names.relationships)
        computed = (self._by_function(function, name) for function, name in self._executable())
        return tuple(field for field in (*by_key, *computed) if field is not None)

    def _by_key(self, relationship: KeyRelationship, name: str) -> RelatedField | None:
        target = self._role.table(relationship.target.oid)
        if target is None:
            return None
        own = self._role.privileges.columns(self.table, "SELECT")
        theirs = self._role.privileges.columns(target.table, "SELECT")
        if not all(mine in own and other in theirs for mine, other in relationship.pairs):
            return None
        found = relationship.outgoing and self._role.non_null and self._always_found(relationship, target)
        return RelatedField(
            name,
            self._input_name(name),
            target.table.oid,
            relationship.to_one,
            pairs=tuple((other, mine) for mine, other in relationship.pairs),
            outgoing=relationship.outgoing,
            unique=relationship.to_one and target.table.is_unique(other for _, other in relationship.pairs),
            disjoint=self.table.is_unique(mine for mine, _ in relationship.pairs),
            nullable=not found,
        )

    def _always_found(self, relationship: KeyRelationship, target: TableView) -> bool:
        """Whether each row has a target (docs/reference/graphql.md, Relationships)."""
        columns = [self.table.column(own) for own, _ in relationship.pairs]
        not_null = all(column is not None and not column.nullable for column in columns)
        return relationship.foreign_key.validated and not_null and not target.table.row_security

    def _by_function(self, function: Function, name: str) -> RelatedField | None:
        target = self._role.table_of_type(function.returns)
        if target is None:
            return None
        return RelatedField(
            name,
            self._input_name(name),
            target.table.oid,
            function.gives_one_row,
            function=function,
            unique=not function.returns_set,
            description=self._catalog.directives.function(function.oid).description,
        )

    def target(self, related: RelatedField) -> TableView:
        """Return the view of a relationship's target."""
        found = self._role.table(related.target)
        assert found is not None, "the role sees the targets of relationships"
        return found

    def related_rows(self, related: RelatedField, where: Condition | None = None) -> Rows:
        """Return the rows that are related to the row in scope."""
        target = self.target(related).table
        if related.function is None:
            return Rows(target, join=Join(related.pairs), where=where, unique=related.unique)
        call = FunctionCall(related.function, of_row=True)
        return Rows(target, call=call, where=where, unique=related.unique)

    @cached_property
    def insertable_relations(self) -> tuple[tuple[RelatedField, TableView], ...]:
        """The relationships by key over which rows can be inserted together with this table's."""
        by_key = [(field, self.target(field)) for field in self.related if field.function is None]
        return tuple((field, target) for field, target in by_key if target.insertable)

    @cached_property
    def max_rows(self) -> int:
        """The page cap: the table's, else the schema's, else the configured one, else 30."""
        schema = self._catalog.directives.schema(self.table.schema)
        return self.directives.max_rows or schema.max_rows or self._role.max_rows or DEFAULT_MAX_ROWS

    @cached_property
    def key_is_unique(self) -> bool:
        """Whether PostgreSQL itself keeps the key unique; that of a view is only declared."""
        return self.table.is_unique(self.key)

    @cached_property
    def key_order(self) -> tuple[OrderTerm, ...]:
        """The order by key, ascending, that ends every order."""
        columns = filter(None, map(self.table.column, self.key))
        return tuple(OrderTerm(ColumnOf(column.name), nullable=column.nullable) for column in columns)

    @cached_property
    def key_types(self) -> tuple[str, ...]:
        """The slot types of the key columns, ``unknown`` for one without a GraphQL type or name."""
        fields = (self.fields_by_column.get(name) for name in self.key)
        return tuple("unknown" if field is None else field.mapping.parameter for field in fields)

    @cached_property
    def by_key(self) -> tuple[ColumnField, ...]:
        """The key's fields in key order, empty when the table has no ``ByPk`` field."""
        fields = tuple(self.fields_by_column[name] for name in self.key if name in self.fields_by_column)
        whole = self.has_node_id and len(fields) == len(self.key)
        return fields if whole and is_looked_up_by_key(self._catalog, self.table) else ()
