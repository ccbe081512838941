"""Changes of tables (POST, PATCH, PUT, DELETE), planned; pure.

Beyond PostgREST, ``PATCH`` with ``Prefer: resolution=match`` changes rows each by an object of its own:
every object of the body names its row by the primary key, or by the columns that ``on_conflict``
names, and sets its other members there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from dataapi.catalog.model import Table
from dataapi.errors import ApiError
from dataapi.query.answers import Answered
from dataapi.query.sql import Compiled
from dataapi.query.written import UPDATED, Missing, OnConflict
from dataapi.rest import refusals
from dataapi.rest.aliases import warned
from dataapi.rest.context import Context, Planned, bind
from dataapi.rest.media import Media
from dataapi.rest.negotiating import as_bytes, negotiated
from dataapi.rest.reply import make_reply
from dataapi.rest.request import payload, preferences
from dataapi.rest.request.grammar import parse_names
from dataapi.rest.request.payload import NOTHING, Payload
from dataapi.rest.request.preferences import Action, Preferences, Resolution, Return
from dataapi.rest.request.ranges import content_range
from dataapi.rest.resolve.columns import known_columns
from dataapi.rest.resolve.selection import Selection, Values, parse
from dataapi.rest.written import Kind, WriteShape, WriteValues, compile_write
from dataapi.web import querystring
from dataapi.web.messages import Reply

_KEY_FILTERS = "Filters must include all and only primary key columns with 'eq' operators"
_NO_WINDOW = "limit/offset querystring parameters are not allowed for PUT"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A change as the request says it.

    :ivar columns, conflict: the parameters ``columns`` and ``on_conflict``, None where they are missing.
    :ivar windowed: whether a stretch of the rows is asked for.
    """

    context: Context
    table: Table
    selection: Selection
    values: Values
    media: Media
    columns: tuple[str, ...] | None
    conflict: tuple[str, ...] | None
    windowed: bool

    @property
    def preferences(self) -> Preferences:
        return self.context.preferences

    @property
    def key(self) -> tuple[str, ...]:
        return self.context.catalog.row_key(self.table)

    @property
    def content_type(self) -> str | None:
        return self.context.request.headers.get("content-type")

    @property
    def shows(self) -> bool:
        return self.preferences.returned is Return.REPRESENTATION

    def total(self, row: Answered) -> int | None:
        """Return the number of rows where the client wants to know it."""
        return row.count if self.preferences.counts else None


def plan(context: Context) -> Planned:
    """Plan a change.

    :raises ApiError: PGRST117 (405) for an unknown method, and whatever is wrong with the request.
    """
    planning = _PLANNING.get(context.request.method)
    if planning is None:
        raise refusals.unsupported(context.request.method)
    table = context.role.tables.find(context.schema, context.target)
    selection, values = parse(context.request.query)
    media = negotiated(context, table, whole=selection.is_whole)
    parameters = _parameters(context.request.query)
    return warned(planning(_Asked(context, table, selection, values, media, *parameters)), selection)


@lru_cache(maxsize=256)
def _parameters(query: str) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None, bool]:
    """Return ``columns``, ``on_conflict`` and whether there is a ``limit`` or an ``offset``."""
    given = dict(reversed(querystring.pairs(query)))
    columns, conflict = (
        parse_names(given[name], name) if name in given else None for name in ("columns", "on_conflict")
    )
    return columns, conflict, "limit" in given or "offset" in given


# ---------------------------------------------------------------- the four actions


def _insert(asked: _Asked) -> Planned:
    rows = _common_rows(asked)
    conflict = _conflict(asked)
    located: tuple[str, ...] = ()
    if asked.preferences.returned is Return.HEADERS_ONLY:
        located = tuple(column.name for column in asked.table.columns if column.name in asked.key)
    shape = _shape(asked, Kind.INSERT, rows, _missing(asked), conflict, located=located)
    action = Action.INSERT if conflict is None else Action.RESOLVED_INSERT

    def finish(row: Answered) -> Reply:
        merged = conflict is not None and conflict.merge and (row.inserted or 0) <= 0
        headers = [("Content-Range", content_range(0, 0, asked.total(row)))]
        if row.location is not None:
            headers.insert(0, ("Location", _location(asked.table, row.location)))
        return _reply(asked, action, row, 200 if merged else 201, headers)

    return _planned(asked, shape, rows, finish)


def _conflict(asked: _Asked) -> OnConflict | None:
    """Return what an insert does about rows that are there already; None without a key to know them by."""
    resolution = asked.preferences.resolution
    if resolution not in (Resolution.MERGE, Resolution.IGNORE):
        return None
    names = known_columns(asked.table, asked.conflict or asked.key)
    return OnConflict(names, resolution is Resolution.MERGE) if names else None


def _update(asked: _Asked) -> Planned:
    if asked.preferences.resolution is Resolution.MATCH:
        return _matched_update(asked)
    rows = _common_rows(asked)
    shape = _shape(asked, Kind.UPDATE, rows, _missing(asked))
    return _planned(asked, shape, rows, lambda row: _affected(asked, Action.UPDATE, row, row.count))


def _common_rows(asked: _Asked) -> Payload:
    """Return the rows of a body, all of the same columns."""
    return payload.read(asked.context.request.body, asked.content_type, asked.columns)


