"""The tables that a role may read, by name, and the ways between them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from dataapi.catalog.model import Catalog, Table
from dataapi.catalog.privileges import Privileges
from dataapi.catalog.relationships import Relationship, Relationships
from dataapi.errors import ApiError
from dataapi.rest.syntax import Embed
from dataapi.rest.unsupported import unsupported

MOST_FOR_HINTS = 200
"""Among more tables than these no similar name is looked for: it would take several milliseconds."""
LONGEST_NAME = 63
"""PostgreSQL's limit."""

_JOINS = frozenset({"inner", "left"})


class Tables:
    """All tables of a catalog by schema and name, shared by the roles."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.relationships = Relationships(catalog)
        self.by_name: Mapping[tuple[str, str], Table] = {
            (table.schema, table.name): table for table in catalog.tables.values()
        }


class ReadableTables:
    """What of a catalog one role may read; what it may not is as if it were not there."""

    def __init__(self, tables: Tables, role: str) -> None:
        self._tables = tables
        self._privileges = Privileges(tables.catalog, role)

    def find(self, schema: str, name: str) -> Table:
        """Return a table.

        :raises ApiError: PGRST205 (404), there is none of that name or the role may not read it.
        """
        table = self._tables.by_name.get((schema, name))
        if table is not None and self._may_read(table):
            return table
        raise ApiError(
            404,
            "PGRST205",
            f"Could not find the table '{schema}.{name}' in the schema cache",
            hint=self._hint(schema, name),
        )

    def _may_read(self, table: Table) -> bool:
        return self._privileges.can_use_schema(table.schema) and self._privileges.can(table, "SELECT")

    def _hint(self, schema: str, name: str) -> str | None:
        if len(self._tables.by_name) > MOST_FOR_HINTS or len(name) > LONGEST_NAME:
            return None
        names = [
            known for (place, known), table in self._tables.by_name.items()
            if place == schema and self._may_read(table)
        ]  # fmt: skip
        close = get_close_matches(name, names, n=1)
        return f"Perhaps you meant the table '{schema}.{close[0]}'" if close else None

    def relationship(self, table: Table, embed: Embed) -> tuple[Relationship, Table]:
        """Return the relationship that an embedded resource names, and the table that it leads to.

        :raises ApiError: PGRST200 (400) for none, PGRST201 (300) for several, PGRST127 for one that is
            not available.
        """
        known = self._readable(table)
        found = [(way, target) for way, target in known if _is_named(way, target, embed)]
        if len(found) == 1:
            return found[0]
        if found:
            raise _ambiguous(table, embed, found)
        if self._has_junction(table, embed.name):
            raise unsupported(f"Embedding '{embed.name}' by a table in between is not available yet.")
        raise ApiError(
            400,
            "PGRST200",
            f"Could not find a relationship between '{table.name}' and '{embed.name}' in the schema cache",
            details=f"Searched for a foreign key relationship between '{table.name}' and '{embed.name}'"
            f" in the schema '{table.schema}', but no matches were found.",
        )

    def _readable(self, table: Table) -> list[tuple[Relationship, Table]]:
        ways = [
            (way, self._tables.catalog.tables[way.target]) for way in self._tables.relationships.of(table.oid)
        ]
        return [
            (way, target) for way, target in ways if target.schema == table.schema and self._may_read(target)
        ]

    def _has_junction(self, table: Table, name: str) -> bool:
        return any(
            onward.outgoing and target.name == name
            for way, middle in self._readable(table)
            if not way.outgoing
            for onward, target in self._readable(middle)
        )


def _is_named(way: Relationship, target: Table, embed: Embed) -> bool:
    """Whether the name is the relationship's table, constraint or column, and the hints fit too."""
    key = way.foreign_key
    column = way.pairs[0][0] if len(way.pairs) == 1 else None
    by_key = way.outgoing and embed.name in (key.name, column)
    if embed.name != target.name and not by_key:
        return False
    hints = [hint for hint in embed.hints if hint not in _JOINS]
    if way.table == way.target:  # both sides have the same columns: the hint is the near one
        return all(hint in (key.name, column) for hint in hints)
    return all(hint in (key.name, *(name for pair in way.pairs for name in pair)) for hint in hints)


def _ambiguous(table: Table, embed: Embed, found: list[tuple[Relationship, Table]]) -> ApiError:
    told = [
        f"'{table.name}' with '{target.name}', {way.kind.value}, using {way.foreign_key.name}"
        f"({', '.join(way.foreign_key.columns)})"
        for way, target in found
    ]
    choices = [
        f"'{embed.name}!{way.pairs[0][0] if table.oid == target.oid else way.foreign_key.name}'"
        for way, target in found
    ]
    return ApiError(
        300,
        "PGRST201",
        f"Could not embed because more than one relationship was found for '{table.name}' and '{embed.name}'",
        details="; ".join(told),
        hint=f"Try changing '{embed.name}' to one of the following: {', '.join(choices)}. "
        "Find the desired relationship in the 'details' key.",
    )
