"""An immutable snapshot of a database's schema, and the privileges of its roles.

A request uses the snapshot that it started with. ``Privileges`` applies PostgreSQL's rules lazily, because a
role rarely uses a whole large database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from dataapi.catalog.directives import Directives
from dataapi.catalog.registry import EnumType, NameRegistry, TableType
from dataapi.database.sql_text import OWN_SCHEMA

Acl = tuple[tuple[int, frozenset[str]], ...]
"""Grants on an object: pairs of the grantee's OID (0 for PUBLIC) and privileges such as ``SELECT``."""


class TableKind(Enum):
    """``pg_class.relkind`` of relations that the APIs expose as tables."""

    ORDINARY = "r"
    PARTITIONED = "p"
    VIEW = "v"
    MATERIALIZED_VIEW = "m"
    FOREIGN = "f"


class TypeKind(Enum):
    """``pg_type.typtype``, with arrays as their own kind."""

    BASE = "b"
    ARRAY = "A"
    ENUM = "e"
    DOMAIN = "d"
    COMPOSITE = "c"
    RANGE = "r"
    MULTIRANGE = "m"
    PSEUDO = "p"


class Volatility(Enum):
    """``pg_proc.provolatile``."""

    IMMUTABLE = "i"
    STABLE = "s"
    VOLATILE = "v"


