"""Results that are sent while they are read: the rows' bytes, one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dataapi.access.long import Batches, LongTransactions
from dataapi.rest.context import Context, Streamed
from dataapi.web.messages import Reply, Stream

NDJSON = "application/x-ndjson"


def stream(transactions: LongTransactions, context: Context, planned: Streamed) -> Reply:
    """Return the reply whose body is the rows of a read, sent while they come."""
    batches = transactions.stream(
        context.catalog, context.request, context.caller, planned.statement, planned.settings
    )
    return replace(planned.head, stream=_pieces(planned, batches))


async def gathered(planned: Streamed, rows: list[tuple[Any, ...]]) -> Reply:
    """Return the reply of a read whose rows are all there, as in a batch."""

    async def at_once() -> Batches:
        yield rows

    return replace(planned.head, body=b"".join([piece async for piece in _pieces(planned, at_once())]))


def _pieces(planned: Streamed, batches: Batches) -> Stream:
    is_json = any(name == "Content-Type" and value.startswith(NDJSON) for name, value in planned.head.headers)
    return stream_json_lines(batches) if is_json else stream_rows(batches, prefix=planned.prefix)


async def stream_rows(batches: Batches, *, prefix: bytes = b"") -> Stream:
    """Give the bytes of rows of one text column each as lines; closing it ends the transaction.

    As in an answer that is made at once, no line end comes behind the last row.

    :param prefix: what comes before the first row, such as a header line with its end.
    :raises ApiError: what the database refuses; before the first piece it can still be told.
    """
    before, begun = prefix, not prefix
    try:
        async for rows in batches:
            if rows:
                yield before + b"\n".join([_bytes(value) for (value,) in rows])
                before, begun = b"\n", True
        if not begun:
            yield prefix
    finally:
        await batches.aclose()


async def stream_json_lines(batches: Batches) -> Stream:
    """Give rows of one JSON value each as lines.

    A line end within such a value is white space between its tokens, as PostgreSQL keeps it in
    columns of type ``json``; within strings it is escaped.
    """
    try:
        async for rows in batches:
            yield b"".join([_line(_bytes(value)) for (value,) in rows])
    finally:
        await batches.aclose()


def _line(value: bytes) -> bytes:
    if b"\n" in value or b"\r" in value:
        value = value.replace(b"\r", b" ").replace(b"\n", b" ")
    return value + b"\n"


def _bytes(value: bytes | str | None) -> bytes:
    # Columns of type json come as bytes, others as text.
    if isinstance(value, bytes):
        return value
    return value.encode() if value else b""
