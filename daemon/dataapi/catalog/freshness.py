"""Which errors may mean that the database has changed and nobody said so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from dataapi.catalog.model import Catalog

Refresh = Callable[[Catalog], Awaitable[Catalog]]
"""Returns the catalog that serves, having made sure that the given one is not outdated."""

FINGERPRINT = files("dataapi.catalog").joinpath("fingerprint.sql").read_text(encoding="utf-8")
"""Asks for a text that changes with the catalog."""

UNKNOWN_NAMES = frozenset({"42703", "42P01", "42883", "42704", "3F000"})
"""SQLSTATEs of a column, table, function, type or schema that does not exist."""


async def as_it_is(catalog: Catalog) -> Catalog:
    """Return the catalog: the ``Refresh`` of one that nothing changes."""
    return catalog
