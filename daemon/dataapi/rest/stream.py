"""Streams result rows as CSV or JSON lines."""

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
from dataapi.rest.statements import PENDING_ROW

Rows = list[tuple[Any, ...]]

_NOT_MODIFIED = 304


async def stream(
    transactions: MultiMessageTransactions,
    catalog: Catalog,
    http: Request,
    caller: Caller,
    request: ApiRequest,
    plan: StreamPlan,
) -> Reply:
    """Return a reply that streams the rows of a read.

    A small number of rows is returned as a complete reply, with a ``Content-Range``.

    :raises ApiError: A database error occurs before the first rows.
    """
    if request.preconditions is not None:
        head = _head(request, plan)
        if head.status == _NOT_MODIFIED:
            return head
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
    return _head(request, plan)._replace(stream=_body(plan, _with_first(first, batches)))


def statement_of(request: ApiRequest, plan: StreamPlan) -> Bound:
    [statement] = plan.statements
    return statement.bind(request.values)


def _head(request: ApiRequest, plan: StreamPlan) -> Reply:
    headers = (*location(request), *plan.headers)
    reply = make_reply(request, Action.STREAM, PENDING_ROW, 200, plan.media.content_type, headers)
    if request.preconditions is None:
        return reply
    # It is not known yet whether there are rows.
    return respond.conditional_reply(request.preconditions, reply, exists=True)


async def _with_first(first: Rows, others: RowBatches) -> RowBatches:
    try:
        yield first
        async for rows in others:
            yield rows
    finally:
        await others.aclose()


async def complete(request: ApiRequest, plan: StreamPlan, rows: Rows) -> Reply:
    async def only_batch() -> RowBatches:
        yield rows

    head = _head(request, plan)
    if head.status == _NOT_MODIFIED:
        return head
    body = b"".join([piece async for piece in _body(plan, only_batch())])
    header = ("Content-Range", content_range(request.values.offset, len(rows), None))
    return head._replace(headers=(*head.headers, header), body=body)


def _body(plan: StreamPlan, batches: RowBatches) -> Stream:
    if plan.media.kind is MediaKind.LINES:
        return stream_json_lines(batches)
    return stream_rows(batches, prefix=plan.prefix)


async def stream_rows(batches: RowBatches, *, prefix: bytes = b"") -> Stream:
    """Yield rows of one text column as lines. Closing the stream ends the transaction.

    As in a complete reply, there is no newline after the last row.

    :raises ApiError: A database error occurs. Before the first piece, the error can still be sent as a
        response.
    """
    separator, started = prefix, not prefix
    try:
        async for rows in batches:
            if rows:
                yield separator + b"\n".join([as_bytes(value) for (value,) in rows])
                separator, started = b"\n", True
        if not started:
            yield prefix
    finally:
        await batches.aclose()


async def stream_json_lines(batches: RowBatches) -> Stream:
    """Yield the JSON value of each row as one line.

    PostgreSQL preserves newlines between the tokens of ``json`` values. They are replaced with spaces.
    """
    try:
        async for rows in batches:
            yield b"".join([_line(value) for (value,) in rows])
    finally:
        await batches.aclose()


def _line(value: bytes | str | None) -> bytes:
    # A function's NULL result becomes the line ``null``.
    line = as_bytes(value) or b"null"
    if b"\n" in line or b"\r" in line:
        line = line.replace(b"\r", b" ").replace(b"\n", b" ")
    return line + b"\n"
