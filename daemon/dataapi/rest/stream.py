"""Reads whose rows are sent while they come."""

from __future__ import annotations

from typing import Any

from dataapi.auth.caller import Caller
from dataapi.auth.transaction import Batches, MultiMessageTransactions
from dataapi.catalog.model import Catalog
from dataapi.concurrency.tasks import next_item
from dataapi.database.open_transaction import FIRST_FETCH
from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Reply, Request, Stream
from dataapi.rest import respond
from dataapi.rest.negotiation import LINES
from dataapi.rest.plan.role import StreamPlan
from dataapi.rest.respond import as_bytes, content_range

Rows = list[tuple[Any, ...]]


async def stream(
    transactions: MultiMessageTransactions, catalog: Catalog, http: Request, caller: Caller, plan: StreamPlan
) -> Reply:
    """Return the reply whose body is the rows of a read, sent while they come.

    Few rows are answered at once, with a ``Content-Range``.

    :raises ApiError: an error of the database before the first rows.
    """
    batches = transactions.stream(
        catalog, http, caller, plan.statement, plan.settings, by_replica=plan.by_replica
    )
    try:
        first: Rows = await next_item(batches, [])
    except DatabaseError as error:
        raise respond.client_error(error) from None
    if len(first) < FIRST_FETCH:
        await batches.aclose()
        return await complete(plan, first)
    return plan.head._replace(stream=_pieces(plan, _with_first(first, batches)))


async def _with_first(first: Rows, others: Batches) -> Batches:
    try:
        yield first
        async for rows in others:
            yield rows
    finally:
        await others.aclose()


async def complete(plan: StreamPlan, rows: Rows) -> Reply:
    """Return the reply of a read whose rows are all there."""

    async def at_once() -> Batches:
        yield rows

    body = b"".join([piece async for piece in _pieces(plan, at_once())])
    header = ("Content-Range", content_range(plan.offset, len(rows), None))
    return plan.head._replace(headers=(*plan.head.headers, header), body=body)


def _pieces(plan: StreamPlan, batches: Batches) -> Stream:
    is_json = any(name == "Content-Type" and value.startswith(LINES) for name, value in plan.head.headers)
    return stream_json_lines(batches) if is_json else stream_rows(batches, prefix=plan.prefix)


async def stream_rows(batches: Batches, *, prefix: bytes = b"") -> Stream:
    """Give the bytes of rows of one text column each as lines; closing it ends the transaction.

    As in an answer that is made at once, no line end comes behind the last row.

    :param prefix: the bytes before the first row, such as a header line with its end.
    :raises ApiError: an error of the database; before the first piece it can still be answered.
    """
    before, begun = prefix, not prefix
    try:
        async for rows in batches:
            if rows:
                yield before + b"\n".join([as_bytes(value) for (value,) in rows])
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
    line = as_bytes(value) or b"null"
    if b"\n" in line or b"\r" in line:
        line = line.replace(b"\r", b" ").replace(b"\n", b" ")
    return line + b"\n"
