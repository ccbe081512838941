"""Descriptions of the tables and functions that a role may use, for the MCP tools.

A role sees the same objects as in the OpenAPI description. The owner of the schema controls the text of
comments (docs/mcp.md, Hostile text).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from dataapi.catalog.directive_reader import without_directives
from dataapi.catalog.model import Catalog, Column, ForeignKey, Function, Privileges, Volatility
from dataapi.rest.visible_schema import VisibleSchema, VisibleTable, visible_keys

Record = dict[str, Any]


class RoleObjects:
    """The objects in the exposed schemas that are visible to a role."""

    def __init__(
        self, catalog: Catalog, schemas: Sequence[str], role: str, pause: Callable[[], None]
    ) -> None:
        self._catalog = catalog
        privileges = Privileges(catalog, role)
        visible = [VisibleSchema(catalog, schema, privileges, pause) for schema in schemas]
        self._tables = {(each.schema, one.table.name): one for each in visible for one in each.tables}
        self._functions = [function for each in visible for function in each.functions]
        self._outgoing, self._incoming = defaultdict[int, list[ForeignKey]](list), defaultdict(list)
        for key in visible_keys(catalog, {each.table.oid: each for each in self._tables.values()}):
            self._outgoing[key.table].append(key)
            self._incoming[key.foreign_table].append(key)

    def page(self, schema: str | None, offset: int, limit: int) -> Record:
        """Return a page of the list of tables, followed by functions, in one schema or in all schemas."""
        tables = [each for each in self._tables.values() if schema in (None, each.table.schema)]
        functions = [each for each in self._functions if schema in (None, each.schema)]
        listed, end = [*tables, *functions][offset : offset + limit], offset + limit
        return {
            "tables": [_listed(each) for each in listed if isinstance(each, VisibleTable)],
            "functions": [self._function(each) for each in listed if isinstance(each, Function)],
            "next_offset": end if end < len(tables) + len(functions) else None,
        }

    def describe(self, schema: str, name: str) -> Record | None:
        visible = self._tables.get((schema, name))
        if visible is None:
            return None
        names, oid = {column.name for column in visible.columns}, visible.table.oid
        outgoing, incoming = self._outgoing.get(oid, ()), self._incoming.get(oid, ())
        return {
            **_listed(visible),
            "primary_key": [key for key in self._catalog.row_key(visible.table) if key in names],
            "columns": [self._column(visible, column) for column in visible.columns],
            "relationships": [self._relationship(key, outgoing=True) for key in outgoing]
            + [self._relationship(key, outgoing=False) for key in incoming],
        }

    def _column(self, visible: VisibleTable, column: Column) -> Record:
        type_ = self._catalog.types[column.type]
        return {
            "name": column.name, "type": column.sql_name or type_.sql_name, "nullable": column.nullable,
            **({"values": type_.labels} if type_.labels else {}),
            "default": column.default, "generated": column.generated or column.identity == "a",
            "comment": without_directives(column.comment),
            "can": [right for right, columns in _rights(visible).items() if column.name in columns],
        }  # fmt: skip

    def _relationship(self, key: ForeignKey, *, outgoing: bool) -> Record:
        table = self._catalog.tables[key.foreign_table if outgoing else key.table]
        near, far = (key.columns, key.foreign_columns) if outgoing else (key.foreign_columns, key.columns)
        # In a self-reference, the table's name would select the referencing rows.
        target = "" if outgoing and key.table == key.foreign_table else f"{_quoted(table.name)}!"
        return {
            "name": key.name, "columns": near, "schema": table.schema, "table": table.name,
            "foreign_columns": far, "many": not outgoing and not key.unique,
            "select": f"{target}{_quoted(key.name)}(*)",
        }  # fmt: skip

    def _function(self, function: Function) -> Record:
        types, parts = self._catalog.types, function.arguments
        arguments = [(each.name, types[each.type].sql_name, each.default is None) for each in parts]
        return {
            "name": function.name, "schema": function.schema, "comment": without_directives(function.comment),
            "arguments": [dict(zip(("name", "type", "required"), each, strict=True)) for each in arguments],
            "returns": types[function.returns].sql_name,
            "returns_set": function.returns_set, "may_write": function.volatility is Volatility.VOLATILE,
        }  # fmt: skip


def _rights(visible: VisibleTable) -> dict[str, frozenset[str]]:
    return {"read": visible.read, "insert": visible.insert, "update": visible.update}


def _listed(visible: VisibleTable) -> Record:
    table, rights = visible.table, {**_rights(visible), "delete": visible.delete}
    return {
        "name": table.name, "schema": table.schema, "kind": table.kind.name.lower(),
        "comment": without_directives(table.comment),
        "can": [right for right, granted in rights.items() if granted],
    }  # fmt: skip


def _quoted(name: str) -> str:
    return name if name.isidentifier() else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
