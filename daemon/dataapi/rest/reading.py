"""A read as the request says it: the table, what to select, in which order and how much; pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dataapi.access.gate import REST_PREFIX
from dataapi.errors import ApiError
from dataapi.rest import media, preferences
from dataapi.rest.ranges import Window, count_of, window_of_header
from dataapi.rest.unsupported import unsupported
from dataapi.web import querystring
from dataapi.web.messages import Request

LONGEST_REMEMBERED = 1000
"""Characters of a request that is remembered once it was understood: clients repeat themselves."""

Windows = tuple[tuple[str, Window], ...]
"""Windows by the resource they are for: "" for the table, else the path of an embedded one."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a read decides its statement.

    :ivar orders: ``order`` values by resource, as in ``Windows``.
    :ivar limited, moved: the resources with a limit, and with an offset; how much is a value.
    :ivar counted: whether all matching rows are counted.
    """

    schema: str
    table: str
    select: str
    orders: tuple[tuple[str, str], ...]
    limited: tuple[str, ...]
    moved: tuple[str, ...]
    counted: bool


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


def table_of(path: str) -> str:
    """Return the table that a path below the API's prefix names.

    :raises ApiError: the path names none (PGRST125), or what is not there yet (PGRST127).
    """
    name = path[len(REST_PREFIX) :].strip("/") if path.startswith(REST_PREFIX) else path
    if not name:
        raise unsupported("The API's description at its root is not available yet.")
    if name.startswith("rpc/"):
        raise unsupported("Functions below /rpc/ are not available yet.")
    if "/" in name:
        raise ApiError(404, "PGRST125", "Invalid path specified in request URL")
    return name


def schema_of(request: Request, schemas: tuple[str, ...]) -> str:
    """Return the exposed schema that a request asks for, the first one when it asks for none.

    :raises ApiError: PGRST106 (406), the schema is not exposed.
    """
    header = "accept-profile" if request.method in ("GET", "HEAD", "OPTIONS") else "content-profile"
    asked = request.headers.get(header)
    if asked is None:
        return schemas[0]
    if asked not in schemas:
        hint = f"Only the following schemas are exposed: {', '.join(schemas)}"
        raise ApiError(406, "PGRST106", f"Invalid schema: {asked}", hint=hint)
    return asked


def read(request: Request, schemas: tuple[str, ...], most: int | None) -> Reading:
    """Return the read that a request asks for.

    :param most: the most rows that any resource gives (``db-max-rows``).
    :raises ApiError: what cannot be understood, or is not available.
    """
    header = request.headers.get
    place = (schema_of(request, schemas), table_of(request.path), request.query)
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
        preferred.counted,
    )
    return Reading(shape, tuple(asked.items()), media.wants_object(accept), preferred.applied)


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
