"""What one role sees of the catalog in GraphQL terms, found when it is asked for."""

from __future__ import annotations

from functools import cached_property

from dataapi.catalog.field_names import CatalogNames
from dataapi.catalog.model import Catalog, Type
from dataapi.catalog.privileges import Privileges
from dataapi.graphql.schema.table_view import TableView
from dataapi.graphql.schema.type_mapping import TypeMapping, mapping_of


class CatalogView:
    """A catalog as one role sees it.

    :ivar non_null: a many-to-one relationship over NOT NULL columns is non-null
        (``graphql-non-null-relationships``).
    :ivar max_rows: the configured page cap (``db-max-rows``), None without one.
    :ivar features: what ``graphql-features`` turns on for every table.
    """

    def __init__(
        self,
        catalog: Catalog,
        names: CatalogNames,
        role: str,
        *,
        non_null: bool = False,
        max_rows: int | None = None,
        features: frozenset[str] = frozenset(),
        schemas: frozenset[str] | None = None,
    ) -> None:
        self.catalog = catalog
        self.names = names
        self.role = role
        self.privileges = Privileges(catalog, role)
        self.non_null = non_null
        self.max_rows = max_rows
        self.features = features
        self._schemas = frozenset(catalog.search_path) if schemas is None else schemas
        self._tables: dict[int, TableView | None] = {}

    def made(self) -> list[object]:
        """Return the view with those of its tables that were looked at."""
        return [self, *filter(None, self._tables.values())]

    def introspectable(self) -> CatalogView | None:
        """Return the view of the schemas that allow introspection, None when none does."""
        directives = self.catalog.directives
        usable = frozenset(
            name
            for name in self._schemas
            if directives.schema(name).introspection and self.shows_schema(name)
        )
        if not usable:
            return None
        shown = frozenset(name for name in self._schemas if self.shows_schema(name))
        return self if usable == shown else self._with(self.names, usable)

    def apart(self) -> CatalogView:
        """Return the same view with nothing shared that is worked out on demand, for another thread."""
        return self._with(CatalogNames(self.catalog), self._schemas)

    def _with(self, names: CatalogNames, schemas: frozenset[str]) -> CatalogView:
        return CatalogView(
            self.catalog,
            names,
            self.role,
            non_null=self.non_null,
            max_rows=self.max_rows,
            features=self.features,
            schemas=schemas,
        )

    def uses(self, feature: str) -> bool:
        """Whether a feature is on for any table."""
        if feature in self.features:
            return True
        return any(feature in table.features for table in self.catalog.directives.tables.values())

    def table(self, oid: int) -> TableView | None:
        """Return the view of a table, None when the role does not see it."""
        if oid not in self._tables:
            self._tables[oid] = self._view_of(oid)
        return self._tables[oid]

    def _view_of(self, oid: int) -> TableView | None:
        table, name = self.catalog.tables.get(oid), self.catalog.base_names.get(oid)
        if table is None or name is None or not self.shows_schema(table.schema):
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

    def table_by_type(self, name: str) -> TableView | None:
        """Return the view of the table whose type has that name."""
        oid = self.names.tables_by_type.get(name)
        return None if oid is None else self.table(oid)

    def table_by_field(self, name: str) -> TableView | None:
        """Return the view of the table whose root fields begin with that name."""
        oid = self.names.tables_by_field.get(name)
        return None if oid is None else self.table(oid)

    def enum(self, oid: int) -> Type | None:
        """Return an enum type, None when the role does not see its schema."""
        found = self.catalog.types[oid]
        return found if self.shows_schema(found.schema) else None

    def lists_enum(self, oid: int) -> bool:
        """Whether an enum is among the types that introspection shows: the role may use it, or meets it."""
        return self.privileges.can_use_type(oid) or oid in self._met_enums

    @cached_property
    def _met_enums(self) -> frozenset[int]:
        """The enums of what the role sees; PostgreSQL lets it read columns of types that it may not use."""
        mappings: list[TypeMapping] = []
        for table in filter(None, map(self.table, self.names.tables_by_type.values())):
            mappings += [field.mapping for field in table.columns]
            mappings += [field.mapping for field in table.computed]
        for function in self.catalog.functions:
            if self.shows_schema(function.schema) and self.privileges.can_execute(function):
                types = (function.returns, *(argument.type for argument in function.arguments))
                mappings += [
                    mapping for type_ in types if (mapping := mapping_of(self.catalog, type_)) is not None
                ]
        return frozenset(mapping.enum for mapping in mappings)

    def shows_schema(self, name: str) -> bool:
        """Whether the view shows a schema and the role may use it."""
        return name in self._schemas and self.privileges.can_use_schema(name)

    def shows(self, mapping: TypeMapping) -> bool:
        """Whether the type of a value is in a schema that this view shows."""
        return not mapping.enum or self.enum(mapping.enum) is not None