@dataclass(frozen=True, slots=True)
class QualifiedName:
    """A schema-qualified name."""

    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema of the search path."""

    oid: int
    name: str
    comment: str | None
    acl: Acl


@dataclass(frozen=True, slots=True)
class Type:
    """A data type used by a column, an argument or a result.

    :ivar element: OID of an array's element type, else 0.
    :ivar base: OID of a domain's base type (never a domain), else 0.
    :ivar relation: ``pg_class`` OID of a composite type, else 0.
    :ivar category: ``typcategory``, such as ``N`` for numbers or ``S`` for strings; a domain has its base
        type's category.
    :ivar members: attributes of a composite type that is not the row type of a table in the catalog.
    :ivar subtype: OID of a range's element type, else 0.
    :ivar sql_name: output of ``format_type`` without a modifier, such as ``character varying[]`` or
        ``api.mood``; schema-qualified except for ``pg_catalog``.
    :ivar default: SQL text of a domain's default, or None.
    :ivar operators: names of operators and aggregates created with an extension's type. Empty for built-in
        types.
    """

    oid: int
    schema: str
    name: str
    kind: TypeKind
    element: int = 0
    base: int = 0
    relation: int = 0
    labels: tuple[str, ...] = ()
    comment: str | None = None
    acl: Acl = ()
    category: str = ""
    members: tuple[ResultColumn, ...] = ()
    subtype: int = 0
    sql_name: str = ""
    default: str | None = None
    operators: frozenset[str] = frozenset()

    def schema_of(self, name: str) -> str:
        return self.schema if name in self.operators else OWN_SCHEMA


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table or view.

    :ivar number: ``attnum``.
    :ivar type: OID of the type.
    :ivar typmod: ``atttypmod``, or the modifier of the column's domain; -1 for none.
    :ivar nullable: False for NOT NULL columns, primary keys and NOT NULL domains.
    :ivar default: SQL text of the default; None if there is none, and for generated columns.
    :ivar generated: whether the column is ``generated always as (…)``.
    :ivar identity: "a" for ALWAYS, "d" for BY DEFAULT, "" for none.
    :ivar sql_name: type with its modifier, such as ``public.geometry(Point,4326)``, or None for built-in
        types and types without a modifier.
    :ivar comparison_schema: schema of the operators that compare the column's values.
    """

    name: str
    number: int
    type: int
    typmod: int
    nullable: bool
    default: str | None
    generated: bool
    identity: str
    comment: str | None
    acl: Acl
    sql_name: str | None = None
    comparison_schema: str = OWN_SCHEMA


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """Columns of a primary key, a unique constraint or a non-partial unique index.

    :ivar constraint: whether ``on conflict on constraint`` can name the key.
    """

    name: str
    columns: tuple[str, ...]
    constraint: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table, view, materialized view, foreign table or partitioned table.

    :ivar columns: ordered by ``attnum``, without dropped columns.
    :ivar primary_key: column names in key order, empty if there is no key (a directive may declare one).
    :ivar unique_keys: primary key first, if any.
    :ivar insertable: whether INSERT is possible (``pg_relation_is_updatable`` for views).
    :ivar updatable_columns: writable columns of a view, None if all columns are writable.
    :ivar partition_of: OID of a partition's parent, which need not be exposed; else 0.
    :ivar inherited: whether other tables inherit from this table. Reading this table also returns their rows.
    :ivar large: whether statistics suggest that an index lookup is cheaper than a sequential scan.
    :ivar estimated_rows: the planner's row estimate, or an upper bound from the table's size if the table was
        never analyzed; None for views and foreign tables.
    :ivar distributed_by: Citus's distribution column; "" for Citus tables that have none (reference tables),
        None for local tables.
    :ivar colocated: Citus's colocation group, 0 for reference tables, None for others.
    """

    oid: int
    schema: str
    name: str
    kind: TableKind
    type: int
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    unique_keys: tuple[UniqueKey, ...]
    row_security: bool
    insertable: bool
    updatable: bool
    deletable: bool
    updatable_columns: frozenset[str] | None
    comment: str | None
    owner: int
    acl: Acl
    partition_of: int = 0
    inherited: bool = False
    large: bool = False
    estimated_rows: int | None = None
    distributed_by: str | None = None
    colocated: int | None = None

    def is_unique(self, columns: Iterable[str]) -> bool:
        covered = frozenset(columns)
        return not self.inherited and any(covered.issuperset(key.columns) for key in self.unique_keys)

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key between two tables of the catalog.

    A key that a partition inherits is included only if the partitioned table is not exposed.

    :ivar unique: whether a unique key covers the referencing columns, so that the relationship is one-to-one.
    :ivar declared: whether a directive declares the key. Its name is then generated.
    :ivar validated: whether PostgreSQL guarantees the key for all rows. False for declared keys, keys of
        views, and NOT VALID or NOT ENFORCED constraints.
    """

    name: str
    table: int
    columns: tuple[str, ...]
    foreign_table: int
    foreign_columns: tuple[str, ...]
    unique: bool
    comment: str | None
    declared: bool = False
    validated: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """An input argument. ``name`` is "" if the argument is unnamed, ``default`` is None if required."""

    name: str
    type: int
    default: str | None
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a function's result (``table (…)`` or OUT arguments), or a composite type's attribute."""

    name: str
    type: int


@dataclass(frozen=True, slots=True)
class Function:
    """A function in an exposed schema. Procedures, aggregates, window and trigger functions are excluded.

    :ivar returns: OID of the result type.
    :ivar rows: the planner's row estimate. ``rows 1`` marks a to-one computed relationship.
    :ivar columns: OUT and TABLE columns.
    :ivar settings: names and values of its ``set`` clauses.
    """

    oid: int
    schema: str
    name: str
    arguments: tuple[Argument, ...]
    returns: int
    returns_set: bool
    rows: float
    columns: tuple[ResultColumn, ...]
    volatility: Volatility
    settings: tuple[tuple[str, str], ...]
    comment: str | None
    acl: Acl

    @property
    def returns_one_row(self) -> bool:
        return not self.returns_set or self.rows == 1


@dataclass(frozen=True, slots=True)
class Role:
    """A role that the daemon's login role can ``set role`` to.

    :ivar grantees: OIDs of the roles whose grants this role has: itself, PUBLIC (0) and the roles that it
        inherits from, including ``pg_read_all_data`` and ``pg_write_all_data``.
    :ivar settings: names and values from ``alter role … set``, which ``set role`` does not apply.
    """

    oid: int
    name: str
    superuser: bool
    grantees: frozenset[int]
    settings: tuple[tuple[str, str], ...]
    login: bool = False

    @property
    def forbidden_kind(self) -> str | None:
        """Property that forbids requests to run as this role, such as "a superuser", or None."""
        if self.login:
            return "the login role of db-uri"
        return "a superuser" if self.superuser else None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that an operator should fix or know about, such as an ignored directive.

    A clash of GraphQL names may be intentional. ``place`` is the name of the object, from
    ``describe_object``.
    """

    place: str
    message: str
    clash: bool = False


