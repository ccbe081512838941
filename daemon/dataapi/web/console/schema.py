"""The data of the console's Schema page: visible tables, their names and relationships. Performs no I/O.

Roles see the same tables as in the OpenAPI description. Only ``service_role`` sees the privileges of other
roles, problems, and row level security (docs/console.md, Schema).
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
from dataapi.rest.visible_schema import VisibleSchema, VisibleTable, visible_keys
from dataapi.settings import Project

Record = dict[str, Any]

_READ_WRITE = ("SELECT", "INSERT", "UPDATE")


class SchemaDescription:
    """Describes the tables of a catalog as visible to a role."""

    def __init__(self, project: Project, catalog: Catalog, role: str, pause: Callable[[], None]) -> None:
        self._catalog = catalog
        self._first_schema = project.db_schemas[0]
        self._privileges = privileges = Privileges(catalog, role)
        self._sees_all = role == SERVICE_ROLE
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
        return frozenset((visible.table.schema, visible.table.name) for visible in self._tables.values())

    def document(self) -> Record:
        described: Record = {
            "role": self._privileges.role,
            "generation": self._catalog.generation,
            "complete": self._sees_all,
            "tables": [self._table(visible) for visible in self._tables.values()],
            "relationships": list(self._relationships()),
        }
        if self._sees_all:
            described["problems"] = [
                asdict(problem) for problem in self._catalog.problems if not self._is_described(problem)
            ]
        return described

    def _table(self, visible: VisibleTable) -> Record:
        self._pause()
        table, view = visible.table, self._graphql.table(visible.table.oid)
        visible_names = {column.name for column in visible.columns}
        described: Record = {
            "schema": table.schema,
            "name": table.name,
            "kind": table.kind.name.lower(),
            "comment": without_directives(table.comment),
            "key": [name for name in self._catalog.row_key(table) if name in visible_names],
            "unique": [
                list(key.columns) for key in table.unique_keys if visible_names.issuperset(key.columns)
            ],
            "columns": [self._column(visible, column, view) for column in visible.columns],
            "accepts": _accepted(table),
            "rest": self._rest(visible),
            "graphql": None if view is None else _graphql(view),
            "directives": _directives(self._catalog.directives.table(table.oid)),
        }
        if self._sees_all:
            described |= {
                "rowSecurity": table.row_security,
                "estimatedRows": table.estimated_rows,
                "grants": list(self._grants(table)),
                "problems": [asdict(problem) for problem in self._problems[table.oid]],
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
            # Whether ``select=*`` is allowed. It requires the privilege to read all columns.
            "star": len(visible.read) == len(table.columns),
        }

    def _grants(self, table: Table) -> Iterator[Record]:
        """Yield the privileges of each role that requests may use. Columns are None if all are granted."""
        for privileges in self._request_roles:
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
    def _request_roles(self) -> list[Privileges]:
        roles = sorted(role.name for role in self._catalog.roles.values() if role.forbidden_kind is None)
        return [Privileges(self._catalog, name) for name in roles]

    @cached_property
    def _problems(self) -> Mapping[int, list[Problem]]:
        locations: dict[str, int] = {}
        for oid, visible in self._tables.items():
            locations[describe_object(visible.table)] = oid
            locations |= {describe_object(column, visible.table): oid for column in visible.table.columns}
        for key in self._catalog.foreign_keys:
            if key.table in self._tables:
                locations[describe_object(key, self._tables[key.table].table)] = key.table
        problems: dict[int, list[Problem]] = defaultdict(list)
        for problem in self._catalog.problems:
            if problem.place in locations:
                problems[locations[problem.place]].append(problem)
        return problems

    def _is_described(self, problem: Problem) -> bool:
        return any(problem in problems for problems in self._problems.values())

    def _relationships(self) -> Iterator[Record]:
        for key in visible_keys(self._catalog, self._tables):
            self._pause()
            yield self._relationship(
                key, self._tables[key.table].table, self._tables[key.foreign_table].table
            )

    def _relationship(self, key: ForeignKey, table: Table, foreign: Table) -> Record:
        return {
            "name": key.name,
            "from": {"schema": table.schema, "table": table.name, "columns": list(key.columns)},
            "to": {"schema": foreign.schema, "table": foreign.name, "columns": list(key.foreign_columns)},
            "unique": key.unique,
            "origin": "directive" if key.declared else "view" if key in self._view_keys else "constraint",
            "graphql": {
                "from": self._field(key, table, outgoing=True),
                "to": self._field(key, foreign, outgoing=False),
            },
        }

    @cached_property
    def _view_keys(self) -> frozenset[ForeignKey]:
        return frozenset(self._catalog.view_keys)

    def _field(self, key: ForeignKey, table: Table, *, outgoing: bool) -> str | None:
        view = self._graphql.table(table.oid)
        if view is None:
            return None
        related = {field.name for field in view.related}
        return next(
            (
                name
                for relationship, name in self._names.fields(table.oid).relationships
                if relationship.foreign_key is key and relationship.outgoing == outgoing and name in related
            ),
            None,
        )


def _accepted(table: Table) -> list[str]:
    supported = {"INSERT": table.insertable, "UPDATE": table.updatable, "DELETE": table.deletable}
    return [name for name, is_supported in supported.items() if is_supported]


def _graphql(view: TableView) -> Record:
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
    values = {
        "name": directives.name,
        "description": directives.description,
        "totalCount": directives.total_count,
        "aggregate": directives.aggregate,
        "maxRows": directives.max_rows,
        "primaryKeyColumns": list(directives.primary_key_columns),
        "features": sorted(directives.features),
        "restMaxRows": directives.rest_max_rows,
    }
    return {name: value for name, value in values.items() if value}
