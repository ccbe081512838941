"""Names of a change's columns to what is written there: types, conversions and defaults; pure."""

from __future__ import annotations

from collections.abc import Iterable

from dataapi.catalog.model import Catalog, Column, Table, Type
from dataapi.database.quoting import quote_identifier, quote_literal
from dataapi.errors import ApiError
from dataapi.query.writer import qualified
from dataapi.query.written import Target
from dataapi.rest.resolve.types import JSON, OWN_SCHEMA

_JSON = f'{OWN_SCHEMA}."json"'


def targets_of(catalog: Catalog, table: Table, names: Iterable[str]) -> tuple[Target, ...]:
    """Return the columns of those names.

    :raises ApiError: PGRST204 (400), the table has no such column.
    """
    return tuple(_target(catalog, table, name) for name in names)


def known_columns(table: Table, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that ``on_conflict`` chose, as they are.

    :raises ApiError: 42703 (400) as PostgreSQL's, the table has no such column.
    """
    for name in names:
        if table.column(name) is None:
            raise ApiError(400, "42703", f'column "{name}" does not exist')
    return names


def _target(catalog: Catalog, table: Table, name: str) -> Target:
    column = table.column(name)
    if column is None:
        message = f"Could not find the '{name}' column of '{table.name}' in the schema cache"
        raise ApiError(400, "PGRST204", message)
    default = _default(catalog, table, column)
    made = catalog.representations.get((JSON, column.type))
    if made is not None:
        return Target(name, _JSON, qualified(made), default)
    # A domain checks values when they are assigned; as the type of a member it would refuse one that lacks.
    return Target(name, _named(catalog.underlying(catalog.types[column.type])), default=default)


def _named(type_: Type) -> str:
    """Return a type's SQL name; without a length, which those that SQL has words for would have."""
    own = type_.schema == OWN_SCHEMA
    return f"{OWN_SCHEMA}.{quote_identifier(type_.name)}" if own else qualified(type_)


def _default(catalog: Catalog, table: Table, column: Column) -> str | None:
    """Return SQL of what a column gets when an insert does not name it, None for null."""
    if column.generated:
        return None
    if column.identity:
        sequence = f"pg_catalog.pg_get_serial_sequence({quote_literal(qualified(table))}, "
        return f"pg_catalog.nextval({sequence}{quote_literal(column.name)})::regclass)"
    return column.default or catalog.types[column.type].default
