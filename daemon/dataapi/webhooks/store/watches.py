"""The watches of a database's tables, and how they stand (docs/reference/webhooks.md, Row changes)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dataapi.webhooks.store.statements import statements

WATCHES = statements("watches.sql")["watches"]
"""Reads the rows that ``watches`` takes; needs no privilege, nor the schema ``webhooks``."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch of a table.

    :ivar definition: the arguments of ``webhooks.watch`` by name, empty if somebody changed its comment.
    :ivar fails: whether writes to the table fail.
    :ivar state: why, what else is to be known, or ``ok``.
    """

    table: str
    type: str
    definition: Mapping[str, Any]
    fails: bool
    state: str


def watches(rows: Iterable[tuple[Any, ...]]) -> list[Watch]:
    """Return the watches of the rows of ``WATCHES``."""
    return [Watch(table, kind, json.loads(text), fails, state) for table, kind, text, fails, state in rows]
