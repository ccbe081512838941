"""Reading a database's catalog: one query, then a thread that builds the snapshot."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from twisted.internet.threads import deferToThread

from dataapi.catalog.build import build_catalog
from dataapi.catalog.model import Catalog
from dataapi.threads import nap

Fetch = Callable[[str, Sequence[Any]], Awaitable[list[tuple[Any, ...]]]]
"""Runs SQL with ``$n`` slots as the login role and returns its rows."""

InThread = Callable[..., Awaitable[Any]]

REFLECTION = files("dataapi.catalog").joinpath("reflection.sql").read_text(encoding="utf-8")


async def reflect(
    fetch: Fetch,
    search_path: Sequence[str],
    generation: int,
    in_thread: InThread = deferToThread,
    timezones: frozenset[str] = frozenset(),
) -> Catalog:
    """Read what the database holds in the schemas of the search path.

    :param in_thread: runs a function off the reactor, like ``deferToThread``.
    :param timezones: those of an earlier snapshot; without, the server is asked, whom it takes long.
    :raises ApiError: whatever ``fetch`` raises when the database can't be asked.
    """
    rows = await fetch(REFLECTION, (list(search_path), not timezones))
    catalog: Catalog = await in_thread(_build, rows, tuple(search_path), generation)
    return replace(catalog, timezones=timezones) if timezones else catalog


def _build(rows: Iterable[tuple[Any, ...]], search_path: tuple[str, ...], generation: int) -> Catalog:
    document: dict[str, list[Any]] = {}
    for part, body in rows:
        if body is not None:
            document.setdefault(part, []).extend(json.loads(body))
            nap()
    return build_catalog(document, generation, search_path, nap)
