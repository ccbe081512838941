"""Names in a GraphQL schema, and the tables, enums and functions that they belong to.

``allocation`` allocates all names up front. Other modules look names up here, and never parse them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum


class TableType(StrEnum):
    """Generated types of a table, by the suffix of their default names."""

    OBJECT = ""
    CONNECTION = "Connection"
    EDGE = "Edge"
    FILTER = "Filter"
    ORDER_BY = "OrderBy"
    INSERT_INPUT = "InsertInput"
    UPDATE_INPUT = "UpdateInput"
    INSERT_RESPONSE = "InsertResponse"
    UPDATE_RESPONSE = "UpdateResponse"
    DELETE_RESPONSE = "DeleteResponse"
    AGGREGATE = "Aggregate"
    SUM_AGGREGATE_RESULT = "SumAggregateResult"
    AVG_AGGREGATE_RESULT = "AvgAggregateResult"
    MIN_AGGREGATE_RESULT = "MinAggregateResult"
    MAX_AGGREGATE_RESULT = "MaxAggregateResult"
    ON_CONFLICT_INPUT = "OnConflictInput"
    CONFLICT_CONSTRAINT = "ConflictConstraint"
    INSERT_COLUMN = "InsertColumn"
    UPDATE_COLUMN = "UpdateColumn"
    COLLECTION_FILTER = "CollectionFilter"
    ROW_FILTER = "RowFilter"
    COLLECTION_ORDER_BY = "CollectionOrderBy"
    MIN_MAX_ORDER_BY = "MinMaxOrderBy"
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

    @classmethod
    def aggregate_result(cls, aggregate: str) -> TableType:
        return cls(f"{aggregate[0].upper()}{aggregate[1:]}AggregateResult")

    @classmethod
    def having(cls, aggregate: str) -> TableType:
        return cls(f"{aggregate[0].upper()}{aggregate[1:]}Having")


class EnumType(StrEnum):
    """GraphQL types generated for a PostgreSQL enum. A value is the suffix of the type's default name."""

    ENUM = ""
    FILTER = "Filter"
    LIST_FILTER = "ListFilter"


class TableFieldKind(Enum):
    """Root fields of a table, by the prefix and suffix of their names."""

    COLLECTION = "", "Collection"
    BY_KEY = "", "ByPk"
    INSERT = "insertInto", "Collection"
    UPDATE = "update", "Collection"
    DELETE = "deleteFrom", "Collection"


SUBSCRIPTION = "Subscription"

FEATURE_OF_SHARED_TYPE = {
    SUBSCRIPTION: "subscriptions",
    "JSONFilter": "jsonFilters",
    "JSONPathFilter": "jsonFilters",
    "StringSearchFilter": "fullText",
    "TextSearch": "fullText",
}
"""Optional feature that adds the type to the schema, by the type's default name."""

TypeOwner = tuple[int, TableType | EnumType]
"""OID of a table or an enum, and the kind of type generated for it."""


@dataclass(frozen=True, slots=True)
class NameRegistry:
    """Names of all types and root fields, regardless of role.

    :ivar base_names: names of the object types of tables that have a key, and of enums, by OID. Tables and
        enums without a valid name are missing.
    :ivar types: the table or enum that a type is generated for, by type name.
    :ivar renamed: names of generated types whose default name is taken.
    :ivar shared: names of the types in ``FEATURE_OF_SHARED_TYPE``, by default name.
    :ivar queries: ``Query`` fields of tables by name, with the table's OID.
    :ivar mutations: ``Mutation`` fields of tables by name, with the table's OID.
    :ivar functions: root fields of functions by function OID.
    """

    base_names: Mapping[int, str] = field(default_factory=dict)
    types: Mapping[str, TypeOwner] = field(default_factory=dict)
    renamed: Mapping[TypeOwner, str] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    queries: Mapping[str, tuple[TableFieldKind, int]] = field(default_factory=dict)
    mutations: Mapping[str, tuple[TableFieldKind, int]] = field(default_factory=dict)
    functions: Mapping[int, str] = field(default_factory=dict)