def describe_object(item: Table | Type | Function | Column | ForeignKey, table: Table | None = None) -> str:
    """Return the name of an object for messages. ``table`` is required for a column or foreign key."""
    if isinstance(item, Column | ForeignKey):
        assert table is not None
        if isinstance(item, Column):
            return f"column {table.schema}.{table.name}.{item.name}"
        return f"foreign key {item.name} of {describe_object(table)}"
    kind = {Table: "table", Type: "enum", Function: "function"}[type(item)]
    return f"{kind} {item.schema}.{item.name}"


@dataclass(frozen=True, slots=True)
class MediaHandler:
    """An aggregate in an exposed schema that turns rows into a media type.

    Its result is a domain named after the media type. ``table`` is the OID of the table whose rows it
    accepts, 0 for any rows.
    """

    media_type: str
    schema: str
    name: str
    table: int
    type: int
    acl: Acl


@dataclass(frozen=True, slots=True)
class Catalog:
    """A snapshot of the exposed part of a database.

    :ivar generation: incremented by each reload.
    :ivar search_path: names of the exposed schemas in order (``db-schemas``).
    :ivar types: by OID, including all types used by columns, arguments and results.
    :ivar tables: by OID.
    :ivar features: features of all tables, from ``graphql-features``.
    :ivar view_keys: foreign keys that views derive from their underlying tables (see
        ``relationships.ViewKeys``); ``unique`` is true if the constraint's columns are unique.
    :ivar view_primary_keys: columns of a view that contain its underlying tables' primary keys, by view OID.
    :ivar representations: functions of implicit casts between a domain and json or text, by the OIDs of
        source and target.
    :ivar media_handlers: ordered by schema and name.
    :ivar timezones: valid names for ``set timezone``.
    :ivar content: digest of the reflected data without time zones, empty if the catalog was not reflected.
    :ivar read_all: OID of ``pg_read_all_data``, 0 before PostgreSQL 14.
    :ivar write_all: OID of ``pg_write_all_data``, 0 before PostgreSQL 14.
    :ivar clustered: whether the database has Citus tables, exposed or not.
    :ivar postgis: schema of the PostGIS extension, or None.
    :ivar timeout_matters: whether a function mentions ``statement_timeout``, or may catch ``query_canceled``.
    :ivar defers_triggers: whether a trigger or constraint is initially deferred. Commits then run triggers,
        and ``statement_timeout`` does not limit a commit.
    """

    generation: int
    search_path: tuple[str, ...]
    schemas: Mapping[str, Schema]
    types: Mapping[int, Type]
    tables: Mapping[int, Table]
    foreign_keys: tuple[ForeignKey, ...]
    functions: tuple[Function, ...]
    roles: Mapping[str, Role]
    read_all: int = 0
    write_all: int = 0
    problems: tuple[Problem, ...] = ()
    directives: Directives = field(default_factory=Directives)
    features: frozenset[str] = frozenset()
    registry: NameRegistry = field(default_factory=NameRegistry)
    view_keys: tuple[ForeignKey, ...] = ()
    view_primary_keys: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    representations: Mapping[tuple[int, int], QualifiedName] = field(default_factory=dict)
    media_handlers: tuple[MediaHandler, ...] = ()
    timezones: frozenset[str] = frozenset()
    content: bytes = b""
    clustered: bool = False
    postgis: str | None = None
    timeout_matters: bool = False
    defers_triggers: bool = False

    @property
    def base_names(self) -> Mapping[int, str]:
        return self.registry.base_names

    def name_of_type(self, oid: int, kind: TableType | EnumType) -> str | None:
        usual = self.registry.base_names[oid] + kind
        is_owner = self.registry.types.get(usual) == (oid, kind)
        return usual if is_owner else self.registry.renamed.get((oid, kind))

    def has_same_content(self, other: Catalog | None) -> bool:
        """Whether values derived from the other catalog are valid for this catalog."""
        return self is other or (other is not None and self.content != b"" and self.content == other.content)

    def primary_key(self, table: Table) -> tuple[str, ...]:
        return table.primary_key or self.directives.table(table.oid).primary_key_columns

    def base_type(self, type_: Type) -> Type:
        return self.types[type_.base] if type_.base else type_

    def stored_key(self, table: Table) -> tuple[str, ...]:
        """Return the primary key in PostgreSQL's catalog. Views derive it from their underlying tables."""
        return table.primary_key or self.view_primary_keys.get(table.oid, ())

    def row_key(self, table: Table) -> tuple[str, ...]:
        return self.primary_key(table) or self.stored_key(table)


