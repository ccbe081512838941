"""Reads whose rows are sent while they come."""

from __future__ import annotations

from typing import Any

from dataapi.auth.caller import Caller
from dataapi.auth.transaction import MultiMessageTransactions, RowBatches
from dataapi.catalog.model import Catalog
from dataapi.concurrency.tasks import next_item
from dataapi.database.message import Bound
from dataapi.database.open_transaction import FIRST_FETCH
from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Reply, Request, Stream
from dataapi.rest import respond
from dataapi.rest.negotiation import MediaKind
from dataapi.rest.parse.preferences import Action
from dataapi.rest.parse.request import ApiRequest
from dataapi.rest.plan.model import StreamPlan
from dataapi.rest.respond import as_bytes, content_range, location, make_reply
from dataapi.rest.statements import TO_COME

Rows = list[tuple[Any, ...]]


async def stream(
    transactions: MultiMessageTransactions,
    catalog: Catalog,
    http: Request,
    caller: Caller,
    request: ApiRequest,
    plan: StreamPlan,
) -> Reply:
    """Return the reply whose body is the rows of a read, sent while they come.

    Few rows are answered at once, with a ``Content-Range``.

    :raises ApiError: an error of the database before the first rows.
    """
    batches = transactions.stream(
        catalog, http, caller, statement_of(request, plan), plan.settings, by_replica=plan.by_replica
    )
    try:
        first: Rows = await next_item(batches, [])
    except DatabaseError as error:
        raise respond.client_error(error) from None
    if len(first) < FIRST_FETCH:
        await batches.aclose()
        return await complete(request, plan, first)
    return _head(request, plan)._replace(stream=_pieces(plan, _with_first(first, batches)))


def statement_of(request: ApiRequest, plan: StreamPlan) -> Bound:
    """Return the statement of a stream, bound to the values of a request."""
    [statement] = plan.statements
    return statement.bind(request.values)


def _head(request: ApiRequest, plan: StreamPlan) -> Reply:
    """Return the reply without its body."""
    content_type = plan.media.content_type
    return make_reply(request, Action.STREAM, TO_COME, 200, content_type, location(request))


async def _with_first(first: Rows, others: RowBatches) -> RowBatches:
    try:
        yield first
        async for rows in others:
            yield rows
    finally:
        await others.aclose()


async def complete(request: ApiRequest, plan: StreamPlan, rows: Rows) -> Reply:
    """Return the reply of a read whose rows are all there."""

    async def at_once() -> RowBatches:
        yield rows

    head = _head(request, plan)
    body = b"".join([piece async for piece in _pieces(plan, at_once())])
    header = ("Content-Range", content_range(request.values.offset, len(rows), None))
    return head._replace(headers=(*head.headers, header), body=body)


def _pieces(plan: StreamPlan, batches: RowBatches) -> Stream:
    if plan.media.kind is MediaKind.LINES:
        return stream_json_lines(batches)
    return stream_rows(batches, prefix=plan.prefix)


async def stream_rows(batches: RowBatches, *, prefix: bytes = b"") -> Stream:
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


async def stream_json_lines(batches: RowBatches) -> Stream:
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
