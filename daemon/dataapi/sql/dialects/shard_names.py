"""Replaces the names of Citus shards in error messages with table names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dataapi.catalog.model import Catalog
from dataapi.http.errors import DatabaseError

_PART = re.compile(r'"((?:[^"]|"")+)_([0-9]{1,19})"')


def naming_tables(error: DatabaseError, catalog: Catalog) -> DatabaseError:
    """Return an error that names tables and constraints instead of shards and their constraints.

    Citus appends a shard's number to the names of the shard and its constraints.
    """
    if not catalog.clustered:
        return error
    texts = [text for text in (error.message, error.details, error.hint) if isinstance(text, str)]
    parts = [part for text in texts for part in _PART.findall(text)]
    known = set(_names(catalog)) if parts else set()
    shards = {number for name, number in parts if name.replace('""', '"') in known}
    details = error.details
    return error.replaced(
        message=_named(error.message, shards),
        hint=error.hint and _named(error.hint, shards),
        details=_named(details, shards) if isinstance(details, str) else details,
    )


def _named(text: str, shards: set[str]) -> str:
    return _PART.sub(lambda part: f'"{part[1]}"' if part[2] in shards else part[0], text)


def _names(catalog: Catalog) -> Iterator[str]:
    distributed = {table.oid for table in catalog.tables.values() if table.distributed_by is not None}
    for oid in distributed:
        yield catalog.tables[oid].name
        yield from (key.name for key in catalog.tables[oid].unique_keys)
    yield from (key.name for key in catalog.foreign_keys if key.table in distributed)
