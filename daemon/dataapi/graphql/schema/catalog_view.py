"""What one role sees of the catalog in GraphQL terms, worked out on demand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from dataapi.catalog.field_names import CatalogNames
from dataapi.catalog.model import Catalog
from dataapi.catalog.privileges import Privileges
from dataapi.graphql.schema.table_view import TableView
from dataapi.graphql.schema.type_mapping import TypeMapping, mapping_of


@dataclass(eq=False)
class CatalogView:
    """A catalog as one role sees it.

    :ivar non_null: a many-to-one relationship over NOT NULL columns is non-null
        (``graphql-non-null-relationships``).
    :ivar max_rows: the configured page cap (``db-max-rows``), None without one.
    :ivar features: what ``graphql-features`` turns on for every table.
    :ivar schemas: those in the view, None for the whole search path.
    """

    catalog: Catalog
    names: CatalogNames
    role: str
    non_null: bool = False
    max_rows: int | None = None
    features: frozenset[str] = frozenset()
    schemas: frozenset[str] | None = None

    def __post_init__(self) -> None:
        self.privileges = Privileges(self.catalog, self.role)
        self._tables: dict[int, TableView | None] = {}

    def made(self) -> list[object]:
        """Return the view and its tables that were looked up so far."""
        return [self, *filter(None, self._tables.values())]

    @cached_property
    def usable_schemas(self) -> frozenset[str]:
        """The schemas in the view that the role may use."""
        schemas = self.catalog.search_path if self.schemas is None else self.schemas
        return frozenset(filter(self.privileges.can_use_schema, schemas))

    def introspectable(self) -> CatalogView | None:
        """Return the view of the schemas that allow introspection, None without any."""
        directives = self.catalog.directives
        allowed = frozenset(name for name in self.usable_schemas if directives.schema(name).introspection)
        if not allowed:
            return None
        return self if allowed == self.usable_schemas else replace(self, schemas=allowed)

    def apart(self) -> CatalogView:
        """Return a copy that shares nothing which is worked out on demand, for another thread."""
        return replace(self, names=CatalogNames(self.catalog))

    @cached_property
    def used_features(self) -> frozenset[str]:
        """The features that are on for at least one table."""
        tables = self.catalog.directives.tables.values()
        return self.features.union(*(table.features for table in tables))

    def table(self, oid: int) -> TableView | None:
        """Return the view of a table, None when the role does not see it."""
        if oid not in self._tables:
            self._tables[oid] = self._view_of(oid)
        return self._tables[oid]

    def _view_of(self, oid: int) -> TableView | None:
        table, name = self.catalog.tables.get(oid), self.catalog.base_names.get(oid)
        if table is None or name is None or table.schema not in self.usable_schemas:
            return None
        if not self.privileges.columns(table, "SELECT"):
            return None
        view = TableView(self, table, name)
        # An object type needs a field.
        return view if view.has_node_id or view.columns else None

    def table_named(self, schema: str, name: str) -> TableView | None:
        """Return the view of a table by its SQL name."""
        oid = self.names.tables_by_name.get((schema, name))
        return None if oid is None else self.table(oid)

    def table_of_type(self, oid: int) -> TableView | None:
        """Return the view of the table whose row type that is."""
        found = self.catalog.types.get(oid)
        return self.table(found.relation) if found is not None and found.relation else None

    def lists_enum(self, oid: int) -> bool:
        """Whether introspection lists an enum: the role may use it, or sees a value of it."""
        return self.privileges.can_use_type(oid) or oid in self._enums_in_use

    @cached_property
    def _enums_in_use(self) -> frozenset[int]:
        """The enums of what the role sees; PostgreSQL lets it read columns of types that it may not use."""
        mappings: list[TypeMapping] = []
        for table in filter(None, map(self.table, self.names.tables_by_type.values())):
            mappings += [field.mapping for field in table.columns]
            mappings += [field.mapping for field in table.computed]
        for function in self.catalog.functions:
            if function.schema in self.usable_schemas and self.privileges.can_execute(function):
                types = (function.returns, *(argument.type for argument in function.arguments))
                mappings += [
                    mapping for type_ in types if (mapping := mapping_of(self.catalog, type_)) is not None
                ]
        return frozenset(mapping.enum for mapping in mappings)

    def shows(self, mapping: TypeMapping) -> bool:
        """Whether the type of a value is in a schema that this view shows."""
        return not mapping.enum or self.catalog.types[mapping.enum].schema in self.usable_schemas