_READ_ALL = frozenset({"SELECT"})
_WRITE_ALL = frozenset({"INSERT", "UPDATE", "DELETE"})
_COLUMN_PRIVILEGES = frozenset({"SELECT", "INSERT", "UPDATE", "REFERENCES"})


@dataclass(frozen=True, slots=True)
class _Grants:
    whole: frozenset[str]
    columns: tuple[tuple[str, frozenset[str]], ...]


class Privileges:
    """A role's privileges on the objects of a catalog.

    PostgreSQL also requires USAGE on the schema. Only ``can_use_schema`` checks that.

    :raises LookupError: if the login role cannot assume the role.
    """

    def __init__(self, catalog: Catalog, role_name: str) -> None:
        role = catalog.roles.get(role_name)
        if role is None:
            raise LookupError(f"The login role is not allowed to assume the role {role_name!r}.")
        self._catalog = catalog
        self._role = role
        self._reads_all = catalog.read_all in role.grantees if catalog.read_all else False
        self._writes_all = catalog.write_all in role.grantees if catalog.write_all else False
        self._tables: dict[int, _Grants] = {}
        self._columns: dict[tuple[int, str], frozenset[str]] = {}

    @property
    def role(self) -> str:
        return self._role.name

    def can_use_schema(self, name: str) -> bool:
        schema = self._catalog.schemas.get(name)
        return schema is not None and (
            self._reads_all or self._writes_all or self._has_privilege(schema.acl, "USAGE")
        )

    def can(self, table: Table, privilege: str) -> bool:
        grants = self._grants(table)
        return privilege in grants.whole or any(privilege in words for _, words in grants.columns)

    def has_table_privilege(self, table: Table, privilege: str) -> bool:
        return privilege in self._grants(table).whole

    def columns(self, table: Table, privilege: str) -> frozenset[str]:
        names = self._columns.get((table.oid, privilege))
        if names is None:
            grants = self._grants(table)
            if privilege in grants.whole & _COLUMN_PRIVILEGES:
                names = frozenset(column.name for column in table.columns)
            else:
                names = frozenset(name for name, words in grants.columns if privilege in words)
            self._columns[table.oid, privilege] = names
        return names

    def can_execute(self, function: Function | MediaHandler) -> bool:
        return self._has_privilege(function.acl, "EXECUTE")

    def can_use_type(self, oid: int) -> bool:
        """Whether the role may use a type. Arrays have the privileges of their elements."""
        type_ = self._catalog.types[oid]
        if type_.kind is TypeKind.ARRAY:
            return self.can_use_type(type_.element)
        return self._has_privilege(type_.acl, "USAGE")

    def _has_privilege(self, acl: Acl, privilege: str) -> bool:
        if self._role.superuser:
            return True
        grantees = self._role.grantees
        return any(privilege in words for grantee, words in acl if grantee in grantees)

    def _grants(self, table: Table) -> _Grants:
        grants = self._tables.get(table.oid)
        if grants is None:
            grants = self._tables[table.oid] = self._find_grants(table)
        return grants

    def _find_grants(self, table: Table) -> _Grants:
        if self._role.superuser:
            return _Grants(_COLUMN_PRIVILEGES | {"DELETE", "TRUNCATE", "TRIGGER", "MAINTAIN"}, ())
        whole = self._privileges_in(table.acl)
        if self._reads_all:
            whole |= _READ_ALL
        if self._writes_all:
            whole |= _WRITE_ALL
        columns = [(column.name, self._privileges_in(column.acl)) for column in table.columns if column.acl]
        return _Grants(whole, tuple(columns))

    def _privileges_in(self, acl: Acl) -> frozenset[str]:
        grantees = self._role.grantees
        return frozenset().union(*(words for grantee, words in acl if grantee in grantees))


def executable_by_any_role(catalog: Catalog) -> Callable[[Function], bool]:
    roles = [role for role in catalog.roles.values() if not role.login]
    if any(role.superuser for role in roles):
        return lambda _function: True
    grantees: frozenset[int] = frozenset().union(*(role.grantees for role in roles))
    return lambda function: any("EXECUTE" in words and grantee in grantees for grantee, words in function.acl)
