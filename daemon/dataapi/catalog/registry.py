"""The names of a GraphQL schema and their owners; pure.

``allocation`` allocates all of them before any is used.  A name is looked up here and never taken apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum


class TableType(StrEnum):
    """The types of a table, with what follows the table's name in the usual name of each."""

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
        """Return the type of an aggregate's field such as ``sum`` or ``countDistinct``."""
        return cls(f"{aggregate[0].upper()}{aggregate[1:]}AggregateResult")

    @classmethod
    def having(cls, aggregate: str) -> TableType:
        """Return the type of the conditions on an aggregate such as ``sum`` or ``countDistinct``."""
        return cls(f"{aggregate[0].upper()}{aggregate[1:]}Having")


class EnumType(StrEnum):
    """The types of an enum, with what follows the enum's name in the usual name of each."""

    ENUM = ""
    FILTER = "Filter"
    LIST_FILTER = "ListFilter"


class TableFieldKind(Enum):
    """The root fields of a table: the text before and after the table's name."""

    COLLECTION = "", "Collection"
    BY_KEY = "", "ByPk"
    INSERT = "insertInto", "Collection"
    UPDATE = "update", "Collection"
    DELETE = "deleteFrom", "Collection"


SUBSCRIPTION = "Subscription"
"""The usual name of the root type of subscriptions."""

FEATURE_OF_SHARED_TYPE = {
    SUBSCRIPTION: "subscriptions",
    "JSONFilter": "jsonFilters",
    "JSONPathFilter": "jsonFilters",
    "StringSearchFilter": "fullText",
    "TextSearch": "fullText",
}
"""The types that a feature adds to the schema as a whole, by their usual names."""

TypeOwner = tuple[int, TableType | EnumType]
"""What a type is made for: the oid of a table or an enum, and which of its types it is."""


@dataclass(frozen=True, slots=True)
class NameRegistry:
    """Every name of the types and root fields of a schema, whatever a role may see of it.

    :ivar base_names: the name of the object type of a table with a key, or of an enum, by oid. Tables and
        enums without a valid name are absent.
    :ivar types: the owner of each type by name, except for types that every schema has.
    :ivar renamed: the names of types whose usual names are taken.
    :ivar shared: the names of the types that features add to the schema as a whole, by their usual names.
    :ivar queries, mutations: the root fields of tables by name, each with the oid of its table.
    :ivar functions: the names of the root fields of functions by oid.
    """

    base_names: Mapping[int, str] = field(default_factory=dict)
    types: Mapping[str, TypeOwner] = field(default_factory=dict)
    renamed: Mapping[TypeOwner, str] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    queries: Mapping[str, tuple[TableFieldKind, int]] = field(default_factory=dict)
    mutations: Mapping[str, tuple[TableFieldKind, int]] = field(default_factory=dict)
    functions: Mapping[int, str] = field(default_factory=dict)
