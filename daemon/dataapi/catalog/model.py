"""What a database holds, as an immutable snapshot, and what one role may do with it; pure.

A ``Catalog`` is built once per reload from one reflection query and never changes; a request uses the
snapshot that it started with.  ``Privileges`` decides as PostgreSQL does, at the first question, so that a
large database costs a role only what it uses.  Nothing here knows how directives are written
(``directive_reader``) or API names (``names``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from dataapi.catalog.directives import Directives
from dataapi.catalog.registry import EnumType, NameRegistry, TableType
from dataapi.database.sql_text import OWN_SCHEMA

Acl = tuple[tuple[int, frozenset[str]], ...]
"""Grants of one object: pairs of a grantee's oid (0 for PUBLIC) and privilege words such as ``SELECT``."""


class TableKind(Enum):
    """``pg_class.relkind`` of what both APIs expose as a table."""

    ORDINARY = "r"
    PARTITIONED = "p"
    VIEW = "v"
    MATERIALIZED_VIEW = "m"
    FOREIGN = "f"


class TypeKind(Enum):
    """``pg_type.typtype``, arrays apart."""

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
    """A name in a schema."""

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
    """A data type that some column, argument or result uses.

    :ivar element: the element type's oid for an array, else 0.
    :ivar base: the type a domain is over (itself never a domain), else 0.
    :ivar relation: the table's or composite's ``pg_class`` oid for a composite, else 0.
    :ivar category: ``typcategory``, such as ``N`` for numbers or ``S`` for texts; a domain has its base's.
    :ivar members: the attributes of a composite whose relation is not among the catalog's tables.
    :ivar subtype: the element type's oid for a range, else 0.
    :ivar sql_name: as ``format_type`` writes it without a modifier, such as ``character varying[]`` or
        ``api.mood``; schemas other than ``pg_catalog`` are always named.
    :ivar default: a domain's own default as SQL text, or None.
    :ivar operators: names of the operators and aggregates of its values that came with it; those of
        PostgreSQL's own types are not listed.
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
        """Return the schema of the operator or aggregate that a name means for its values."""
        return self.schema if name in self.operators else OWN_SCHEMA


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table or view.

    :ivar number, type: ``attnum`` and the type's oid.
    :ivar typmod: ``atttypmod``, or the one that the column's domain sets; -1 for none.
    :ivar nullable: False for NOT NULL, primary keys and domains with NOT NULL.
    :ivar default: the default's SQL text; None without one, and for generated columns.
    :ivar generated: ``generated always as (…)``.
    :ivar identity: "" for none, "a" for ALWAYS, "d" for BY DEFAULT.
    :ivar sql_name: the type with its modifier, such as ``public.geometry(Point,4326)``, where that type is
        not PostgreSQL's own and has one; else None.
    :ivar comparison_schema: that of the operators that compare its values.
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
    """Columns that a primary key, unique constraint or unpredicated unique index of that name covers.

    :ivar constraint: whether it is a constraint that ``on conflict on constraint`` can name.
    """

    name: str
    columns: tuple[str, ...]
    constraint: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table, view, materialized view, foreign table or partitioned parent.

    :ivar columns: in ``attnum`` order, dropped ones left out.
    :ivar primary_key: column names in key order; empty without one (a directive may declare it).
    :ivar unique_keys: the primary key first, if any.
    :ivar insertable, updatable, deletable: what ``pg_relation_is_updatable`` allows; tables take all.
    :ivar updatable_columns: for views, the columns that take writes; None when all do.
    :ivar partition_of: the partitioned parent's oid for a partition, else 0; the parent need not be exposed.
    :ivar inherited: whether other tables inherit from it, whose rows are read with its own.
    :ivar large: whether PostgreSQL would rather use an index than read all rows to find one, by its
        statistics at reflection; False where there were none.
    :ivar estimated_rows: the planner's estimate at reflection of what reading the table gives, or by its size
        where it was never analyzed; None for views and foreign tables.
    :ivar distributed_by: the column by which Citus distributes the rows, "" where it holds the table without
        one, such as a reference table; None for tables of PostgreSQL alone.
    :ivar colocated: the group of tables of which Citus has the rows of one value on one server; 0 for a
        reference table, which every server has, None for all others.
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
        """Whether PostgreSQL itself sees to it that no two rows that are read have the same values there."""
        covered = frozenset(columns)
        return not self.inherited and any(covered.issuperset(key.columns) for key in self.unique_keys)

    def column(self, name: str) -> Column | None:
        """Return the column of that name, or None."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key between two tables of the catalog.

    A partition's copies of its parent's keys are left out unless the parent is not exposed.

    :ivar table, foreign_table: oids of the referencing and the referenced table.
    :ivar unique: a unique key covers the referencing columns: the relationship is one-to-one.
    :ivar declared: a directive says so and PostgreSQL does not know it; its name is made up.
    :ivar validated: PostgreSQL vouches for every row; False for a key that is declared, between views,
        NOT VALID or NOT ENFORCED.
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
    """An input argument of a function: a nameless one is named "", a required one has no default."""

    name: str
    type: int
    default: str | None
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a function that returns ``table (…)`` or has OUT arguments, or of a composite type."""

    name: str
    type: int


@dataclass(frozen=True, slots=True)
class Function:
    """A function of an exposed schema; procedures, aggregates, window and trigger functions are left out.

    :ivar returns: the result type's oid.
    :ivar returns_set: ``returns setof`` or ``returns table``.
    :ivar rows: the planner's row estimate (``rows 1`` marks a to-one computed relationship).
    :ivar columns: OUT and TABLE columns.
    :ivar settings: its ``set`` clauses, ``(name, value)``.
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
    def gives_one_row(self) -> bool:
        """Whether a call gives one row at most, by itself or by its ``rows 1``."""
        return not self.returns_set or self.rows == 1


