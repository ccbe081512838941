"""Values of the ``@graphql(…)`` and ``@rest(…)`` directives in comments.

``directive_reader`` parses them. The defaults here apply to objects without a directive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

FEATURES = (
    "upsert",
    "relationFilters",
    "relationOrder",
    "nestedInserts",
    "groupBy",
    "jsonFilters",
    "fullText",
    "subscriptions",
)
"""Directive keys that pg_graphql does not have, each with the value ``{"enabled": true}``."""

_NAME = re.compile(r"[_A-Za-z][_0-9A-Za-z]*")


def is_graphql_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and not text.startswith("__")


def is_enum_value(text: str) -> bool:
    return is_graphql_name(text) and text not in ("true", "false", "null")


@dataclass(frozen=True, slots=True)
class SchemaDirectives:
    """Directives of a schema. ``max_rows`` is the maximum page size, None for the default."""

    inflect_names: bool = False
    max_rows: int | None = None
    introspection: bool = False


@dataclass(frozen=True, slots=True)
class DeclaredForeignKey:
    """A foreign key declared by a directive, usually for a view.

    :ivar local_name: field on the foreign table's type, None for the default name.
    :ivar foreign_name: field on the declaring table's type, None for the default name.
    """

    local_name: str | None
    local_columns: tuple[str, ...]
    foreign_name: str | None
    foreign_schema: str
    foreign_table: str
    foreign_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableDirectives:
    """Directives of a table, view, materialized view or foreign table.

    :ivar primary_key_columns: columns of the declared key, empty if no valid key is declared.
    :ivar foreign_keys: declared foreign keys. Valid ones are also in ``Catalog.foreign_keys``.
    :ivar rest_max_rows: maximum number of rows in a REST response, from ``@rest({"max_rows": …})``, None for
        the project's limit.
    :ivar rest_cache_control: ``Cache-Control`` of REST reads, from ``@rest({"cache_control": …})``.
    """

    name: str | None = None
    description: str | None = None
    total_count: bool = False
    aggregate: bool = False
    max_rows: int | None = None
    primary_key_columns: tuple[str, ...] = ()
    foreign_keys: tuple[DeclaredForeignKey, ...] = ()
    features: frozenset[str] = frozenset()
    rest_max_rows: int | None = None
    rest_cache_control: str | None = None


@dataclass(frozen=True, slots=True)
class FieldDirectives:
    """Name and description of the field for a column or function."""

    name: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignKeyDirectives:
    """Field names for a foreign key.

    ``local_name`` is a field of the referenced table's type, ``foreign_name`` a field of the referencing
    table's type.
    """

    local_name: str | None = None
    foreign_name: str | None = None


@dataclass(frozen=True, slots=True)
class EnumDirectives:
    """Directives of an enum; ``mappings`` maps labels to GraphQL values."""

    name: str | None = None
    description: str | None = None
    mappings: Mapping[str, str] = field(default_factory=dict)


_SCHEMA = SchemaDirectives()
_TABLE = TableDirectives()
_FIELD = FieldDirectives()
_FOREIGN_KEY = ForeignKeyDirectives()
_ENUM = EnumDirectives()


@dataclass(frozen=True, slots=True)
class Directives:
    """Directives of a catalog. Objects without directives are missing from the mappings.

    Schemas are mapped by name, columns and foreign keys by table OID and name, and all other objects by OID.
    """

    schemas: Mapping[str, SchemaDirectives] = field(default_factory=dict)
    tables: Mapping[int, TableDirectives] = field(default_factory=dict)
    columns: Mapping[tuple[int, str], FieldDirectives] = field(default_factory=dict)
    foreign_keys: Mapping[tuple[int, str], ForeignKeyDirectives] = field(default_factory=dict)
    functions: Mapping[int, FieldDirectives] = field(default_factory=dict)
    enums: Mapping[int, EnumDirectives] = field(default_factory=dict)

    def schema(self, name: str) -> SchemaDirectives:
        return self.schemas.get(name, _SCHEMA)

    def table(self, oid: int) -> TableDirectives:
        return self.tables.get(oid, _TABLE)

    def column(self, table: int, name: str) -> FieldDirectives:
        return self.columns.get((table, name), _FIELD)

    def foreign_key(self, table: int, name: str) -> ForeignKeyDirectives:
        return self.foreign_keys.get((table, name), _FOREIGN_KEY)

    def function(self, oid: int) -> FieldDirectives:
        return self.functions.get(oid, _FIELD)

    def enum(self, oid: int) -> EnumDirectives:
        return self.enums.get(oid, _ENUM)
