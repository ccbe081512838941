"""Builds a ``Catalog`` from the result of the reflection query.

The document maps each part of ``reflection.sql`` to its objects: arrays in the order of the query's columns.
OIDs are strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dataapi.catalog.allocation import allocate_names, name_functions
from dataapi.catalog.directive_reader import read_directives
from dataapi.catalog.media_types import media_type_named
from dataapi.catalog.model import (
    Acl,
    Argument,
    Catalog,
    Column,
    ForeignKey,
    Function,
    MediaHandler,
    Problem,
    QualifiedName,
    ResultColumn,
    Role,
    Schema,
    Table,
    TableKind,
    Type,
    TypeKind,
    UniqueKey,
    Volatility,
)
from dataapi.catalog.names import CatalogNames
from dataapi.catalog.relationships import ViewKeys
from dataapi.database.sql_text import OWN_SCHEMA, is_allowed_setting

Document = Mapping[str, Sequence[Any]]

# Bits in the result of pg_relation_is_updatable.
_UPDATE, _INSERT, _DELETE = 4, 8, 16
_WRITABLE = _UPDATE | _INSERT | _DELETE

ANYELEMENT = 2283
"""OID of ``anyelement``: an aggregate over it accepts rows of any table."""

_INPUT_MODES = ("i", "b", "v")
_OUTPUT_MODES = ("o", "b", "t")

Item = TypeVar("Item")


def build_catalog(
    document: Document,
    generation: int,
    search_path: Sequence[str] = (),
    features: frozenset[str] = frozenset(),
) -> Catalog:
    """Return the catalog that a document describes.

    Configured schemas that do not exist are reported as problems. ``features`` apply to all tables.
    """
    catalog = replace(_Builder(document).catalog(generation, search_path), features=features)
    directives, declared, problems = read_directives(catalog)
    catalog = replace(
        catalog,
        directives=directives,
        foreign_keys=catalog.foreign_keys + declared,
        problems=catalog.problems + problems,
    )
    registry, problems = allocate_names(catalog)
    catalog = replace(catalog, registry=registry)
    names = CatalogNames(catalog)
    for table in filter(catalog.tables.__contains__, catalog.base_names):
        problems += tuple(names.clashes(table))
    return replace(catalog, problems=catalog.problems + problems)


def with_grants(
    catalog: Catalog, role: str, item: Table | Function, memberships: Iterable[Any], lists: Mapping[str, Any]
) -> Catalog:
    """Return the catalog with the current grants on one table or function, as returned by ``grants.sql``."""
    schema, known = catalog.schemas[item.schema], catalog.roles[role]
    catalog = replace(
        catalog,
        schemas={**catalog.schemas, schema.name: replace(schema, acl=_acl(lists["-1"]))},
        roles={**catalog.roles, role: replace(known, grantees=_grantees(known.oid, memberships))},
    )
    acl = _acl(lists["0"])
    if isinstance(item, Function):
        functions = (replace(each, acl=acl) if each.oid == item.oid else each for each in catalog.functions)
        catalog = replace(catalog, functions=tuple(functions))
        names, _ = name_functions(catalog, catalog.registry)
        return replace(catalog, registry=replace(catalog.registry, functions=names))
    columns = tuple(replace(each, acl=_acl(lists.get(str(each.number), ()))) for each in item.columns)
    return replace(catalog, tables={**catalog.tables, item.oid: replace(item, acl=acl, columns=columns)})


class _Builder:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._acls: dict[str | None, Acl] = {None: ()}
        for text, grants in document.get("acls", ()):
            self._acls[text] = _acl(grants)
        self._distribution = {
            int(oid): (column or "", group) for oid, column, group in document.get("distribution", ())
        }
        self._schemas = {int(oid): name for oid, name, *_ in document.get("schemas", ())}
        # Schema of a type, and names of the operators that its extension created with it, by type OID.
        self._operators = {
            int(row[0]): (row[1], frozenset(row[17] or ())) for row in document.get("types", ())
        }
        # Base type, type modifier and whether NULL is forbidden, by domain OID.
        self._domains = {
            int(row[0]): (int(row[5]), row[6], row[7]) for row in document.get("types", ()) if row[3] == "d"
        }

    def catalog(self, generation: int, search_path: Sequence[str]) -> Catalog:
        read_all, write_all, _, postgis, timeout_matters, defers_triggers = self._document["server"][0]
        tables = {table.oid: table for table in self._each("tables", self._table)}
        views = ViewKeys(self._document.get("surfaces", ()), tables)
        names = tuple(self._schemas.values())
        missing = "the schema is listed in db-schemas, but does not exist in the database; it is ignored"
        return Catalog(
            generation=generation,
            search_path=names,
            schemas={
                name: Schema(int(oid), name, comment, self._acls[acl])
                for oid, name, comment, acl in self._document.get("schemas", ())
            },
            types={type_.oid: type_ for type_ in self._each("types", self._type)},
            tables=tables,
            foreign_keys=tuple(self._each("foreign_keys", lambda row: _foreign_key(row, tables))),
            functions=tuple(self._each("functions", self._function)),
            roles={role.name: role for role in self._each("roles", _role)},
            view_keys=tuple(views.keys(self._document.get("view_references", ()))),
            view_primary_keys=views.primary_keys(self._document.get("beneath_keys", ())),
            representations={
                (int(source), int(target)): QualifiedName(schema, name)
                for source, target, schema, name in self._document.get("representations", ())
            },
            media_handlers=tuple(self._handlers(tables.values())),
            timezones=frozenset(self._document.get("timezones", ())),
            read_all=int(read_all),
            write_all=int(write_all),
            postgis=postgis,
            timeout_matters=timeout_matters,
            defers_triggers=defers_triggers,
            clustered=bool(self._distribution),
            problems=tuple(Problem(f"schema {name}", missing) for name in search_path if name not in names),
        )

    def _each(self, part: str, build: Callable[[Any], Item]) -> Iterator[Item]:
        for row in self._document.get(part, ()):
            yield build(row)

    def _type(self, row: Any) -> Type:
        oid, schema, name, kind, element, _, _, _, relation, category = row[:10]
        labels, members, subtype, comment, acl, sql_name, default, _ = row[10:]
        return Type(
            oid=int(oid),
            schema=schema,
            name=name,
            kind=TypeKind(kind),
            element=int(element),
            base=self._base(int(oid))[0] if kind == "d" else 0,
            relation=int(relation),
            labels=tuple(labels or ()),
            comment=comment,
            acl=self._acls[acl],
            category=category,
            members=tuple(ResultColumn(member, int(type_)) for member, type_ in members or ()),
            subtype=int(subtype or 0),
            sql_name=sql_name,
            default=default,
            operators=self._operators[int(oid)][1],
        )

    def _base(self, oid: int) -> tuple[int, int, bool]:
        """Return a domain's final base type, its type modifier, and whether NULL is forbidden."""
        typmod, not_null = -1, False
        while oid in self._domains:
            oid, modifier, strict = self._domains[oid]
            typmod = modifier if typmod == -1 else typmod
            not_null = not_null or strict
        return oid, typmod, not_null

    def _table(self, row: Any) -> Table:
        (oid, schema, name, kind, type_, row_security, events, parent, comment, owner, acl) = row[:11]
        columns = tuple(self._column(column) for column in row[11])
        numbers = {column.number: column.name for column in columns}
        keys = tuple(row[12])
        distributed_by, group = self._distribution.get(int(oid), (None, None))
        if kind == TableKind.MATERIALIZED_VIEW.value:
            events = 0
        elif kind in (TableKind.ORDINARY.value, TableKind.PARTITIONED.value):
            events = _WRITABLE
        return Table(
            oid=int(oid),
            schema=self._schemas[int(schema)],
            name=name,
            kind=TableKind(kind),
            type=int(type_),
            columns=columns,
            primary_key=next((_key_columns(key, numbers) for key in keys if key[4]), ()),
            unique_keys=tuple(UniqueKey(key[0], _key_columns(key, numbers), key[3]) for key in keys),
            row_security=row_security,
            insertable=bool(events & _INSERT),
            updatable=bool(events & _UPDATE),
            deletable=bool(events & _DELETE),
            updatable_columns=_updatable_columns(row[11]),
            comment=comment,
            owner=int(owner),
            acl=self._acls[acl],
            partition_of=int(parent),
            inherited=row[13],
            large=row[14],
            estimated_rows=row[15],
            distributed_by=distributed_by,
            colocated=group,
        )

    def _column(self, row: Any) -> Column:
        name, number, type_, typmod, not_null, default, generated, identity, comment, acl, _, sql_name = row
        oid = int(type_)
        if oid in self._domains:
            oid, typmod, strict = self._base(oid)
            not_null = not_null or strict
        schema, operators = self._operators[oid]
        return Column(
            name=name,
            number=number,
            type=int(type_),
            typmod=typmod,
            nullable=not not_null,
            default=default,
            generated=generated,
            identity=identity.strip(),
            comment=comment,
            acl=self._acls[acl],
            sql_name=sql_name,
            comparison_schema=schema if "=" in operators else OWN_SCHEMA,
        )

    def _function(self, row: Any) -> Function:
        (oid, schema, name, types, modes, names, defaults, variadic, returns, returns_set) = row[:10]
        rows, volatility, settings, comment, acl = row[10:]
        modes = modes or ["i"] * len(types)
        names = names or [""] * len(types)
        defaults = defaults or [None] * len(types)
        inputs = [
            Argument(argument, int(type_), default, mode == "v" and variadic)
            for argument, type_, mode, default in zip(names, types, modes, defaults, strict=True)
            if mode in _INPUT_MODES
        ]
        outputs = [
            ResultColumn(column, int(type_))
            for column, type_, mode in zip(names, types, modes, strict=True)
            if mode in _OUTPUT_MODES
        ]
        return Function(
            oid=int(oid),
            schema=self._schemas[int(schema)],
            name=name,
            arguments=tuple(inputs),
            returns=int(returns),
            returns_set=returns_set,
            rows=float(rows),
            columns=tuple(outputs),
            volatility=Volatility(volatility),
            settings=tuple(_pairs(settings or ())),
            comment=comment,
            acl=self._acls[acl],
        )

    def _handlers(self, tables: Iterable[Table]) -> Iterator[MediaHandler]:
        by_type = {ANYELEMENT: 0, **{table.type: table.oid for table in tables}}
        for name, schema, aggregate, type_, argument, acl in self._document.get("media_handlers", ()):
            table = by_type.get(int(argument))
            media_type = media_type_named(name)
            if table is not None and media_type is not None:
                yield MediaHandler(media_type, schema, aggregate, table, int(type_), self._acls[acl])


