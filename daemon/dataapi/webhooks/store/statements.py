"""Loading the store's SQL from the ``.sql`` files beside its modules, and running it.

A line ``-- name: claim`` begins a statement, or several that are sent as one transaction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Protocol

from dataapi.http.errors import DatabaseError

MAX_TRIES = 4

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class SqlRunner(Protocol):
    """Runs SQL with ``$1`` … parameters as one transaction: a ``Pool``, or a command's connection."""

    async def fetch(self, text: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the last statement's rows; raises ``ApiError``."""


def statements(file: str) -> Mapping[str, str]:
    """Return the statements of a file by name."""
    text = files("dataapi.webhooks.store").joinpath(file).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: body.strip().rstrip(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}


async def persistently(database: SqlRunner, text: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """Run SQL that locks many rows, up to ``MAX_TRIES`` times if it deadlocks; raises ``ApiError``."""
    for _ in range(MAX_TRIES - 1):
        try:
            return await database.fetch(text, values)
        except DatabaseError as error:
            if not error.serializable_retry:
                raise
    return await database.fetch(text, values)
