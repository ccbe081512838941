"""The tables that a role may use, and the types of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dataapi.catalog.model import Catalog, Column, Function, Privileges, Table, TableKind, Type
from dataapi.catalog.relationships import Relationships
from dataapi.database.errors import Diagnostics, to_error
from dataapi.database.sql_text import OWN_SCHEMA, qualify_builtins, quote_identifier, quote_literal
from dataapi.http.errors import ApiError
from dataapi.rest.parse.body import form_hint
from dataapi.rest.plan.similar_names import NameIndex, similar
from dataapi.sql.mutations import JsonColumn
from dataapi.sql.statement import qualified


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a relation, with the OID of its type."""

    type: int
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Relation:
    """The table or function that returns rows.

    :ivar alias: name in errors about its columns, None for ``name``.
    :ivar table: table of the rows, None for a function's own result columns.
    :ivar columns: columns by name, in order. None if unknown (``record``).
    """

    schema: str
    name: str
    table: Table | None
    columns: Mapping[str, RelationColumn] | None
    alias: str | None = None

    @classmethod
    def of(cls, table: Table, alias: str | None = None) -> Relation:
        columns = {column.name: RelationColumn(column.type, column.nullable) for column in table.columns}
        return cls(table.schema, table.name, table, columns, alias)


_KINDS = {
    TableKind.ORDINARY: "table",
    TableKind.PARTITIONED: "table",
    TableKind.VIEW: "view",
    TableKind.MATERIALIZED_VIEW: "materialized view",
    TableKind.FOREIGN: "foreign table",
}


class CatalogTables:
    """All tables of a catalog by schema and name, shared by all roles.

    As in PostgREST, partitions are excluded. Their rows are available through the parent table. The parent's
    policies and privileges would not apply to requests for a partition.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.relationships = Relationships(catalog, views=True)
        self.types = Types(catalog)
        self.by_name: Mapping[tuple[str, str], Table] = {
            (table.schema, table.name): table for table in catalog.tables.values() if not table.partition_of
        }
        self._names: dict[str, NameIndex] = {}

    def names(self, schema: str) -> NameIndex:
        if schema not in self._names:
            self._names[schema] = NameIndex(name for in_schema, name in self.by_name if in_schema == schema)
        return self._names[schema]


class RoleTables:
    """The tables of a catalog that one role may use.

    Access to any other table raises PostgreSQL's error, and no hint or ambiguity error mentions that table.
    """

    def __init__(self, tables: CatalogTables, role: str, *, anonymous: bool) -> None:
        self.all = tables
        self._anonymous = anonymous
        self.catalog = tables.catalog
        self.types = tables.types
        self._privileges = Privileges(tables.catalog, role)
        self._usable: dict[tuple[str, str], Table] = {}

    def find(self, schema: str, name: str) -> Table:
        """Return a table.

        :raises ApiError: PGRST205 (404) if there is no such table, 42501 (401, 403) if the role has no
            privilege on it.
        """
        usable = self._usable.get((schema, name))
        if usable is not None:
            return usable
        table = self.all.by_name.get((schema, name))
        if table is not None:
            if not self.may_see(table):
                raise self.denied(table)
            self._usable[schema, name] = table
            return table
        close = self.similar_name(schema, name)
        raise ApiError(
            404,
            "PGRST205",
            f"Could not find the table '{schema}.{name}' in the schema cache",
            hint=f"Perhaps you meant the table '{schema}.{close}'" if close else None,
        )

    def may_see(self, table: Table) -> bool:
        return self._privileges.can_use_schema(table.schema) and any(
            self._privileges.can(table, each) for each in ("SELECT", "INSERT", "UPDATE", "DELETE")
        )

    def may_read_whole(self, table: Table) -> bool:
        """Whether the role may read all columns, including columns added after the catalog was read."""
        return self._privileges.has_table_privilege(table, "SELECT")

    def similar_name(self, schema: str, name: str, *, related: bool = False) -> str | None:
        def is_candidate(other: str) -> bool:
            table = self.all.by_name[schema, other]
            return self.may_see(table) and (not related or bool(self.all.relationships.of(table)))

        return similar(name, self.all.names(schema), allowed=is_candidate)

    def denied(self, table: Table) -> ApiError:
        return denied(self._privileges, _KINDS[table.kind], table, anonymous=self._anonymous)

    def readable(self, relation: Relation) -> list[str]:
        names = list(relation.columns or ())
        if relation.table is None:
            return names
        allowed = self._privileges.columns(relation.table, "SELECT")
        return [name for name in names if name in allowed]

    def computed(self, relation: Relation, name: str) -> Function | None:
        functions = () if relation.table is None else self.all.relationships.functions_of(relation.table)
        return next((each for each in functions if each.name == name and not each.returns_set), None)


class PrivilegeDenied(ApiError):
    """PostgreSQL's permission error, raised because the role lacks a privilege in the catalog.

    The privilege may have been granted since the catalog was read.
    """

    def __init__(self, error: ApiError, item: Table | Function) -> None:
        super().__init__(error.status, error.code, error.message, headers=error.headers)
        self.item = item


def denied(privileges: Privileges, kind: str, item: Table | Function, *, anonymous: bool) -> PrivilegeDenied:
    usable = privileges.can_use_schema(item.schema)
    subject = f"{kind} {item.name}" if usable else f"schema {item.schema}"
    error = to_error(Diagnostics("42501", f"permission denied for {subject}"), anonymous=anonymous)
    return PrivilegeDenied(error, item)


# ---------------------------------------------------------------- types

TEXT, JSON, JSONB, TSVECTOR = 25, 114, 3802, 3614
"""OIDs of built-in types."""


_SQL_NAMES = """
    bigint, bit, bit varying, boolean, char, character, character varying, dec, decimal, double precision,
    float, int, integer, national character varying, real, smallint, time with time zone,
    time without time zone, timestamp with time zone, timestamp without time zone
