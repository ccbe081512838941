"""Reading a database's catalog by one query, building the snapshot in a thread, and when it is outdated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import Any

from twisted.internet.threads import deferToThread

from dataapi.catalog.build import Document, build_catalog, with_grants
from dataapi.catalog.model import Catalog, Function, Table

Refresh = Callable[[Catalog], Awaitable[Catalog]]
"""Returns the catalog that serves, having made sure that this one is not outdated."""

FINGERPRINT = files("dataapi.catalog").joinpath("fingerprint.sql").read_text(encoding="utf-8")
"""Asks for a text that changes with the catalog, and whether it was read on a standby."""

OUTDATED = frozenset(
    {
        *("42703", "42P01", "42883", "42704", "3F000"),
        *("22P02", "22003", "22007", "22008", "42804", "42846", "42809", "42P10", "428C9"),
    }
)
"""SQLSTATEs that a statement may fail with because the catalog it was made by is outdated.

A column, table, function, type or schema that does not exist; a value or an expression of another type than a
column's; an object of another kind; a unique key that does not exist, and a column that is now generated.
"""


async def as_it_is(catalog: Catalog) -> Catalog:
    """Return the catalog: the ``Refresh`` of one that nothing changes."""
    return catalog


Regrant = Callable[[Catalog, str, Table | Function], Awaitable[Catalog]]
"""Returns the catalog that serves, having looked what a role has been granted on a table or function."""


async def as_granted(catalog: Catalog, role: str, item: Table | Function) -> Catalog:  # noqa: ARG001
    """Return the catalog: the ``Regrant`` of one that nothing changes."""
    return catalog


Fetch = Callable[[str, Sequence[Any]], Awaitable[list[tuple[Any, ...]]]]
"""Runs SQL with ``$n`` slots as the login role and returns its rows."""

InThread = Callable[..., Awaitable[Any]]

REFLECTION = files("dataapi.catalog").joinpath("reflection.sql").read_text(encoding="utf-8")
GRANTS = files("dataapi.catalog").joinpath("grants.sql").read_text(encoding="utf-8")
DISTRIBUTION = files("dataapi.catalog").joinpath("distribution.sql").read_text(encoding="utf-8")


async def reflect(
    fetch: Fetch,
    search_path: Sequence[str],
    generation: int,
    in_thread: InThread = deferToThread,
    earlier: Catalog | None = None,
    features: frozenset[str] = frozenset(),
) -> Catalog:
    """Read what the database holds in the schemas of the search path.

    :param in_thread: runs a function off the reactor, like ``deferToThread``.
    :param earlier: a snapshot whose time zones are still those of the server, which takes long to name them;
        where nothing has changed since, its content comes back under the new generation.
    :param features: the features that the configuration turns on for every table.
    :raises ApiError: whatever ``fetch`` raises when the database can't be asked.
    """
    timezones = earlier.timezones if earlier else frozenset()
    rows = await fetch(REFLECTION, (list(search_path), not timezones))
    if _has_citus(rows):
        rows = [*rows, *await fetch(DISTRIBUTION, ())]
    content: bytes = await in_thread(_digest, rows)
    if earlier and earlier.content == content:
        return replace(earlier, generation=generation)
    build = partial(build_catalog, generation=generation, search_path=tuple(search_path), features=features)
    catalog: Catalog = await in_thread(_build, rows, build)
    return replace(catalog, content=content, timezones=timezones or catalog.timezones)


async def regrant(fetch: Fetch, catalog: Catalog, role: str, item: Table | Function) -> Catalog:
    """Look what has been granted on one table or function, and to the role by membership.

    :return: the same catalog if nothing has changed, else the next generation.
    :raises ApiError: whatever ``fetch`` raises when the database can't be asked.
    """
    rows = await fetch(GRANTS, (role, item.oid, isinstance(item, Function)))
    if not rows:
        return catalog
    [(granted,)] = rows
    newer = with_grants(catalog, role, item, *json.loads(granted))
    if newer == catalog:
        return catalog
    content = hashlib.blake2b(catalog.content + granted.encode(), digest_size=16).digest()
    return replace(newer, generation=catalog.generation + 1, content=content)


def _has_citus(rows: Iterable[tuple[Any, ...]]) -> bool:
    """Return whether the database has the extension, by the server's facts."""
    [facts] = next(json.loads(body) for part, body in rows if part == "server")
    return bool(facts[2])


def _digest(rows: Iterable[tuple[Any, ...]]) -> bytes:
    """Return a digest of the content, without time zones."""
    digest = hashlib.blake2b(digest_size=16)
    for part, body in rows:
        if body is not None and part != "timezones":
            digest.update(part.encode() + b"\0" + (body if isinstance(body, bytes) else body.encode()))
    return digest.digest()


def _build(rows: Iterable[tuple[Any, ...]], build: Callable[[Document], Catalog]) -> Catalog:
    """Build the catalog of the document that the rows make."""
    document: dict[str, list[Any]] = {}
    for part, body in rows:
        if body is not None:
            document.setdefault(part, []).extend(json.loads(body))
    return build(document)
