"""The tables that a role may use, by name, with the relationships that it may embed; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from dataapi.catalog.model import Catalog, Function, Table, TableKind
from dataapi.catalog.privileges import Privileges
from dataapi.catalog.relationships import (
    ComputedRelationship,
    JunctionRelationship,
    Relationship,
    Relationships,
)
from dataapi.database.errors import Diagnostics, to_error
from dataapi.http.errors import ApiError
from dataapi.rest.parse.syntax import Embed
from dataapi.rest.plan.relationships import description, hint_for, matching, rank
from dataapi.rest.plan.similar_names import DISTANTLY_ALIKE, NameIndex, similar
from dataapi.rest.plan.types import Types


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a relation.

    :ivar type: the type's oid.
    """

    type: int
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Relation:
    """What rows are of.

    :ivar schema, name: as errors and relationships name it.
    :ivar alias: as errors of its columns name it, None for its name.
    :ivar table: the table whose rows they are; None for a function's own result columns.
    :ivar columns: by name, in order; None if they are unknown (``record``).
    """

    schema: str
    name: str
    table: Table | None
    columns: Mapping[str, RelationColumn] | None
    alias: str | None = None

    @classmethod
    def of(cls, table: Table, alias: str | None = None) -> Relation:
        """Return the relation of a table."""
        columns = {column.name: RelationColumn(column.type, column.nullable) for column in table.columns}
        return cls(table.schema, table.name, table, columns, alias)


_KINDS = {
    TableKind.ORDINARY: "table",
    TableKind.PARTITIONED: "table",
    TableKind.VIEW: "view",
    TableKind.MATERIALIZED_VIEW: "materialized view",
    TableKind.FOREIGN: "foreign table",
}
_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")


class CatalogTables:
    """All tables of a catalog by schema and name, shared by the roles.

    Partitions are left out, as in PostgREST: their rows are those of the parent, whose policies and
    privileges would not apply to a partition that is requested by its own name.
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
        """Return the names of a schema's tables, to search for similar ones."""
        if schema not in self._names:
            self._names[schema] = NameIndex(name for in_schema, name in self.by_name if in_schema == schema)
        return self._names[schema]


class RoleTables:
    """The tables of a catalog that one role may use.

    A table without a privilege is refused in PostgreSQL's words before anything of it is looked at,
    and neither hints nor ambiguities mention it.

    :param anonymous: whether it is the role of anonymous callers.
    """

    def __init__(self, tables: CatalogTables, role: str, *, anonymous: bool) -> None:
        self._tables = tables
        self._anonymous = anonymous
        self.catalog = tables.catalog
        self.types = tables.types
        self._privileges = Privileges(tables.catalog, role)
        self._seen: dict[tuple[str, str], Table] = {}

    def find(self, schema: str, name: str) -> Table:
        """Return a table.

        :raises ApiError: PGRST205 (404), there is no such table; 42501 (401, 403), the role has no
            privilege on it.
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

    # ------------------------------------------------------------ relationships

    def relationship(self, relation: Relation, embed: Embed) -> Relationship:
        """Return the relationship by which a resource is embedded.

        :raises ApiError: PGRST200 (400), there is none; PGRST201 (300), there are several; 42501 (401,
            403), the role has no privilege on a table of it.
        """
        existing = self._relationships(relation)
        usable = [each for each in existing if self._denied_table(each) is None]
        found = matching(usable, embed.name, embed.hint)
        if len(found) == 1:
            return found[0]
        if found:
            raise _ambiguous(relation, embed, sorted(found, key=rank))
        for each in matching(existing, embed.name, embed.hint):
            denied = self._denied_table(each)
            if denied is not None:
                raise self._denied(denied)
        using = f" using the hint '{embed.hint}'" if embed.hint else ""
        raise ApiError(
            400,
            "PGRST200",
            f"Could not find a relationship between '{relation.name}' and '{embed.name}' in the schema cache",
            details=f"Searched for a foreign key relationship between '{relation.name}' and '{embed.name}'"
            f"{using} in the schema '{relation.schema}', but no matches were found.",
            hint=_hint_of_target(embed.name, usable) if usable else self._hint_of_related(relation),
        )

    def _relationships(self, relation: Relation) -> list[Relationship]:
        if relation.table is None:
            return []
        return [
            each
            for each in self._tables.relationships.of(relation.table)
            if isinstance(each, ComputedRelationship) or each.target.schema == relation.schema
        ]

    def _hint_of_related(self, relation: Relation) -> str | None:
        """Return the hint that names a table with relationships that may have been meant by one without."""
        schema = relation.schema

        def is_related(name: str) -> bool:
            return self._is_visible(schema, name) and bool(
                self._tables.relationships.of(self._tables.by_name[schema, name])
            )

        return _hint_instead(
            relation.name, similar(relation.name, self._tables.names(schema), allowed=is_related)
        )

    def _denied_table(self, relationship: Relationship) -> Table | None:
        """Return a table that a relationship leads to or through and that the role may not use at all."""
        tables = [relationship.target]
        if isinstance(relationship, JunctionRelationship):
            tables.append(relationship.junction)
        return next((table for table in tables if not self._may_see(table)), None)

    def readable(self, relation: Relation) -> list[str]:
        """Return the columns of a relation that the role may read, which hints may name."""
        names = list(relation.columns or ())
        if relation.table is None:
            return names
        allowed = self._privileges.columns(relation.table, "SELECT")
        return [name for name in names if name in allowed]

    def computed(self, relation: Relation, name: str) -> Function | None:
        """Return the function that is a computed field of a relation."""
        if relation.table is None:
            return None
        for function in self._tables.relationships.functions_of(relation.table):
            if function.name == name and not function.returns_set:
                return function
        return None


def _hint_of_target(name: str, relationships: list[Relationship]) -> str | None:
    stored = (each for each in relationships if not isinstance(each, ComputedRelationship))
    targets = dict.fromkeys(each.target.name for each in stored)
    return _hint_instead(
        name, None if name in targets else similar(name, NameIndex(targets), DISTANTLY_ALIKE)
    )


def _hint_instead(name: str, close: str | None) -> str | None:
    return f"Perhaps you meant '{close}' instead of '{name}'." if close else None


def _ambiguous(relation: Relation, embed: Embed, found: list[Relationship]) -> ApiError:
    choices = ", ".join(f"'{each.target.name}!{hint_for(each)}'" for each in found)
    return ApiError(
        300,
        "PGRST201",
        "Could not embed because more than one relationship was found for"
        f" '{relation.name}' and '{embed.name}'",
        details=cast("list[object]", [description(each) for each in found]),
        hint=f"Try changing '{embed.name}' to one of the following: {choices}. "
        "Find the desired relationship in the 'details' key.",
    )
