"""What ``@graphql(…)`` and ``@rest(…)`` directives in comments say, as values: names, limits, declared keys.

``directive_reader`` reads them; an object without a directive has the defaults here.
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
"""Table keys beyond pg_graphql's, each ``{"enabled": true}``."""

_NAME = re.compile(r"[_A-Za-z][_0-9A-Za-z]*")


def is_graphql_name(text: str) -> bool:
    """Whether GraphQL allows the text as a name of a user's: ``__`` at the start is the language's own."""
    return _NAME.fullmatch(text) is not None and not text.startswith("__")


def is_enum_value(text: str) -> bool:
    """Whether GraphQL allows the text as an enum value."""
    return is_graphql_name(text) and text not in ("true", "false", "null")


@dataclass(frozen=True, slots=True)
class SchemaDirectives:
    """Of a schema: inflection, the page cap (rows, None for the default) and introspection."""

    inflect_names: bool = False
    max_rows: int | None = None
    introspection: bool = False


@dataclass(frozen=True, slots=True)
class DeclaredForeignKey:
    """A foreign key that a directive declares, usually because a view can't have one.

    :ivar local_name: the field on the foreign table's type, or None for the usual name.
    :ivar foreign_name: the field on the declaring table's type, or None for the usual name.
    """

    local_name: str | None
    local_columns: tuple[str, ...]
    foreign_name: str | None
    foreign_schema: str
    foreign_table: str
    foreign_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableDirectives:
    """Of a table, view, materialized view or foreign table.

    :ivar primary_key_columns: the declared key; empty when none was declared or it could not be used.
    :ivar foreign_keys: as declared; those that resolve are in ``Catalog.foreign_keys``.
    :ivar features: keys beyond pg_graphql's that are enabled, such as ``upsert``.
    :ivar rest_max_rows: how many rows a REST answer has at most, by ``@rest({"max_rows": …})``; None
        for the project's limit.
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


@dataclass(frozen=True, slots=True)
class FieldDirectives:
    """Of a column or function: its field's name and description."""

    name: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignKeyDirectives:
    """Of a foreign key constraint: the fields on the referenced and on the referencing table's type."""

    local_name: str | None = None
    foreign_name: str | None = None


@dataclass(frozen=True, slots=True)
class EnumDirectives:
    """Of an enum type; ``mappings`` goes from SQL label to GraphQL value."""

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
    """The directives of a catalog; only objects that have some are in the mappings.

    :ivar schemas: by name.
    :ivar tables: by oid.
    :ivar columns: by table oid and column name.
    :ivar foreign_keys: by referencing table's oid and constraint name, declared ones included.
    :ivar functions, enums: by oid.
    """

    schemas: Mapping[str, SchemaDirectives] = field(default_factory=dict)
    tables: Mapping[int, TableDirectives] = field(default_factory=dict)
    columns: Mapping[tuple[int, str], FieldDirectives] = field(default_factory=dict)
    foreign_keys: Mapping[tuple[int, str], ForeignKeyDirectives] = field(default_factory=dict)
    functions: Mapping[int, FieldDirectives] = field(default_factory=dict)
    enums: Mapping[int, EnumDirectives] = field(default_factory=dict)

    def schema(self, name: str) -> SchemaDirectives:
        """Return the schema's directives, the defaults when it has none."""
        return self.schemas.get(name, _SCHEMA)

    def table(self, oid: int) -> TableDirectives:
        """Return the table's directives, the defaults when it has none."""
        return self.tables.get(oid, _TABLE)

    def column(self, table: int, name: str) -> FieldDirectives:
        """Return the column's directives, the defaults when it has none."""
        return self.columns.get((table, name), _FIELD)

    def foreign_key(self, table: int, name: str) -> ForeignKeyDirectives:
        """Return the constraint's directives, the defaults when it has none."""
        return self.foreign_keys.get((table, name), _FOREIGN_KEY)

    def function(self, oid: int) -> FieldDirectives:
        """Return the function's directives, the defaults when it has none."""
        return self.functions.get(oid, _FIELD)

    def enum(self, oid: int) -> EnumDirectives:
        """Return the enum's directives, the defaults when it has none."""
        return self.enums.get(oid, _ENUM)