def _key_columns(key: Any, numbers: Mapping[int, str]) -> tuple[str, ...]:
    # The columns after the key columns are INCLUDE columns.
    return tuple(numbers[int(number)] for number in key[1].split()[: key[2]])


def _updatable_columns(rows: Sequence[Any]) -> frozenset[str] | None:
    # PostgreSQL reports no updatable columns for a view that is only writable through triggers, but the
    # triggers receive all columns.
    writable = frozenset(row[0] for row in rows if row[10])
    return writable if writable and len(writable) < len(rows) else None


def _foreign_key(row: Any, tables: Mapping[int, Table]) -> ForeignKey:
    name, table_oid, columns, foreign_oid, foreign_columns, comment, validated = row
    table, foreign = tables[int(table_oid)], tables[int(foreign_oid)]
    local = _column_names(table, columns)
    return ForeignKey(
        name=name,
        table=table.oid,
        columns=local,
        foreign_table=foreign.oid,
        foreign_columns=_column_names(foreign, foreign_columns),
        unique=any(set(key.columns) <= set(local) for key in table.unique_keys),
        comment=comment,
        validated=validated,
    )


def _column_names(table: Table, numbers: Sequence[int]) -> tuple[str, ...]:
    names = {column.number: column.name for column in table.columns}
    return tuple(names[number] for number in numbers)


def _acl(grants: Iterable[Any]) -> Acl:
    return tuple((int(grantee), frozenset(words)) for grantee, words in grants)


def _grantees(oid: int, memberships: Iterable[Any]) -> frozenset[int]:
    return frozenset({0, oid, *map(int, memberships)})


def _role(row: Any) -> Role:
    oid, name, superuser, memberships, settings, login = row
    # Settings for this database come last, and override the role's general settings.
    return Role(
        oid=int(oid),
        name=name,
        superuser=superuser,
        grantees=_grantees(int(oid), memberships),
        settings=tuple({name: value for name, value in _pairs(settings) if is_allowed_setting(name)}.items()),
        login=login,
    )


def _pairs(settings: Iterable[str]) -> Iterator[tuple[str, str]]:
    for setting in settings:
        name, _, value = setting.partition("=")
        yield name, value