@dataclass(frozen=True, slots=True)
class Role:
    """A role that the daemon's login role may assume.

    :ivar grantees: oids whose grants it has: itself, PUBLIC (0) and inherited memberships;
        members of ``pg_read_all_data`` and ``pg_write_all_data`` have those roles' oids here too.
    :ivar settings: ``alter role … set``, ``(name, value)``, which ``set role`` alone would not apply.
    :ivar login: the daemon's login role itself.
    """

    oid: int
    name: str
    superuser: bool
    grantees: frozenset[int]
    settings: tuple[tuple[str, str], ...]
    login: bool = False

    @property
    def excess(self) -> str | None:
        """What makes the role more than requests may run as; None for one that they may."""
        if self.login:
            return "the login role of db-uri"
        return "a superuser" if self.superuser else None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that an operator should know of the database: an ignored directive, or names that clash.

    :ivar place: the object, as ``place_of`` names it.
    :ivar message: what is wrong and what was done about it.
    :ivar clash: it did not get the name in GraphQL that it asks for, which may well be meant so.
    """

    place: str
    message: str
    clash: bool = False


def place_of(thing: Table | Type | Function | Column | ForeignKey, table: Table | None = None) -> str:
    """Return how a ``Problem`` names a thing; a column or a foreign key is named with its table."""
    if isinstance(thing, Column | ForeignKey):
        assert table is not None
        if isinstance(thing, Column):
            return f"column {table.schema}.{table.name}.{thing.name}"
        return f"foreign key {thing.name} of {place_of(table)}"
    kind = {Table: "table", Type: "enum", Function: "function"}[type(thing)]
    return f"{kind} {thing.schema}.{thing.name}"


@dataclass(frozen=True, slots=True)
class MediaHandler:
    """An aggregate of an exposed schema that turns rows into a media type.

    Its result is a domain that is named like the media type.

    :ivar media_type: in small letters; ``*/*`` for any.
    :ivar table: the oid of the table whose rows it takes, or 0 for rows of any.
    :ivar type: the result's oid.
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

    :ivar generation: grows by one at every reload of the process.
    :ivar search_path: the exposed schemas' names in order (``db-schemas``).
    :ivar types, tables: by oid; types include everything that columns, arguments and results use.
    :ivar features: the features of ``graphql-features``, which every table has.
    :ivar registry: the GraphQL names of types and root fields.
    :ivar view_keys: foreign keys that views have by the tables under them, between views or between a view
        and a table (see ``relationships.ViewKeys``); ``unique`` is the constraint's own.
    :ivar view_primary_keys: by view oid, the columns that show the primary keys of the tables under it.
    :ivar representations: by the oids of source and target, the function of an implicit cast from a domain to
        json or text or the other way.
    :ivar media_handlers: in the order of schemas and names.
    :ivar timezones: names that ``set timezone`` knows.
    :ivar content: a digest of what was read, without time zones; empty for a catalog that was made up.
    :ivar read_all, write_all: oids of ``pg_read_all_data`` and ``pg_write_all_data``, 0 before PostgreSQL 14.
    :ivar clustered: whether Citus holds tables of the database, exposed or not.
    :ivar postgis: the schema of the extension PostGIS, None without it.
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

    @property
    def base_names(self) -> Mapping[int, str]:
        """The names of the object types of tables and of enums, by oid."""
        return self.registry.base_names

    def name_of_type(self, oid: int, kind: TableType | EnumType) -> str | None:
        """Return the GraphQL name of a type of a table or an enum, None if there is no such type."""
        usual = self.registry.base_names[oid] + kind
        owned = self.registry.types.get(usual) == (oid, kind)
        return usual if owned else self.registry.renamed.get((oid, kind))

    def is_like(self, other: Catalog | None) -> bool:
        """Whether what was made of the other catalog is right for this one, too."""
        return self is other or (other is not None and self.content != b"" and self.content == other.content)

    def primary_key(self, table: Table) -> tuple[str, ...]:
        """Return the names of the table's key columns, its own or the declared one; empty without either."""
        return table.primary_key or self.directives.table(table.oid).primary_key_columns

    def underlying(self, type_: Type) -> Type:
        """Return the type that a domain is over, any other type itself."""
        return self.types[type_.base] if type_.base else type_

    def stored_key(self, table: Table) -> tuple[str, ...]:
        """Return the primary key's columns that the database itself knows, those that a view shows of one."""
        return table.primary_key or self.view_primary_keys.get(table.oid, ())

    def row_key(self, table: Table) -> tuple[str, ...]:
        """Return the key columns as ``primary_key`` does, for a view without one those that it shows."""
        return self.primary_key(table) or self.stored_key(table)


_READ_ALL = frozenset({"SELECT"})
_WRITE_ALL = frozenset({"INSERT", "UPDATE", "DELETE"})
_COLUMN_PRIVILEGES = frozenset({"SELECT", "INSERT", "UPDATE", "REFERENCES"})


@dataclass(frozen=True, slots=True)
class _Grants:
    """A role's privileges on one table: on the whole of it, and on single columns."""

    whole: frozenset[str]
    columns: tuple[tuple[str, frozenset[str]], ...]


class Privileges:
    """One role's view of a catalog.

    Table, column and function answers leave the schema aside: PostgreSQL asks for USAGE of it
    besides, which is ``can_use_schema``.

    :raises LookupError: the role is not one that the login role may assume.
    """

    def __init__(self, catalog: Catalog, role_name: str) -> None:
        role = catalog.roles.get(role_name)
        if role is None:
            raise LookupError(f"The login role may not assume the role {role_name!r}.")
        self._catalog = catalog
        self._role = role
        self._reads_all = catalog.read_all in role.grantees if catalog.read_all else False
        self._writes_all = catalog.write_all in role.grantees if catalog.write_all else False
        self._tables: dict[int, _Grants] = {}
        self._columns: dict[tuple[int, str], frozenset[str]] = {}

    @property
    def role(self) -> str:
        """The role's name."""
        return self._role.name

    def can_use_schema(self, name: str) -> bool:
        """Whether the role may look into the schema; False for one that is not exposed."""
        schema = self._catalog.schemas.get(name)
        return schema is not None and (
            self._reads_all or self._writes_all or self._holds(schema.acl, "USAGE")
        )

    def can(self, table: Table, privilege: str) -> bool:
        """Whether the role has a privilege such as ``SELECT`` on the table or at least one of its columns."""
        grants = self._grants(table)
        return privilege in grants.whole or any(privilege in words for _, words in grants.columns)

    def can_whole(self, table: Table, privilege: str) -> bool:
        """Whether the role has the privilege on the table itself, as ``DELETE`` needs."""
        return privilege in self._grants(table).whole

    def columns(self, table: Table, privilege: str) -> frozenset[str]:
        """Return the names of the columns that the role has the privilege on.

        :param privilege: ``SELECT``, ``INSERT``, ``UPDATE`` or ``REFERENCES``; nothing for others.
        """
        known = self._columns.get((table.oid, privilege))
        if known is None:
            grants = self._grants(table)
            if privilege in grants.whole & _COLUMN_PRIVILEGES:
                known = frozenset(column.name for column in table.columns)
            else:
                known = frozenset(name for name, words in grants.columns if privilege in words)
            self._columns[table.oid, privilege] = known
        return known

    def can_execute(self, function: Function | MediaHandler) -> bool:
        """Whether the role may call the function or aggregate."""
        return self._holds(function.acl, "EXECUTE")

    def can_use_type(self, oid: int) -> bool:
        """Whether the role may use the type; an array is as its elements are."""
        type_ = self._catalog.types[oid]
        if type_.kind is TypeKind.ARRAY:
            return self.can_use_type(type_.element)
        return self._holds(type_.acl, "USAGE")

    def _holds(self, acl: Acl, privilege: str) -> bool:
        if self._role.superuser:
            return True
        grantees = self._role.grantees
        return any(privilege in words for grantee, words in acl if grantee in grantees)

    def _grants(self, table: Table) -> _Grants:
        known = self._tables.get(table.oid)
        if known is None:
            known = self._tables[table.oid] = self._find_grants(table)
        return known

    def _find_grants(self, table: Table) -> _Grants:
        if self._role.superuser:
            return _Grants(_COLUMN_PRIVILEGES | {"DELETE", "TRUNCATE", "TRIGGER", "MAINTAIN"}, ())
        whole = self._held(table.acl)
        if self._reads_all:
            whole |= _READ_ALL
        if self._writes_all:
            whole |= _WRITE_ALL
        columns = [(column.name, self._held(column.acl)) for column in table.columns if column.acl]
        return _Grants(whole, tuple(columns))

    def _held(self, acl: Acl) -> frozenset[str]:
        grantees = self._role.grantees
        return frozenset().union(*(words for grantee, words in acl if grantee in grantees))


def executable_by_some(catalog: Catalog) -> Callable[[Function], bool]:
    """Return a test whether some role that requests run as may call a function."""
    roles = [role for role in catalog.roles.values() if not role.login]
    if any(role.superuser for role in roles):
        return lambda _function: True
    grantees: frozenset[int] = frozenset().union(*(role.grantees for role in roles))
    return lambda function: any("EXECUTE" in words and grantee in grantees for grantee, words in function.acl)
