"""Watches on tables, and their state (docs/reference/webhooks.md, Row changes)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dataapi.webhooks.store.statements import load_statements

WATCHES = load_statements("watches.sql")["watches"]
"""Query for watches. Requires no privileges and does not access the schema ``webhooks``."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch on a table.

    :ivar definition: arguments of ``webhooks.watch`` by name, or empty if the stored definition was changed.
    :ivar fails: whether writes to the table fail.
    :ivar state: ``ok``, or a description of a problem.
    """

    table: str
    type: str
    definition: Mapping[str, Any]
    fails: bool
    state: str


def watches(rows: Iterable[tuple[Any, ...]]) -> list[Watch]:
    return [Watch(table, kind, json.loads(text), fails, state) for table, kind, text, fails, state in rows]
