"""Plans mutations of tables (POST, PATCH, PUT, DELETE); pure.

Beyond PostgREST, ``PATCH`` with ``Prefer: resolution=match`` updates each row from an object of its own:
each object of the body names its row by the primary key, or by the columns of ``on_conflict``, and sets its
other members there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import quote

from dataapi.catalog.model import Table
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply
from dataapi.rest import respond
from dataapi.rest.negotiation import Media, as_bytes
from dataapi.rest.parse.preferences import Action, Missing, Preferences, Resolution, Return
from dataapi.rest.parse.request import ApiRequest
from dataapi.rest.parse.syntax import Selection
from dataapi.rest.plan.expressions import BodyText, MaxAffected
from dataapi.rest.plan.plan import RestRole, StatementPlan
from dataapi.rest.plan.rows import RowPlanner
from dataapi.rest.plan.select_items import with_column_names
from dataapi.rest.plan.tables import Relation, json_columns, known_columns
from dataapi.rest.respond import content_range, make_reply
from dataapi.rest.statements import UPDATED, MutationQuery, Representation, ResultRow, compile_mutation
from dataapi.sql.algebra import Parameter
from dataapi.sql.conditions import Condition
from dataapi.sql.guards import Guard
from dataapi.sql.mutations import Delete, Insert, JsonRows, MissingMember, Mutation, OnConflict, Update
from dataapi.sql.statement import Compiled

_KEY_FILTERS = "Filters must include all and only primary key columns with 'eq' operators"


# ---------------------------------------------------------------- the statement


@dataclass(frozen=True, slots=True)
class MutationShape:
    """What of a mutation decides its statement.

    :ivar columns, many: see ``Payload``.
    :ivar method: POST inserts, PUT inserts or updates one row, PATCH updates, DELETE deletes.
    :ivar key: for an update of each row by an object of its own, the columns that name the row.
    :ivar media: the form in which rows are answered, None when no rows are.
    :ivar single: exactly one row must be affected.
    :ivar bounded: whether the number of affected rows is limited.
    :ivar located: key columns of which an inserted row's values are answered.
    """

    method: str
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


def _compile(role: RestRole, table: Table, shape: MutationShape) -> tuple[Compiled]:
    """Return the statement of a mutation.

    :raises ApiError: columns or relationships are unknown, not available or ambiguous.
    """
    # What is written is not a page: ``db-max-rows`` does not bound it.
    aggregates = role.project.db_aggregates_enabled
    planner = RowPlanner(role.tables, Relation.of(table), shape.selection, None, aggregates=aggregates)
    representation, bound = None, None
    if shape.media is not None:
        bound = role.project.max_answer if shape.media.explain is None else None
        order, required = planner.order(), planner.required()
        body = shape.media.body(table)
        record = with_column_names(planner.record(), body)
        representation = Representation(table, record, body, order, required)
    where = None if shape.method == "POST" else planner.where()
    mutation = _mutation(role, table, shape, where)
    query = MutationQuery(mutation, representation, _guards(shape), shape.located, shape.counts, bound)
    return (compile_mutation(query),)


def _guards(shape: MutationShape) -> tuple[Guard, ...]:
    guards = []
    if shape.method == "PUT":
        guards.append(Guard(respond.OTHER_KEY))
    if shape.single:
        guards.append(Guard(respond.NOT_SINGLE))
    if shape.bounded:
        guards.append(Guard(respond.TOO_MANY, Parameter(MaxAffected(), "bigint")))
    return tuple(guards)


def _mutation(role: RestRole, table: Table, shape: MutationShape, where: Condition | None) -> Mutation:
    if shape.method == "DELETE":
        return Delete(table, where)
    columns = json_columns(role.catalog, table, shape.columns)
    rows = JsonRows(Parameter(BodyText(), 'pg_catalog."json"'), shape.many, columns, shape.missing)
    if shape.method == "PATCH":
        return Update(table, rows, where, shape.key)
    return Insert(table, rows, shape.conflict, where)


# ---------------------------------------------------------------- the four methods


@dataclass(frozen=True, slots=True)
class _Change:
    """A mutation, with the table and the media type of its request."""

    role: RestRole
    request: ApiRequest
    table: Table
    media: Media

    @property
    def preferences(self) -> Preferences:
        return self.request.preferences

    @property
    def key(self) -> tuple[str, ...]:
        return self.role.catalog.row_key(self.table)

    @property
    def represents(self) -> bool:
        return self.preferences.returned is Return.REPRESENTATION

    def total(self, row: ResultRow) -> int | None:
        """Return the number of rows if the client prefers a count."""
        return row.count if self.preferences.counts else None


def plan(role: RestRole, request: ApiRequest) -> StatementPlan:
    """Plan a mutation.

    :raises ApiError: PGRST117 (405) for an unknown method, and others for an invalid request.
    """
    planning = _PLANNING.get(request.method)
    if planning is None:
        raise respond.unsupported(request.method)
    table = role.tables.find(request.schema, request.target)
    return planning(_Change(role, request, table, role.media(request, table)))


def _insert(change: _Change) -> StatementPlan:
    conflict = _conflict(change)
    located: tuple[str, ...] = ()
    if change.preferences.returned is Return.HEADERS_ONLY:
        located = tuple(column.name for column in change.table.columns if column.name in change.key)
    shape = _shape(change, conflict=conflict, missing=_missing(change), located=located)
    action = Action.INSERT if conflict is None else Action.RESOLVED_INSERT

    def finish(row: ResultRow) -> Reply:
        merged = shape.counts and (row.inserted or 0) <= 0
        headers = [("Content-Range", content_range(0, 0, change.total(row)))]
        if row.location is not None:
            headers.insert(0, ("Location", _location(change.table, row.location)))
        return _reply(change, action, row, 200 if merged else 201, tuple(headers))

    return _planned(change, shape, finish)


def _conflict(change: _Change) -> OnConflict | None:
    """Return what an insert does with existing rows; None without a key to find them by."""
    resolution = change.preferences.resolution
    if resolution not in (Resolution.MERGE, Resolution.IGNORE):
        return None
    names = known_columns(change.table, change.request.query.conflict or change.key)
    if not names:
        return None
    return OnConflict(names, ()) if resolution is Resolution.IGNORE else _merging(change, names)


def _merging(change: _Change, key: tuple[str, ...]) -> OnConflict:
    """Return the clause that updates existing rows and counts them."""
    return OnConflict(key, change.request.rows.columns, counter=UPDATED)


def _missing(change: _Change) -> MissingMember:
    """Return the value of missing members; all objects have the same ones where no columns are chosen."""
    default = change.preferences.missing is Missing.DEFAULT and change.request.query.columns is not None
    return MissingMember.DEFAULT if default else MissingMember.NULL


def _update(change: _Change) -> StatementPlan:
    if change.request.objects is not None:
        return _matched_update(change)
    return _affecting(change, _shape(change, missing=_missing(change)), Action.UPDATE)


def _matched_update(change: _Change) -> StatementPlan:
    """Plan an update of each row by an object of its own."""
    query, objects = change.request.query, change.request.objects
    assert objects is not None, "the body has an object for each row"
    key = known_columns(change.table, query.conflict or change.key)
    if not key:
        hint = "Name the columns that identify a row with the on_conflict parameter."
        message = f"'{change.table.name}' has no primary key to match rows by"
        raise ApiError(400, "PGRST102", message, hint=hint)
    rows = objects.by_key(query.columns, key)
    missing = MissingMember.NULL
    if rows.incomplete and change.preferences.missing is not Missing.NULL:
        default = change.preferences.missing is Missing.DEFAULT
        missing = MissingMember.DEFAULT if default else MissingMember.UNCHANGED
    matched = replace(change, request=replace(change.request, rows=rows))
    shape = _shape(matched, missing=missing, key=key)
    return _affecting(matched, shape, Action.MATCHED_UPDATE)


def _put(change: _Change) -> StatementPlan:
    query, key = change.request.query, change.key
    filters = query.selection.equalities(query.values)
    if not filters or filters.keys() != set(key):
        raise ApiError(405, "PGRST105", _KEY_FILTERS)
    if not set(key) <= set(change.request.rows.columns):
        raise respond.other_key()
    shape = _shape(change, conflict=_merging(change, key))

    def finish(row: ResultRow) -> Reply:
        status = (201 if (row.inserted or 0) > 0 else 200) if change.represents else 204
        return _reply(change, Action.PUT, row, status, ())

    return _planned(change, shape, finish)


def _delete(change: _Change) -> StatementPlan:
    return _affecting(change, _shape(change), Action.DELETE)


_PLANNING: dict[str, Callable[[_Change], StatementPlan]] = {
    "POST": _insert,
    "PATCH": _update,
    "PUT": _put,
    "DELETE": _delete,
}

# ---------------------------------------------------------------- plan and reply


def _shape(
    change: _Change,
    *,
    missing: MissingMember = MissingMember.NULL,
    conflict: OnConflict | None = None,
    key: tuple[str, ...] = (),
    located: tuple[str, ...] = (),
) -> MutationShape:
    request, rows = change.request, change.request.rows
    return MutationShape(
        request.method,
        change.table.schema,
        change.table.name,
        request.query.selection,
        rows.columns,
        rows.many,
        missing,
        conflict,
        key,
        change.media if change.represents else None,
        change.media.single,
        request.preferences.most is not None and request.method in ("PATCH", "DELETE"),
        located,
    )


def _planned(change: _Change, shape: MutationShape, finish: Callable[[ResultRow], Reply]) -> StatementPlan:
    role, request = change.role, change.request
    [compiled] = role.plan(shape, shape.size, lambda: _compile(role, change.table, shape))
    values = replace(request.query.values, body=request.rows.text, most=request.preferences.most)
    settings = ((UPDATED, "0"),) if shape.counts else ()
    return StatementPlan(request, compiled.bind(values), change.media, finish, False, settings)


def _affecting(change: _Change, shape: MutationShape, action: Action) -> StatementPlan:
    """Return the plan of an update or a delete."""

    def finish(row: ResultRow) -> Reply:
        # As in PostgREST, deleted rows have no range.
        listed = 0 if action is Action.DELETE else row.count
        headers = (("Content-Range", content_range(0, listed, change.total(row))),)
        return _reply(change, action, row, 200 if change.represents else 204, headers)

    return _planned(change, shape, finish)


def _reply(
    change: _Change, action: Action, row: ResultRow, status: int, headers: tuple[tuple[str, str], ...]
) -> Reply:
    if not change.represents:
        return make_reply(change.request, action, row, status, None, headers)
    media = change.media
    body = as_bytes(media, row.body)
    if media.single:
        body = body.strip()[1:-1]  # without the array's brackets
    return make_reply(change.request, action, row, status, media.content_type, headers, body)


def _location(table: Table, key: str) -> str:
    """Return the URL of a row, relative as PostgREST's is.

    :param key: a JSON object of the key columns' texts.
    """
    filters = [
        f"{quote(name, safe='')}={'is.null' if value is None else 'eq.' + quote(value, safe='')}"
        for name, value in json.loads(key).items()
    ]
    return f"/{quote(table.name, safe='')}?{'&'.join(filters)}"
