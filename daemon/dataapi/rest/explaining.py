"""Plans in place of rows: what ``EXPLAIN`` says of a request's statement; pure (reference/rest.md 1.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dataapi.database.message import Bound, Statement
from dataapi.rest.context import Context
from dataapi.rest.media import Explain, Media
from dataapi.rest.reply import VARY
from dataapi.web.messages import Reply


def explaining(statements: Sequence[Bound], explain: Explain) -> tuple[Bound, ...]:
    """Return the statements with the last one explained and not run, unless it is analyzed.

    An analyzed change is made, as everything in a transaction is that is not undone at its end.
    """
    *before, last = statements
    options = ", ".join([f"format {'json' if explain.as_json else 'text'}", *explain.options])
    text = f"explain ({options}) {last.statement.text}"
    return (*before, Bound(Statement(text, last.statement.types, prepared=False), last.values))


def plan_reply(context: Context, media: Media, rows: Sequence[tuple[Any, ...]]) -> Reply:
    """Return the reply that shows a plan, whose lines of text are rows; a JSON one is a single row."""
    lines = [line if isinstance(line, bytes) else str(line).encode() for (line,) in rows]
    headers = (("Content-Type", media.content_type), *context.profile, VARY)
    return Reply(200, headers, b"\n".join(lines))
