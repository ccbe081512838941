"""Plans mutations of tables (POST, PATCH, PUT, DELETE); pure.

Beyond PostgREST, ``PATCH`` with ``Prefer: resolution=match`` updates each row from an object of its own:
every object of the body names its row by the primary key, or by the columns of ``on_conflict``,
and sets its other members there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from urllib.parse import quote

from dataapi.catalog.model import Table
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply
from dataapi.rest import respond
from dataapi.rest.negotiation import Media, as_bytes
from dataapi.rest.parse import body as payload
from dataapi.rest.parse import preferences
from dataapi.rest.parse.body import NO_ROWS, Payload
from dataapi.rest.parse.preferences import Action, Missing, Preferences, Resolution, Return
from dataapi.rest.parse.query import Selection, Values, content_range, parse, parse_body_parameters
from dataapi.rest.plan.expressions import MaxAffected
from dataapi.rest.plan.plan import RestRequest, RestRole, StatementPlan, negotiate_media
from dataapi.rest.plan.rows import RowPlanner
from dataapi.rest.plan.select_items import with_column_names
from dataapi.rest.plan.tables import Relation
from dataapi.rest.plan.types import json_columns, known_columns
from dataapi.rest.respond import make_reply, with_alias_warning
from dataapi.rest.statements import UPDATED, MutationQuery, Representation, ResultRow, compile_mutation
from dataapi.sql.algebra import Parameter
from dataapi.sql.conditions import Condition
from dataapi.sql.guards import Guard
from dataapi.sql.mutations import Delete, Insert, JsonRows, MissingMember, Mutation, OnConflict, Update
from dataapi.sql.statement import Compiled

_KEY_FILTERS = "Filters must include all and only primary key columns with 'eq' operators"
_NO_WINDOW = "limit/offset querystring parameters are not allowed for PUT"


# ---------------------------------------------------------------- the statement


class MutationKind(Enum):
    """What a request does to rows."""

    INSERT = "insert"
    PUT = "put"
    """Insert or update the one row that the URL names."""
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class MutationShape:
    """What of a mutation decides its statement.

    :ivar columns, many: see ``Payload``.
    :ivar key: for an update of each row by an object of its own, the columns that name the row.
    :ivar media: the form in which rows are answered, None when none are.
    :ivar single: exactly one row must be affected.
    :ivar bounded: whether the number of affected rows is limited.
    :ivar located: key columns of which an inserted row's values are answered.
    """

    kind: MutationKind
    schema: str
    table: str
    selection: Selection
    columns: tuple[str, ...] = ()
    many: bool = False
    missing: MissingMember = MissingMember.NULL
    conflict: OnConflict | None = None
    key: tuple[str, ...] = ()
    media: Media | None = None
    single: bool = False
    bounded: bool = False
    located: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether the inserted rows are counted apart from the updated ones."""
        return self.conflict is not None and self.conflict.counter is not None

    @property
    def size(self) -> int:
        """Characters of the shape."""
        return self.selection.size + sum(map(len, self.columns))


@dataclass(frozen=True, slots=True)
class MutationValues:
    """The values of a mutation.

    :ivar literals: those of its selection.
    :ivar rows: the JSON text of the rows.
    :ivar most: how many rows may be affected, None for any number.
    """

    literals: tuple[str, ...]
    rows: str = ""
    most: int | None = None


@dataclass(frozen=True, slots=True)
class BodyRows:
    """Where a statement finds the rows to write."""

    def bind(self, values: MutationValues) -> str:
        """Return the JSON text."""
        return values.rows


def compile_write(
    role: RestRole, table: Table, shape: MutationShape, *, aggregates: bool, most_bytes: int
) -> tuple[Compiled]:
    """Return the statement of a mutation.

    :param most_bytes: a larger body is refused.
    :raises ApiError: columns or relationships are unknown, not available or ambiguous.
    """
    planner = RowPlanner(role.tables, shape.selection, None, aggregates=aggregates)
    relation = Relation.of(table)
    planner.check(relation)
    representation, bound = None, None
    if shape.media is not None:
        bound = most_bytes if shape.media.explain is None else None
        order, required = planner.order(relation), planner.required(relation)
        body = shape.media.body(table)
        record = with_column_names(planner.record(relation), body)
        representation = Representation(table, record, body, order, required)
    where = None if shape.kind is MutationKind.INSERT else planner.where(relation)
    mutation = _mutation(role, table, shape, where)
    query = MutationQuery(mutation, representation, _guards(shape), shape.located, shape.counts, bound)
    return (compile_mutation(query),)


def _guards(shape: MutationShape) -> tuple[Guard, ...]:
    guards = []
    if shape.kind is MutationKind.PUT:
        guards.append(Guard(respond.OTHER_KEY))
    if shape.single:
        guards.append(Guard(respond.NOT_SINGLE))
    if shape.bounded:
        guards.append(Guard(respond.TOO_MANY, Parameter(MaxAffected(), "bigint")))
    return tuple(guards)


