"""A read as the request says it: the table, what to select, in which order and how much; pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dataapi.errors import ApiError
from dataapi.query.answers import Answered
from dataapi.rest import media, preferences
from dataapi.rest.compiler import compile_read
from dataapi.rest.context import Context, Planned, bind
from dataapi.rest.ranges import Window, content_range, count_of, status_of, window_of_header
from dataapi.rest.reply import make_reply
from dataapi.rest.shape import Shape
from dataapi.rest.unsupported import unsupported
from dataapi.web import querystring
from dataapi.web.messages import Reply, Request

LONGEST_REMEMBERED = 1000
"""Characters of a request that is remembered once it was understood: clients repeat themselves."""

Windows = tuple[tuple[str, Window], ...]
"""Windows by the resource they are for: "" for the table, else the path of an embedded one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One read.

    :ivar windows: the stretch of rows asked for, by resource.
    :ivar single: the answer is one object and not an array.
    :ivar applied: the preferences that are followed, for ``Preference-Applied``.
    """

    shape: Shape
    windows: Windows
    single: bool
    applied: str


_ALLOW = ("Allow", "OPTIONS, GET, HEAD")


def plan(context: Context) -> Planned | Reply:
    """Plan a read of a table, or answer what may be done with the table."""
    if context.request.method == "OPTIONS":
        context.role.tables.find(context.schema, context.target)
        return Reply(200, (_ALLOW,), b"")
    most = context.project.db_max_rows
    asked = read(context.request, context.schema, context.target, most)
    shape = asked.shape
    size = len(shape.select) + sum(len(order) for _, order in shape.orders)
    compiled = context.role.plan(shape, size, lambda: (compile_read(context.role.tables, shape, most),))
    statements = tuple(bind(each, dict(asked.windows)) for each in compiled)
    return Planned(statements, True, lambda row: _finish(context, asked, row))


def _finish(context: Context, asked: Reading, row: Answered) -> Reply:
    offset = asked.windows[0][1].offset
    status = status_of(offset, row.count, row.total)
    body = row.body or b""
    if asked.single:
        if row.count != 1:
            raise ApiError(
                406,
                "PGRST116",
                "Cannot coerce the result to a single JSON object",
                details=f"The result contains {row.count} rows",
            )
        body = body[1:-1]  # without the array's brackets
    return make_reply(
        context,
        row,
        status,
        media.OBJECT if asked.single else media.JSON,
        ("Content-Range", content_range(offset, row.count, row.total)),
        applied=asked.applied,
        body=body,
    )


def read(request: Request, schema: str, table: str, most: int | None) -> Reading:
    """Return the read that a request asks for.

    :param most: the most rows that any resource gives (``db-max-rows``).
    :raises ApiError: what cannot be understood, or is not available.
    """
    header = request.headers.get
    place = (schema, table, request.query)
    wishes = (header("range"), header("prefer"), header("accept"))
    size = len(request.query) + sum(len(wish) for wish in wishes if wish)
    understand = _remembered if size <= LONGEST_REMEMBERED else _read
    return understand(*place, *wishes, most)


def _read(
    schema: str,
    table: str,
    query: str,
    header_range: str | None,
    prefer: str | None,
    accept: str | None,
    most: int | None,
) -> Reading:
    select, orders, windows = _parameters(query)
    top = windows.pop("", Window()).within(window_of_header(header_range))
    asked = {"": top.capped(most), **{path: window.capped(most) for path, window in windows.items()}}
    preferred = preferences.read(prefer)
    shape = Shape(
        schema,
        table,
        select,
        tuple(orders.items()),
        tuple(path for path, window in asked.items() if window.limit is not None),
        tuple(path for path, window in asked.items() if window.offset),
        preferred.count is preferences.Count.EXACT,
    )
    applied = [part.strip() for part in prefer.split(",")] if prefer else []
    kept = [part for part in applied if part in ("count=exact", "handling=strict", "handling=lenient")]
    return Reading(shape, tuple(asked.items()), media.wants_object(accept), ", ".join(kept))


_remembered = lru_cache(maxsize=1024)(_read)


def _parameters(query: str) -> tuple[str, dict[str, str], dict[str, Window]]:
    """Return what to select, the orders, and the windows of the query string."""
    select, orders, limits, offsets = None, dict[str, str](), dict[str, int](), dict[str, int]()
    for name, value in querystring.pairs(query):
        path, _, word = name.rpartition(".")
        if name == "select" and select is None:
            select = value
        elif word == "order" and path not in orders:
            orders[path] = value
        elif word == "limit" and path not in limits:
            limits[path] = count_of(value, name)
        elif word == "offset" and path not in offsets:
            offsets[path] = count_of(value, name)
        elif word in ("select", "order", "limit", "offset"):
            raise ApiError(400, "PGRST100", f'The parameter "{name}" cannot be given twice')
        else:
            raise unsupported(f'Filters are not available yet: the parameter "{name}".')
    windows = {
        path: Window(limits.get(path), offsets.get(path, 0)) for path in dict.fromkeys((*limits, *offsets))
    }
    return "*" if select is None else select, orders, windows
