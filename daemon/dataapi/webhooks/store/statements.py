"""The store's SQL, which lies beside its modules in ``.sql`` files.

A line ``-- name: claim`` begins a statement, or several that are sent as one transaction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from dataapi.errors import DatabaseError
from dataapi.webhooks.migrate import Fetches

MOST_TRIES = 4

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def statements(file: str) -> Mapping[str, str]:
    """Return the statements of a file by name."""
    text = files("dataapi.webhooks.store").joinpath(file).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: body.strip().rstrip(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}


async def persistently(database: Fetches, text: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """Run SQL that locks many rows, once more whenever it met somebody who locked them in another order.

    :raises ApiError: as ``fetch`` does; a deadlock only the last of a few times.
    """
    for _ in range(MOST_TRIES - 1):
        try:
            return await database.fetch(text, values)
        except DatabaseError as error:
            if not error.serializable_retry:
                raise
    return await database.fetch(text, values)