"""
_SQL = frozenset([" ".join(name.split()) for name in _SQL_NAMES.split(",")])
"""SQL's names of built-in types. They do not depend on the search path.

Fixed-length character and bit types have a default length of one.
"""

_OWN_NAMES = """
    bool bytea int2 int4 int8 float4 float8 numeric money text varchar bpchar name uuid json jsonb xml
    date time timetz timestamp timestamptz interval inet cidr macaddr macaddr8 varbit tsvector tsquery
    point line lseg box path polygon circle int4range int8range numrange tsrange tstzrange daterange
    int4multirange int8multirange nummultirange tsmultirange tstzmultirange datemultirange oid regclass
    regtype regproc regprocedure regoper regoperator regrole regnamespace regconfig regdictionary
    jsonpath pg_lsn tid xid cid xid8
"""
_OWN = frozenset(_OWN_NAMES.split())
"""Names of built-in types that a cast may use, in addition to SQL's names."""


class Types:
    """The types of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._types = catalog.types
        self._schemas = catalog.search_path
        self._representations = catalog.representations
        self._named: dict[tuple[str, str], Type] | None = None

    def cast(self, name: str) -> str:
        """Return the SQL of the type that a cast names. Names are case-insensitive, as in SQL.

        :raises ApiError: 42704 (400) if there is no such type.
        """
        lowered = " ".join(name.lower().split())
        if lowered in _SQL:
            return lowered
        if lowered.removeprefix("_") in _OWN:  # The names of array types start with an underscore.
            return f"{OWN_SCHEMA}.{lowered}"
        type_ = self._in_path(lowered)
        if type_ is not None:
            return qualified(type_)
        element = self._in_path(lowered.removeprefix("_"))
        if element is not None:
            return f"{qualified(element)}[]"
        raise ApiError(400, "42704", f'type "{name}" does not exist')

    def _in_path(self, name: str) -> Type | None:
        if self._named is None:
            self._named = {(type_.schema, type_.name): type_ for type_ in self._types.values()}
        matches = (self._named.get((schema, name)) for schema in self._schemas)
        return next((type_ for type_ in matches if type_ is not None), None)

    def schema_of(self, name: str, oid: int | None) -> str:
        type_ = self._types.get(oid or 0)
        if type_ is not None and type_.base:
            type_ = self._types[type_.base]
        return OWN_SCHEMA if type_ is None else type_.schema_of(name)

    def is_one_of(self, oid: int | None, *own: int) -> bool:
        type_ = self._types.get(oid or 0)
        return oid in own or (type_ is not None and type_.base in own)

    def representation(self, source: int | None, target: int | None) -> str | None:
        name = self._representations.get((source or 0, target or 0))
        return None if name is None else qualified(name)


def known_columns(table: Table, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if table.column(name) is None:
            raise ApiError(400, "42703", f'column "{name}" does not exist')
    return names


def json_column(catalog: Catalog, table: Table, name: str, *, as_text: bool = False) -> JsonColumn:
    """Return the column to write from a JSON member. ``as_text`` is true if JSON values are sent as text.

    :raises ApiError: PGRST204 (400) if the table has no such column.
    """
    column = table.column(name)
    if column is None:
        message = f"Could not find the '{name}' column of '{table.name}' in the schema cache"
        raise ApiError(400, "PGRST204", message, hint=form_hint((name,)))
    default = _default(catalog, table, column)
    from_json = catalog.representations.get((JSON, column.type))
    if from_json is not None:
        return JsonColumn(name, f'{OWN_SCHEMA}."json"', qualified(from_json), default)
    # Read a domain as its base type, because PostgreSQL would also check the domain for missing members. The
    # assignment to the column checks it for the other members.
    type_ = catalog.base_type(catalog.types[column.type])
    if pairs := pairs_type(type_):
        return JsonColumn(name, f'{OWN_SCHEMA}."json"', default=default, pairs=pairs)
    # Avoid SQL's own type names, because some of them imply a length of one.
    own = type_.schema == OWN_SCHEMA
    read_as = f"{OWN_SCHEMA}.{quote_identifier(type_.name)}" if own else qualified(type_)
    if as_text and type_.oid in (JSON, JSONB):
        return JsonColumn(name, f'{OWN_SCHEMA}."text"', default=default, cast=read_as)
    return JsonColumn(name, read_as, default=default)


def pairs_type(type_: Type) -> str:
    """Return the SQL name of a type that is built from a JSON object (``hstore``), "" for other types."""
    return qualified(type_) if type_.name == "hstore" and type_.operators else ""


def _default(catalog: Catalog, table: Table, column: Column) -> str | None:
    if column.generated:
        return None
    if column.identity:
        sequence = f"pg_catalog.pg_get_serial_sequence({quote_literal(qualified(table))}, "
        return f"pg_catalog.nextval({sequence}{quote_literal(column.name)})::regclass)"
    default = column.default or catalog.types[column.type].default
    return None if default is None else qualify_builtins(default)
