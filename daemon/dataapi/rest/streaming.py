"""Results that are sent while they are read: the rows' bytes, one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dataapi.access.long import Batches, LongTransactions
from dataapi.database.conversation import FIRST_FETCH
from dataapi.errors import DatabaseError
from dataapi.rest import refusals
from dataapi.rest.context import Context, Streamed
from dataapi.rest.media import LINES
from dataapi.rest.request.ranges import content_range
from dataapi.web.messages import Reply, Stream


async def stream(transactions: LongTransactions, context: Context, planned: Streamed) -> Reply:
    """Return the reply whose body is the rows of a read, sent while they come.

    Few rows are a complete answer, which can say how many there are.

    :raises ApiError: what the database refuses when it gives the first rows.
    """
    batches = transactions.stream(
        context.catalog, context.request, context.caller, planned.statement, planned.settings
    )
    try:
        first: list[tuple[Any, ...]] = await anext(batches, [])
    except DatabaseError as error:
        raise refusals.told(error) from None
    context.request.mark("transaction")
    if len(first) < FIRST_FETCH:
        await batches.aclose()
        return await gathered(planned, first)
    return replace(planned.head, stream=_pieces(planned, _with_first(first, batches)))


async def _with_first(first: list[tuple[Any, ...]], others: Batches) -> Batches:
    try:
        yield first
        async for rows in others:
            yield rows
    finally:
        await others.aclose()


async def gathered(planned: Streamed, rows: list[tuple[Any, ...]]) -> Reply:
    """Return the reply of a read whose rows are all there."""

    async def at_once() -> Batches:
        yield rows

    body = b"".join([piece async for piece in _pieces(planned, at_once())])
    said = ("Content-Range", content_range(planned.offset, len(rows), None))
    return replace(planned.head, headers=(*planned.head.headers, said), body=body)


def _pieces(planned: Streamed, batches: Batches) -> Stream:
    is_json = any(name == "Content-Type" and value.startswith(LINES) for name, value in planned.head.headers)
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
            yield b"".join([_line(value) for (value,) in rows])
    finally:
        await batches.aclose()


def _line(value: bytes | str | None) -> bytes:
    # A function's value that is NULL is a line too.
    line = _bytes(value) or b"null"
    if b"\n" in line or b"\r" in line:
        line = line.replace(b"\r", b" ").replace(b"\n", b" ")
    return line + b"\n"


def _bytes(value: bytes | str | None) -> bytes:
    # Columns of type json come as bytes, others as text.
    if isinstance(value, bytes):
        return value
    return value.encode() if value else b""
