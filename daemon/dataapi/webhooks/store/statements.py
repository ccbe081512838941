"""Loads and runs the SQL in the ``.sql`` files of this package.

A line ``-- name: claim`` begins an entry. An entry has one or more statements that run in one transaction.
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
    """Runs SQL with ``$1``-style parameters in one transaction. Implemented by ``Pool`` and by commands."""

    async def fetch(self, text: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of the last statement. Raises ``ApiError``."""


def load_statements(file: str) -> Mapping[str, str]:
    text = files("dataapi.webhooks.store").joinpath(file).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: body.strip().rstrip(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}


async def fetch_with_retries(
    database: SqlRunner, text: str, values: Sequence[object]
) -> list[tuple[Any, ...]]:
    """Run SQL, up to ``MAX_TRIES`` times if it deadlocks. Raises ``ApiError``."""
    for _ in range(MAX_TRIES - 1):
        try:
            return await database.fetch(text, values)
        except DatabaseError as error:
            if not error.serializable_retry:
                raise
    return await database.fetch(text, values)