def _mutation(role: RestRole, table: Table, shape: MutationShape, where: Condition | None) -> Mutation:
    if shape.kind is MutationKind.DELETE:
        return Delete(table, where)
    columns = json_columns(role.catalog, table, shape.columns)
    rows = JsonRows(Parameter(BodyRows(), 'pg_catalog."json"'), shape.many, columns, shape.missing)
    if shape.kind is MutationKind.UPDATE:
        return Update(table, rows, where, shape.key)
    return Insert(table, rows, shape.conflict, where)


# ---------------------------------------------------------------- the request


@dataclass(frozen=True, slots=True)
class _MutationRequest:
    """A mutation as the request asks for it.

    :ivar columns, conflict: the parameters ``columns`` and ``on_conflict``, None where they are missing.
    :ivar windowed: whether there is a ``limit`` or an ``offset``.
    """

    request: RestRequest
    table: Table
    selection: Selection
    values: Values
    media: Media
    columns: tuple[str, ...] | None
    conflict: tuple[str, ...] | None
    windowed: bool

    @property
    def preferences(self) -> Preferences:
        return self.request.preferences

    @property
    def key(self) -> tuple[str, ...]:
        return self.request.catalog.row_key(self.table)

    @property
    def content_type(self) -> str | None:
        return self.request.http.headers.get("content-type")

    @property
    def shows(self) -> bool:
        return self.preferences.returned is Return.REPRESENTATION

    def total(self, row: ResultRow) -> int | None:
        """Return the number of rows if the client asked for a count."""
        return row.count if self.preferences.counts else None


def plan(request: RestRequest) -> StatementPlan:
    """Plan a mutation.

    :raises ApiError: PGRST117 (405) for an unknown method, and others for an invalid request.
    """
    planning = _PLANNING.get(request.http.method)
    if planning is None:
        raise respond.unsupported(request.http.method)
    table = request.role.tables.find(request.schema, request.target)
    selection, values = parse(request.http.query)
    media = negotiate_media(request, table, whole=selection.is_whole)
    parameters = parse_body_parameters(request.http.query)
    return with_alias_warning(
        planning(_MutationRequest(request, table, selection, values, media, *parameters)), selection
    )


# ---------------------------------------------------------------- the four actions


def _insert(change: _MutationRequest) -> StatementPlan:
    rows = _common_rows(change)
    conflict = _conflict(change, rows)
    located: tuple[str, ...] = ()
    if change.preferences.returned is Return.HEADERS_ONLY:
        located = tuple(column.name for column in change.table.columns if column.name in change.key)
    shape = _shape(change, MutationKind.INSERT, rows, _missing(change), conflict, located=located)
    action = Action.INSERT if conflict is None else Action.RESOLVED_INSERT

    def finish(row: ResultRow) -> Reply:
        merged = shape.counts and (row.inserted or 0) <= 0
        headers = [("Content-Range", content_range(0, 0, change.total(row)))]
        if row.location is not None:
            headers.insert(0, ("Location", _location(change.table, row.location)))
        return _reply(change, action, row, 200 if merged else 201, headers)

    return _planned(change, shape, rows, finish)


def _conflict(change: _MutationRequest, rows: Payload) -> OnConflict | None:
    """Return what an insert does about existing rows; None without a key to find them by."""
    resolution = change.preferences.resolution
    if resolution not in (Resolution.MERGE, Resolution.IGNORE):
        return None
    names = known_columns(change.table, change.conflict or change.key)
    return _merging(names, rows if resolution is Resolution.MERGE else None) if names else None


def _merging(key: tuple[str, ...], rows: Payload | None) -> OnConflict:
    """Return what updates existing rows and counts them, or leaves them as they are without new ones."""
    return OnConflict(key, ()) if rows is None else OnConflict(key, rows.columns, counter=UPDATED)


def _update(change: _MutationRequest) -> StatementPlan:
    if change.preferences.resolution is Resolution.MATCH:
        return _matched_update(change)
    rows = _common_rows(change)
    shape = _shape(change, MutationKind.UPDATE, rows, _missing(change))
    return _planned(change, shape, rows, lambda row: _affected(change, Action.UPDATE, row, row.count))


def _common_rows(change: _MutationRequest) -> Payload:
    """Return the rows of a body, all of the same columns."""
    return payload.read(change.request.http.body, change.content_type, change.columns)


def _matched_update(change: _MutationRequest) -> StatementPlan:
    """Plan an update of each row by an object of its own."""
    rows, key = _keyed_rows(change)
    missing = MissingMember.NULL
    if rows.incomplete and change.preferences.missing is not Missing.NULL:
        default = change.preferences.missing is Missing.DEFAULT
        missing = MissingMember.DEFAULT if default else MissingMember.UNCHANGED
    shape = _shape(change, MutationKind.UPDATE, rows, missing, key=key)
    return _planned(change, shape, rows, lambda row: _affected(change, Action.MATCHED_UPDATE, row, row.count))


