"""Plans mutations of tables (POST, PATCH, PUT, DELETE); pure.

Beyond PostgREST, ``PATCH`` with ``Prefer: resolution=match`` updates each row from an object of its own:
each object of the body names its row by the primary key, or by the columns of ``on_conflict``, and sets its
other members there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from dataapi.catalog.model import Table
from dataapi.http.errors import ApiError
from dataapi.rest import respond
from dataapi.rest.negotiation import Media
from dataapi.rest.parse.body import Objects
from dataapi.rest.parse.preferences import Action, Missing, Preferences, Resolution, Return
from dataapi.rest.parse.query import Values
from dataapi.rest.parse.request import ApiRequest
from dataapi.rest.plan.expressions import BodyText, MaxAffected
from dataapi.rest.plan.role import Planned, RestRole, StatementPlan, WriteAnswer
from dataapi.rest.plan.rows import RowPlanner, with_column_names
from dataapi.rest.plan.tables import Relation, json_column, known_columns
from dataapi.rest.statements import UPDATED, MutationQuery, Representation, compile_mutation
from dataapi.sql.algebra import Condition, Parameter
from dataapi.sql.mutations import Delete, Insert, JsonRows, MissingMember, Mutation, OnConflict, Update
from dataapi.sql.statement import Compiled, Guard

_KEY_FILTERS = "Filters must include all and only primary key columns with 'eq' operators"


@dataclass(slots=True)
class _Mutation:
    """A request that changes rows: POST inserts, PUT inserts or updates one row, PATCH updates.

    The fields with a default are set by the function that plans the method.

    :ivar matched_by: for an update of each row by an object of its own, the columns that name the row.
    :ivar located: key columns of which an inserted row's values are answered.
    """

    role: RestRole
    request: ApiRequest
    table: Table
    media: Media
    missing: MissingMember = MissingMember.NULL
    conflict: OnConflict | None = None
    matched_by: tuple[str, ...] = ()
    located: tuple[str, ...] = ()

    @property
    def preferences(self) -> Preferences:
        return self.request.preferences

    @property
    def key(self) -> tuple[str, ...]:
        return self.role.catalog.row_key(self.table)

    @property
    def represents(self) -> bool:
        return self.preferences.returned is Return.REPRESENTATION

    @property
    def bounded(self) -> bool:
        """Whether the number of affected rows is limited."""
        return self.preferences.maximum is not None and self.request.method in ("PATCH", "DELETE")

    @property
    def counts_inserted(self) -> bool:
        """Whether the inserted rows are counted apart from the updated ones."""
        return self.conflict is not None and self.conflict.counter is not None

    @property
    def shape(self) -> Hashable:
        """The part of it that decides the statement."""
        request, rows = self.request, self.request.rows
        media = self.media if self.represents else None
        target = (request.method, request.schema, request.target, request.query.selection)
        written = (rows.columns, rows.many, rows.as_text, self.missing, self.conflict, self.matched_by)
        return (*target, *written, media, self.media.single, self.bounded, self.located)


def plan(role: RestRole, request: ApiRequest) -> Planned:
    """Plan a mutation.

    :raises ApiError: PGRST117 (405) for an unknown method, and others for an invalid request.
    """
    planning = _PLANNING.get(request.method)
    if planning is None:
        raise respond.unsupported(request.method)
    table = role.tables.find(request.schema, request.target)
    return planning(_Mutation(role, request, table, role.media(request, table)))


# ---------------------------------------------------------------- the four methods


def _insert(mutation: _Mutation) -> Planned:
    mutation.conflict, mutation.missing = _conflict(mutation), _missing(mutation)
    if mutation.preferences.returned is Return.HEADERS_ONLY:
        names = [column.name for column in mutation.table.columns if column.name in mutation.key]
        mutation.located = tuple(names)
    return _planned(mutation, Action.INSERT if mutation.conflict is None else Action.RESOLVED_INSERT)


def _conflict(mutation: _Mutation) -> OnConflict | None:
    """Return how an insert treats existing rows; None without a key to find them by."""
    resolution = mutation.preferences.resolution
    if resolution not in (Resolution.MERGE, Resolution.IGNORE):
        return None
    names = known_columns(mutation.table, mutation.request.query.conflict or mutation.key)
    if not names:
        return None
    return OnConflict(names, ()) if resolution is Resolution.IGNORE else _merging(mutation, names)


def _merging(mutation: _Mutation, key: tuple[str, ...]) -> OnConflict:
    """Return the clause that updates existing rows and counts them.

    The key already has its values.  It is only set if there is nothing else to set, because PostgreSQL
    returns no row that it does not change.
    """
    columns = mutation.request.rows.columns
    others = tuple([name for name in columns if name not in key])
    return OnConflict(key, others or columns, counter=UPDATED)


def _missing(mutation: _Mutation) -> MissingMember:
    """Return the value of missing members; all objects have the same ones where no columns are chosen."""
    chosen = mutation.request.query.columns is not None
    default = chosen and mutation.preferences.missing is Missing.DEFAULT
    return MissingMember.DEFAULT if default else MissingMember.NULL


def _update(mutation: _Mutation) -> Planned:
    if mutation.request.objects is not None:
        return _matched_update(mutation, mutation.request.objects)
    mutation.missing = _missing(mutation)
    return _planned(mutation, Action.UPDATE)


def _matched_update(mutation: _Mutation, objects: Objects) -> Planned:
    """Plan an update of each row by an object of its own."""
    query = mutation.request.query
    key = known_columns(mutation.table, query.conflict or mutation.key)
    if not key:
        hint = "Name the columns that identify a row with the on_conflict parameter."
        message = f"'{mutation.table.name}' has no primary key to match rows by"
        raise ApiError(400, "PGRST102", message, hint=hint)
    rows = objects.by_key(query.columns, key)
    if rows.incomplete and mutation.preferences.missing is not Missing.NULL:
        default = mutation.preferences.missing is Missing.DEFAULT
        mutation.missing = MissingMember.DEFAULT if default else MissingMember.UNCHANGED
    mutation.request, mutation.matched_by = mutation.request._replace(rows=rows), key
    return _planned(mutation, Action.MATCHED_UPDATE)


def _put(mutation: _Mutation) -> Planned:
    query, key = mutation.request.query, mutation.key
    filters = query.selection.equalities(query.values)
    if not filters or filters.keys() != set(key):
        raise ApiError(405, "PGRST105", _KEY_FILTERS)
    if not set(key) <= set(mutation.request.rows.columns):
        raise respond.violated(respond.OTHER_KEY, 0)
    mutation.conflict = _merging(mutation, key)
    return _planned(mutation, Action.PUT)


_PLANNING: dict[str, Callable[[_Mutation], Planned]] = {
    "POST": _insert,
    "PATCH": _update,
    "PUT": _put,
    "DELETE": lambda mutation: _planned(mutation, Action.DELETE),
}


# ---------------------------------------------------------------- the statement


def _planned(mutation: _Mutation, action: Action) -> Planned:
    request = mutation.request
    size = request.query.selection.size + sum(map(len, request.rows.columns))
    statements = mutation.role.compile(mutation.shape, size, lambda: _compile(mutation))
    answer = WriteAnswer(action, mutation.table.name, mutation.represents, mutation.counts_inserted)
    settings = ((UPDATED, "0"),) if mutation.counts_inserted else ()
    planned = StatementPlan(statements, mutation.media, answer, False, settings)
    return planned, values_of(request)


def values_of(request: ApiRequest) -> Values:
    values = request.query.values
    return Values(values.literals, values.offset, request.rows.text, maximum=request.preferences.maximum)


def _compile(mutation: _Mutation) -> tuple[Compiled, ...]:
    """Return the statements of a mutation.

    :raises ApiError: columns or relationships are unknown, not available or ambiguous.
    """
    role, table, media = mutation.role, mutation.table, mutation.media
    selection = mutation.request.query.selection
    planner = RowPlanner(role.tables, Relation.of(table), selection, role.project, written=True)
    representation, bound = None, None
    if mutation.represents:
        bound = role.project.max_answer if media.explain is None else None
        order, required = planner.order(), planner.required()
        body = media.body(table, role.tables.catalog.postgis)
        record = with_column_names(planner.record(), body)
        representation = Representation(table, record, body, order, required)
    where = None if mutation.request.method == "POST" else planner.where()
    guards = []
    if mutation.request.method == "PUT":
        guards.append(Guard(respond.OTHER_KEY))
    if media.single:
        guards.append(Guard(respond.NOT_SINGLE))
    if mutation.bounded:
        guards.append(Guard(respond.TOO_MANY, Parameter(MaxAffected(), "bigint")))
    query = MutationQuery(
        _algebra(mutation, where),
        representation,
        tuple(guards),
        mutation.located,
        bound,
        role.tables.may_read_whole(table),
    )
    return compile_mutation(query, role.dialect)


def _algebra(mutation: _Mutation, where: Condition | None) -> Mutation:
    method, table, payload = mutation.request.method, mutation.table, mutation.request.rows
    if method == "DELETE":
        return Delete(table, where)
    catalog, as_text = mutation.role.catalog, payload.as_text
    columns = tuple([json_column(catalog, table, name, as_text=as_text) for name in payload.columns])
    rows = JsonRows(Parameter(BodyText(), 'pg_catalog."json"'), payload.many, columns, mutation.missing)
    if method == "PATCH":
        return Update(table, rows, where, mutation.matched_by)
    return Insert(table, rows, mutation.conflict, where)
