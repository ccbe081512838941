"""Reads the catalog from the database, and detects whether it is outdated."""

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
"""Returns the current catalog, after a reload if the given catalog is outdated."""

FINGERPRINT = files("dataapi.catalog").joinpath("fingerprint.sql").read_text(encoding="utf-8")

OUTDATED_CODES = frozenset(
    {
        *("42703", "42P01", "42883", "42704", "3F000"),
        *("22P02", "22003", "22007", "22008", "42804", "42846", "42809", "42P10", "428C9"),
    }
)
"""SQLSTATEs that may be caused by an outdated catalog.

They report a missing column, table, function, type or schema; a type mismatch; an object of another kind; a
missing unique key; or a column that is now generated.
"""


async def no_refresh(catalog: Catalog) -> Catalog:
    return catalog


Regrant = Callable[[Catalog, str, Table | Function], Awaitable[Catalog]]


async def no_regrant(catalog: Catalog, role: str, item: Table | Function) -> Catalog:  # noqa: ARG001
    return catalog


Fetch = Callable[[str, Sequence[Any]], Awaitable[list[tuple[Any, ...]]]]
"""Runs SQL with ``$n`` parameters as the login role, and returns the rows."""

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
    """Read the schemas of the search path into a catalog.

    :param in_thread: runs a function in a thread, like ``deferToThread``.
    :param earlier: a catalog of the same server. Its time zones are reused, because listing them is slow. If
        nothing has changed since, this catalog is returned with the new generation.
    :raises ApiError: if ``fetch`` fails.
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
    """Read the grants on one table or function, and the role's memberships.

    :return: the same catalog if nothing has changed, otherwise the next generation.
    :raises ApiError: if ``fetch`` fails.
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
    [facts] = next(json.loads(body) for part, body in rows if part == "server")
    return bool(facts[2])


def _digest(rows: Iterable[tuple[Any, ...]]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part, body in rows:
        if body is not None and part != "timezones":
            digest.update(part.encode() + b"\0" + (body if isinstance(body, bytes) else body.encode()))
    return digest.digest()


def _build(rows: Iterable[tuple[Any, ...]], build: Callable[[Document], Catalog]) -> Catalog:
    document: dict[str, list[Any]] = {}
    for part, body in rows:
        if body is not None:
            document.setdefault(part, []).extend(json.loads(body))
    return build(document)