def _matched_update(asked: _Asked) -> Planned:
    """Plan an update of each row by an object of its own."""
    rows, key = _keyed_rows(asked)
    missing = Missing.NULL
    if rows.lacking and asked.preferences.missing is not preferences.Missing.NULL:
        default = asked.preferences.missing is preferences.Missing.DEFAULT
        missing = Missing.DEFAULT if default else Missing.KEPT
    shape = _shape(asked, Kind.UPDATE, rows, missing, key=key)
    return _planned(asked, shape, rows, lambda row: _affected(asked, Action.MATCHED_UPDATE, row, row.count))


def _keyed_rows(asked: _Asked) -> tuple[Payload, tuple[str, ...]]:
    """Return the rows of a body of which each names its own row, and the columns that name it."""
    key = known_columns(asked.table, asked.conflict or asked.key)
    if not key:
        hint = "Name the columns that identify a row with the on_conflict parameter."
        raise ApiError(
            400, "PGRST102", f"'{asked.table.name}' has no primary key to match rows by", hint=hint
        )
    body = asked.context.request.body
    return payload.read_keyed(body, asked.content_type, asked.columns, key), key


def _put(asked: _Asked) -> Planned:
    if asked.windowed:
        raise ApiError(400, "PGRST114", _NO_WINDOW)
    filters = asked.selection.equalities(asked.values)
    if not filters or filters.keys() != set(asked.key):
        raise ApiError(405, "PGRST105", _KEY_FILTERS)
    rows = payload.read(asked.context.request.body, asked.content_type, None)
    if not set(asked.key) <= set(rows.columns):
        raise refusals.other_key()
    shape = _shape(asked, Kind.PUT, rows, conflict=OnConflict(asked.key, True))

    def finish(row: Answered) -> Reply:
        status = (201 if (row.inserted or 0) > 0 else 200) if asked.shows else 204
        return _reply(asked, Action.PUT, row, status, [])

    return _planned(asked, shape, rows, finish)


def _delete(asked: _Asked) -> Planned:
    shape = _shape(asked, Kind.DELETE, NOTHING)
    return _planned(asked, shape, NOTHING, lambda row: _affected(asked, Action.DELETE, row, 0))


_PLANNING: dict[str, Callable[[_Asked], Planned]] = {
    "POST": _insert,
    "PATCH": _update,
    "PUT": _put,
    "DELETE": _delete,
}

# ---------------------------------------------------------------- what they have in common


def _shape(
    asked: _Asked,
    kind: Kind,
    rows: Payload,
    missing: Missing = Missing.NULL,
    conflict: OnConflict | None = None,
    *,
    key: tuple[str, ...] = (),
    located: tuple[str, ...] = (),
) -> WriteShape:
    return WriteShape(
        kind,
        asked.table.schema,
        asked.table.name,
        asked.selection,
        rows.columns,
        rows.many,
        missing,
        conflict,
        key,
        asked.media if asked.shows else None,
        asked.media.single,
        asked.preferences.most is not None and kind in (Kind.UPDATE, Kind.DELETE),
        located,
    )


def _missing(asked: _Asked) -> Missing:
    """Return what columns get that an object lacks; without chosen columns all objects have the same."""
    default = asked.preferences.missing is preferences.Missing.DEFAULT
    return Missing.DEFAULT if default and asked.columns is not None else Missing.NULL


def _planned(asked: _Asked, shape: WriteShape, rows: Payload, finish: Callable[[Answered], Reply]) -> Planned:
    context = asked.context
    project = context.project

    def compile_() -> tuple[Compiled, ...]:
        aggregates, most = project.db_aggregates_enabled, project.max_answer
        return compile_write(context.role, asked.table, shape, aggregates=aggregates, most_bytes=most)

    [compiled] = context.role.plan(shape, shape.size, compile_)
    values = WriteValues(asked.values.lifted, rows.text, asked.preferences.most)
    settings = ((UPDATED, "0"),) if shape.counts else ()
    return Planned((bind(compiled, values),), False, finish, settings, media=asked.media)


def _affected(asked: _Asked, action: Action, row: Answered, shown: int) -> Reply:
    """Return the reply of an update or a delete.

    :param shown: how many rows the range has.
    """
    headers = [("Content-Range", content_range(0, shown, asked.total(row)))]
    return _reply(asked, action, row, 200 if asked.shows else 204, headers)


def _reply(
    asked: _Asked, action: Action, row: Answered, status: int, headers: list[tuple[str, str]]
) -> Reply:
    applied = preferences.applied(asked.preferences, action)
    if not asked.shows:
        return make_reply(asked.context, row, status, None, *headers, applied=applied)
    media = asked.media
    body = as_bytes(media, row.body)
    if media.single:
        body = body.strip()[1:-1]  # without the array's brackets
    return make_reply(asked.context, row, status, media.content_type, *headers, applied=applied, body=body)


def _location(table: Table, key: str) -> str:
    """Return the URL of a row, relative as PostgREST's is.

    :param key: a JSON object of the key columns' texts.
    """
    filters = [
        f"{quote(name, safe='')}={'is.null' if value is None else 'eq.' + quote(value, safe='')}"
        for name, value in json.loads(key).items()
    ]
    return f"/{quote(table.name, safe='')}?{'&'.join(filters)}"
