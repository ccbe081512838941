"""The tables that a role may see, by name, and what can be embedded in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from dataapi.catalog.model import Catalog, Function, Table, TableKind
from dataapi.catalog.privileges import Privileges
from dataapi.database.sqlstate import Diagnostics, to_error
from dataapi.errors import ApiError
from dataapi.rest.request.syntax import Embed
from dataapi.rest.resolve.relations import Relation
from dataapi.rest.resolve.spelling import DISTANTLY_ALIKE, Names, similar
from dataapi.rest.resolve.types import Types
from dataapi.rest.resolve.ways import Way, Ways

_KINDS = {
    TableKind.ORDINARY: "table",
    TableKind.PARTITIONED: "table",
    TableKind.VIEW: "view",
    TableKind.MATERIALIZED_VIEW: "materialized view",
    TableKind.FOREIGN: "foreign table",
}
_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")


class Tables:
    """All tables of a catalog by schema and name, shared by the roles.

    Partitions are left out, as in PostgREST: their rows are those of the parent, whose policies and
    privileges would not hold for whoever asked for a partition by its own name.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.ways = Ways(catalog)
        self.types = Types(catalog)
        self.by_name: Mapping[tuple[str, str], Table] = {
            (table.schema, table.name): table for table in catalog.tables.values() if not table.partition_of
        }
        self._names: dict[str, Names] = {}

    def names(self, schema: str) -> Names:
        """Return the names of a schema's tables, to search for similar ones."""
        if schema not in self._names:
            self._names[schema] = Names(name for place, name in self.by_name if place == schema)
        return self._names[schema]


class ReadableTables:
    """What of a catalog one role may use.

    What it has no privilege on is refused in PostgreSQL's words before anything of it is looked at,
    and neither hints nor ambiguities tell of it.

    :param anonymous: whether it is the role of callers that are nobody.
    """

    def __init__(self, tables: Tables, role: str, *, anonymous: bool) -> None:
        self._tables = tables
        self._anonymous = anonymous
        self.catalog = tables.catalog
        self.types = tables.types
        self._privileges = Privileges(tables.catalog, role)
        self._seen: dict[tuple[str, str], Table] = {}

    def find(self, schema: str, name: str) -> Table:
        """Return a table.

        :raises ApiError: PGRST205 (404), there is none of that name; 42501 (401, 403), the role may do
            nothing with it.
        """
        seen = self._seen.get((schema, name))
        if seen is not None:
            return seen
        table = self._tables.by_name.get((schema, name))
        if table is not None:
            if not self._may_see(table):
                raise self._denied(table)
            self._seen[schema, name] = table
            return table
        raise ApiError(
            404,
            "PGRST205",
            f"Could not find the table '{schema}.{name}' in the schema cache",
            hint=self._hint(schema, name),
        )

    def _may_see(self, table: Table) -> bool:
        return self._privileges.can_use_schema(table.schema) and any(
            self._privileges.can(table, privilege) for privilege in _PRIVILEGES
        )

    def _is_visible(self, schema: str, name: str) -> bool:
        return self._may_see(self._tables.by_name[schema, name])

    def _denied(self, table: Table) -> ApiError:
        schema = None if self._privileges.can_use_schema(table.schema) else table.schema
        what = f"schema {schema}" if schema else f"{_KINDS[table.kind]} {table.name}"
        return to_error(Diagnostics("42501", f"permission denied for {what}"), anonymous=self._anonymous)

    def _hint(self, schema: str, name: str) -> str | None:
        close = similar(name, self._tables.names(schema), allowed=lambda each: self._is_visible(schema, each))
        return f"Perhaps you meant the table '{schema}.{close}'" if close else None

    # ------------------------------------------------------------ ways

    def way(self, relation: Relation, embed: Embed) -> Way:
        """Return the way to an embedded resource.

        :raises ApiError: PGRST200 (400) for none, PGRST201 (300) for several; 42501 (401, 403) for one
            that the role may not go.
        """
        all_ways = self._ways(relation)
        ways = [way for way in all_ways if self._denied_table(way) is None]
        found = self._tables.ways.meant(ways, embed.name, embed.hint)
        if len(found) == 1:
            return found[0]
        if found:
            raise _ambiguous(relation, embed, sorted(found, key=lambda way: way.rank))
        for way in self._tables.ways.meant(all_ways, embed.name, embed.hint):
            denied = self._denied_table(way)
            if denied is not None:
                raise self._denied(denied)
        using = f" using the hint '{embed.hint}'" if embed.hint else ""
        raise ApiError(
            400,
            "PGRST200",
            f"Could not find a relationship between '{relation.name}' and '{embed.name}' in the schema cache",
            details=f"Searched for a foreign key relationship between '{relation.name}' and '{embed.name}'"
            f"{using} in the schema '{relation.schema}', but no matches were found.",
            hint=_hint_of_ways(embed.name, ways) if ways else self._hint_of_related(relation),
        )

    def _ways(self, relation: Relation) -> list[Way]:
        if relation.table is None:
            return []
        return [
            way
            for way in self._tables.ways.of(relation.table)
            if way.function is not None or way.target.schema == relation.schema
        ]

    def _hint_of_related(self, relation: Relation) -> str | None:
        """Return the hint that names a table with ways that may have been meant by one without any."""
        schema = relation.schema

        def is_related(name: str) -> bool:
            return self._is_visible(schema, name) and bool(
                self._tables.ways.of(self._tables.by_name[schema, name])
            )

        return _hint_instead(
            relation.name, similar(relation.name, self._tables.names(schema), allowed=is_related)
        )

    def _denied_table(self, way: Way) -> Table | None:
        """Return a table that a way leads to or through and that the role may do nothing with."""
        tables = [way.target] if way.through is None else [way.target, way.through.table]
        return next((table for table in tables if not self._may_see(table)), None)

    def readable(self, relation: Relation) -> list[str]:
        """Return the names of those columns of a relation that the role may read, which hints may tell."""
        names = list(relation.columns or ())
        if relation.table is None:
            return names
        allowed = self._privileges.columns(relation.table, "SELECT")
        return [name for name in names if name in allowed]

    def computed(self, relation: Relation, name: str) -> Function | None:
        """Return the function that is a computed field of a relation."""
        if relation.table is None:
            return None
        for function in self._tables.ways.functions_of(relation.table):
            if function.name == name and not function.returns_set:
                return function
        return None


def _hint_of_ways(name: str, ways: list[Way]) -> str | None:
    targets = dict.fromkeys(way.target.name for way in ways if way.function is None)
    return _hint_instead(name, None if name in targets else similar(name, Names(targets), DISTANTLY_ALIKE))


def _hint_instead(name: str, close: str | None) -> str | None:
    return f"Perhaps you meant '{close}' instead of '{name}'." if close else None


def _ambiguous(relation: Relation, embed: Embed, found: list[Way]) -> ApiError:
    choices = ", ".join(f"'{way.target.name}!{way.hint}'" for way in found)
    return ApiError(
        300,
        "PGRST201",
        "Could not embed because more than one relationship was found for"
        f" '{relation.name}' and '{embed.name}'",
        details=cast("list[object]", [way.told() for way in found]),
        hint=f"Try changing '{embed.name}' to one of the following: {choices}. "
        "Find the desired relationship in the 'details' key.",
    )
