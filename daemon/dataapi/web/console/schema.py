"""What the page Schema shows: the tables that a role may use, and how they are named and related; pure.

A role sees what the OpenAPI description shows it.  Grants of other roles, problems and whether rows are
filtered by policies are only for ``service_role`` (docs/console.md, Schema).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any

from dataapi.auth.authenticator import SERVICE_ROLE
from dataapi.catalog.directive_reader import without_directives
from dataapi.catalog.directives import TableDirectives
from dataapi.catalog.model import Catalog, Column, ForeignKey, Privileges, Problem, Table, describe_object
from dataapi.catalog.names import CatalogNames, root_field
from dataapi.catalog.registry import TableFieldKind
from dataapi.graphql.schema.catalog_view import CatalogView, TableView
from dataapi.rest.openapi.model import VisibleSchema, VisibleTable
from dataapi.settings import Project

Record = dict[str, Any]

_READ_WRITE = ("SELECT", "INSERT", "UPDATE")


class SchemaDescription:
    """Describes the tables of a catalog as one role sees them.

    :param pause: called between small pieces of work.
    """

    def __init__(self, project: Project, catalog: Catalog, role: str, pause: Callable[[], None]) -> None:
        self._catalog = catalog
        self._first_schema = project.db_schemas[0]
        self._privileges = privileges = Privileges(catalog, role)
        self._knows_all = role == SERVICE_ROLE
        self._names = names = CatalogNames(catalog)
        self._graphql = CatalogView(
            catalog,
            names,
            role,
            max_rows=project.db_max_rows,
        )
        self._tables = {
            visible.table.oid: visible
            for schema in project.db_schemas
            for visible in VisibleSchema(catalog, schema, privileges, pause).tables
        }
        self._pause = pause

    @property
    def tables(self) -> frozenset[tuple[str, str]]:
        """The schemas and names of the tables that are described."""
        return frozenset((each.table.schema, each.table.name) for each in self._tables.values())

    def document(self) -> Record:
        """Return the description, without policies."""
        described: Record = {
            "role": self._privileges.role,
            "generation": self._catalog.generation,
            "complete": self._knows_all,
            "tables": [self._table(visible) for visible in self._tables.values()],
            "relationships": list(self._relationships()),
        }
        if self._knows_all:
            described["problems"] = [asdict(each) for each in self._catalog.problems if not self._of(each)]
        return described

    def _table(self, visible: VisibleTable) -> Record:
        self._pause()
        table, view = visible.table, self._graphql.table(visible.table.oid)
        shown = {column.name for column in visible.columns}
        described: Record = {
            "schema": table.schema,
            "name": table.name,
            "kind": table.kind.name.lower(),
            "comment": without_directives(table.comment),
            "key": [name for name in self._catalog.row_key(table) if name in shown],
            "unique": [list(key.columns) for key in table.unique_keys if shown.issuperset(key.columns)],
            "columns": [self._column(visible, column, view) for column in visible.columns],
            "accepts": _accepted(table),
            "rest": self._rest(visible),
            "graphql": None if view is None else _graphql(view),
            "directives": _directives(self._catalog.directives.table(table.oid)),
        }
        if self._knows_all:
            described |= {
                "rowSecurity": table.row_security,
                "estimatedRows": table.estimated_rows,
                "grants": list(self._grants(table)),
                "problems": [asdict(each) for each in self._problems[table.oid]],
            }
        return described

    def _column(self, visible: VisibleTable, column: Column, view: TableView | None) -> Record:
        writable = visible.table.updatable_columns
        used = {"SELECT": visible.read, "INSERT": visible.insert, "UPDATE": visible.update}
        field = None if view is None else view.fields_by_column.get(column.name)
        return {
            "name": column.name,
            "type": column.sql_name or self._catalog.types[column.type].sql_name,
            "nullable": column.nullable,
            "default": column.default,
            "generated": column.generated,
            "derived": not (writable is None or column.name in writable),
            "identity": {"a": "always", "d": "by default"}.get(column.identity),
            "comment": without_directives(column.comment),
            "privileges": [name for name, columns in used.items() if column.name in columns],
            "graphql": field and field.field,
        }

    def _rest(self, visible: VisibleTable) -> Record:
        table = visible.table
        allowed = {
            "GET": visible.read,
            "POST": visible.insert,
            "PATCH": visible.update,
            "PUT": visible.key,
            "DELETE": visible.delete,
        }
        return {
            "name": table.name,
            "profile": None if table.schema == self._first_schema else table.schema,
            "methods": [method for method, columns in allowed.items() if columns],
            # ``*`` stands for all columns, so that it is refused where one may not be read.
            "star": len(visible.read) == len(table.columns),
        }

    def _grants(self, table: Table) -> Iterator[Record]:
        """Yield what each role that requests may run as may do; columns are named where not all are meant."""
        for privileges in self._others:
            if not privileges.can_use_schema(table.schema):
                continue
            granted: dict[str, list[str] | None] = {}
            for privilege in _READ_WRITE:
                columns = privileges.columns(table, privilege)
                if columns:
                    names = [column.name for column in table.columns if column.name in columns]
                    granted[privilege] = None if len(names) == len(table.columns) else names
            if privileges.has_table_privilege(table, "DELETE"):
                granted["DELETE"] = None
            if granted:
                yield {"role": privileges.role, "privileges": granted}

    @cached_property
    def _others(self) -> list[Privileges]:
        roles = sorted(role.name for role in self._catalog.roles.values() if role.forbidden_kind is None)
        return [Privileges(self._catalog, name) for name in roles]

    @cached_property
    def _problems(self) -> Mapping[int, list[Problem]]:
        """What is wrong with each table, its columns and its foreign keys."""
        places: dict[str, int] = {}
        for oid, visible in self._tables.items():
            places[describe_object(visible.table)] = oid
            places |= {describe_object(column, visible.table): oid for column in visible.table.columns}
        for key in self._catalog.foreign_keys:
            if key.table in self._tables:
                places[describe_object(key, self._tables[key.table].table)] = key.table
        found: dict[int, list[Problem]] = defaultdict(list)
        for problem in self._catalog.problems:
            if problem.place in places:
                found[places[problem.place]].append(problem)
        return found

    def _of(self, problem: Problem) -> bool:
        """Whether a problem is one of a table that is described."""
        return any(problem in each for each in self._problems.values())

    def _relationships(self) -> Iterator[Record]:
        """Yield the foreign keys between columns that the role sees, each from the referencing table."""
        catalog = self._catalog
        for key in (*catalog.foreign_keys, *catalog.view_keys):
            self._pause()
            ours, theirs = self._tables.get(key.table), self._tables.get(key.foreign_table)
            if ours is None or theirs is None or not _shows(ours, key.columns):
                continue
            if _shows(theirs, key.foreign_columns):
                yield self._relationship(key, ours.table, theirs.table)

    def _relationship(self, key: ForeignKey, table: Table, foreign: Table) -> Record:
        return {
            "name": key.name,
            "from": {"schema": table.schema, "table": table.name, "columns": list(key.columns)},
            "to": {"schema": foreign.schema, "table": foreign.name, "columns": list(key.foreign_columns)},
            "unique": key.unique,
            "origin": "directive" if key.declared else "view" if key in self._of_views else "constraint",
            "graphql": {
                "from": self._field(key, table, outgoing=True),
                "to": self._field(key, foreign, outgoing=False),
            },
        }

    @cached_property
    def _of_views(self) -> frozenset[ForeignKey]:
        return frozenset(self._catalog.view_keys)

    def _field(self, key: ForeignKey, table: Table, *, outgoing: bool) -> str | None:
        """Return the field by which GraphQL follows a key from one of its tables, None if there is none."""
        view = self._graphql.table(table.oid)
        if view is None:
            return None
        related = {field.name for field in view.related}
        return next(
            (
                name
                for each, name in self._names.fields(table.oid).relationships
                if each.foreign_key is key and each.outgoing == outgoing and name in related
            ),
            None,
        )


def _accepted(table: Table) -> list[str]:
    """Return what PostgreSQL lets anybody do to the rows: views do not take everything."""
    taken = {"INSERT": table.insertable, "UPDATE": table.updatable, "DELETE": table.deletable}
    return [name for name, whether in taken.items() if whether]


def _shows(visible: VisibleTable, columns: tuple[str, ...]) -> bool:
    return {column.name for column in visible.columns}.issuperset(columns)


def _graphql(view: TableView) -> Record:
    """Return the names of a table's type and entry points that the role has."""
    fields = {
        TableFieldKind.COLLECTION: True,
        TableFieldKind.BY_KEY: view.by_key,
        TableFieldKind.INSERT: view.insertable,
        TableFieldKind.UPDATE: view.updatable,
        TableFieldKind.DELETE: view.deletable,
    }
    return {
        "type": view.name,
        "fields": [root_field(kind, view.name) for kind, exists in fields.items() if exists],
    }


def _directives(directives: TableDirectives) -> Record:
    """Return what the directives of a table say, as their keys are written in comments."""
    said = {
        "name": directives.name,
        "description": directives.description,
        "totalCount": directives.total_count,
        "aggregate": directives.aggregate,
        "maxRows": directives.max_rows,
        "primaryKeyColumns": list(directives.primary_key_columns),
        "features": sorted(directives.features),
        "restMaxRows": directives.rest_max_rows,
    }
    return {name: value for name, value in said.items() if value}
