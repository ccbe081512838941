"""Short ways to make messages in tests."""

from __future__ import annotations

from typing import Any

from dataapi.database.message import Bound, Message, Statement


def message(text: str, *values: str | None, types: tuple[str, ...] | None = None, **named: Any) -> Message:
    """Make a message of one statement, as ``anon`` and with slots of type text unless said otherwise."""
    bound = Bound(Statement(text, types or ("text",) * len(values)), values)
    fields: dict[str, Any] = {"role": "anon", "settings": (), "statements": (bound,), **named}
    return Message(**fields)