def _keyed_rows(change: _MutationRequest) -> tuple[Payload, tuple[str, ...]]:
    """Return the rows of a body of which each names its own row, and the columns that name it."""
    key = known_columns(change.table, change.conflict or change.key)
    if not key:
        hint = "Name the columns that identify a row with the on_conflict parameter."
        raise ApiError(
            400, "PGRST102", f"'{change.table.name}' has no primary key to match rows by", hint=hint
        )
    body = change.request.http.body
    return payload.read_keyed(body, change.content_type, change.columns, key), key


def _put(change: _MutationRequest) -> StatementPlan:
    if change.windowed:
        raise ApiError(400, "PGRST114", _NO_WINDOW)
    filters = change.selection.equalities(change.values)
    if not filters or filters.keys() != set(change.key):
        raise ApiError(405, "PGRST105", _KEY_FILTERS)
    rows = payload.read(change.request.http.body, change.content_type, None)
    if not set(change.key) <= set(rows.columns):
        raise respond.other_key()
    shape = _shape(change, MutationKind.PUT, rows, conflict=_merging(change.key, rows))

    def finish(row: ResultRow) -> Reply:
        status = (201 if (row.inserted or 0) > 0 else 200) if change.shows else 204
        return _reply(change, Action.PUT, row, status, [])

    return _planned(change, shape, rows, finish)


def _delete(change: _MutationRequest) -> StatementPlan:
    shape = _shape(change, MutationKind.DELETE, NO_ROWS)
    return _planned(change, shape, NO_ROWS, lambda row: _affected(change, Action.DELETE, row, 0))


_PLANNING: dict[str, Callable[[_MutationRequest], StatementPlan]] = {
    "POST": _insert,
    "PATCH": _update,
    "PUT": _put,
    "DELETE": _delete,
}

# ---------------------------------------------------------------- plan and reply


def _shape(
    change: _MutationRequest,
    kind: MutationKind,
    rows: Payload,
    missing: MissingMember = MissingMember.NULL,
    conflict: OnConflict | None = None,
    *,
    key: tuple[str, ...] = (),
    located: tuple[str, ...] = (),
) -> MutationShape:
    return MutationShape(
        kind,
        change.table.schema,
        change.table.name,
        change.selection,
        rows.columns,
        rows.many,
        missing,
        conflict,
        key,
        change.media if change.shows else None,
        change.media.single,
        change.preferences.most is not None and kind in (MutationKind.UPDATE, MutationKind.DELETE),
        located,
    )


def _missing(change: _MutationRequest) -> MissingMember:
    """Return the value of missing members; all objects have the same ones where no columns are chosen."""
    default = change.preferences.missing is Missing.DEFAULT
    return MissingMember.DEFAULT if default and change.columns is not None else MissingMember.NULL


def _planned(
    change: _MutationRequest, shape: MutationShape, rows: Payload, finish: Callable[[ResultRow], Reply]
) -> StatementPlan:
    request = change.request
    project = request.project

    def compile_() -> tuple[Compiled, ...]:
        aggregates, most = project.db_aggregates_enabled, project.max_answer
        return compile_write(request.role, change.table, shape, aggregates=aggregates, most_bytes=most)

    [compiled] = request.role.plan(shape, shape.size, compile_)
    values = MutationValues(change.values.literals, rows.text, change.preferences.most)
    settings = ((UPDATED, "0"),) if shape.counts else ()
    return StatementPlan((compiled.bind(values),), False, finish, settings, media=change.media)


def _affected(change: _MutationRequest, action: Action, row: ResultRow, listed: int) -> Reply:
    """Return the reply of an update or a delete.

    :param listed: how many rows the range has.
    """
    headers = [("Content-Range", content_range(0, listed, change.total(row)))]
    return _reply(change, action, row, 200 if change.shows else 204, headers)


def _reply(
    change: _MutationRequest, action: Action, row: ResultRow, status: int, headers: list[tuple[str, str]]
) -> Reply:
    applied = preferences.applied(change.preferences, action)
    if not change.shows:
        return make_reply(change.request, row, status, None, *headers, applied=applied)
    media = change.media
    body = as_bytes(media, row.body)
    if media.single:
        body = body.strip()[1:-1]  # without the array's brackets
    return make_reply(change.request, row, status, media.content_type, *headers, applied=applied, body=body)


def _location(table: Table, key: str) -> str:
    """Return the URL of a row, relative as PostgREST's is.

    :param key: a JSON object of the key columns' texts.
    """
    filters = [
        f"{quote(name, safe='')}={'is.null' if value is None else 'eq.' + quote(value, safe='')}"
        for name, value in json.loads(key).items()
    ]
    return f"/{quote(table.name, safe='')}?{'&'.join(filters)}"
