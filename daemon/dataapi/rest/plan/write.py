"""Plans mutations of tables (POST, PATCH, PUT, DELETE).

``PATCH`` with ``resolution=match`` is an extension (docs/reference/rest.md, Updates and deletes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dataapi.catalog.model import Table
from dataapi.http.errors import ApiError
from dataapi.rest import respond
from dataapi.rest.negotiation import Media
from dataapi.rest.parse.body import RowShape
from dataapi.rest.parse.preconditions import unsupported_condition
from dataapi.rest.parse.preferences import Action, Missing, Preferences, Resolution, Return
from dataapi.rest.parse.request import PlanInput
from dataapi.rest.plan import read
from dataapi.rest.plan.expressions import BodyText, MaxAffected
from dataapi.rest.plan.model import StatementPlan, UniqueKeys, WriteResponse
from dataapi.rest.plan.role import RestRole
from dataapi.rest.plan.rows import RowPlanner, with_column_names
from dataapi.rest.plan.tables import Relation, json_column, known_columns
from dataapi.rest.statements import UPDATED, MutationQuery, Representation, compile_mutation
from dataapi.sql.algebra import Condition, Parameter
from dataapi.sql.mutations import Delete, Insert, JsonRows, MissingMember, Mutation, OnConflict, Update
from dataapi.sql.statement import Compiled, Guard

_KEY_FILTERS = "Filters must include all and only primary key columns with 'eq' operators"


@dataclass(frozen=True, slots=True)
class _Target:
    role: RestRole
    input: PlanInput
    table: Table
    media: Media

    @property
    def preferences(self) -> Preferences:
        return self.input.preferences

    @property
    def key(self) -> tuple[str, ...]:
        return self.role.catalog.row_key(self.table)


@dataclass(frozen=True, slots=True)
class _RowChange:
    """The change that a request makes to rows.

    :ivar matched_by: for an update with one object per row, columns that identify the row.
    :ivar located: key columns for the ``Location`` header of an inserted row.
    """

    target: _Target
    action: Action
    rows: RowShape
    missing: MissingMember = MissingMember.NULL
    conflict: OnConflict | None = None
    matched_by: tuple[str, ...] = ()
    located: tuple[str, ...] = ()

    @property
    def represents(self) -> bool:
        return self.target.preferences.returned is Return.REPRESENTATION

    @property
    def bounded(self) -> bool:
        return self.target.preferences.maximum is not None and self.target.input.method in (
            "PATCH",
            "DELETE",
        )

    @property
    def counts_inserted(self) -> bool:
        return self.conflict is not None and self.conflict.counter is not None


def plan(role: RestRole, plan_input: PlanInput) -> StatementPlan:
    """Plan a mutation.

    :raises ApiError: PGRST117 (405) for an unknown method, and other errors for an invalid request.
    """
    change_for = _CHANGES.get(plan_input.method)
    if change_for is None:
        raise respond.unsupported(plan_input.method)
    table = role.tables.find(plan_input.schema, plan_input.target)
    media = role.media(plan_input, table)
    change = change_for(_Target(role, plan_input, table, media))
    conditional = plan_input.compared is not None
    return StatementPlan(
        _compile(change),
        change.target.media,
        WriteResponse(change.action, table.name, change.represents, change.counts_inserted),
        False,
        ((UPDATED, "0"),) if change.counts_inserted else (),
        UniqueKeys(change.matched_by) if change.matched_by else None,
        current=read.compile_current(role, plan_input, table, media) if conditional else None,
    )


# ---------------------------------------------------------------- methods


def _insert(target: _Target) -> _RowChange:
    located: tuple[str, ...] = ()
    if target.preferences.returned is Return.HEADERS_ONLY:
        located = tuple([column.name for column in target.table.columns if column.name in target.key])
    conflict = _conflict(target)
    action = Action.INSERT if conflict is None else Action.RESOLVED_INSERT
    if target.input.compared is not None:
        _check_identified(target, conflict)
    return _RowChange(target, action, target.input.rows, _missing(target), conflict, located=located)


def _check_identified(target: _Target, conflict: OnConflict | None) -> None:
    """Check that a conditional insert writes exactly the row that its filters select."""
    rows = target.input.rows
    if conflict is None or not conflict.update or rows.many or rows.groups:
        raise unsupported_condition(
            "A conditional POST must be an upsert of one object without related rows "
            "(Prefer: resolution=merge-duplicates)."
        )
    if target.input.selection.equal_columns != set(conflict.columns):
        raise unsupported_condition(
            "The filters of a conditional upsert must be eq on exactly the columns of its key.",
            f"Add {'&'.join(f'{name}=eq.…' for name in conflict.columns)} to the query string.",
        )
    if not set(conflict.columns) <= set(rows.columns):
        raise respond.violated(respond.KEY_MISMATCH, 0)


def _conflict(target: _Target) -> OnConflict | None:
    resolution = target.preferences.resolution
    if resolution not in (Resolution.MERGE, Resolution.IGNORE):
        return None
    names = known_columns(target.table, target.input.conflict or target.key)
    if not names:
        return None
    return OnConflict(names, ()) if resolution is Resolution.IGNORE else _merging(target, names)


def _merging(target: _Target, key: tuple[str, ...]) -> OnConflict:
    """Return the clause that updates existing rows and counts them.

    The key columns already have their values. They are only set if there is nothing else to set, because
    PostgreSQL does not return rows that it does not update.
    """
    columns = target.input.rows.columns
    others = tuple([name for name in columns if name not in key])
    return OnConflict(key, others or columns, counter=UPDATED)


def _missing(target: _Target) -> MissingMember:
    """Return the value for members that are listed in ``columns`` but missing in the body."""
    chosen = target.input.columns is not None
    default = chosen and target.preferences.missing is Missing.DEFAULT
    return MissingMember.DEFAULT if default else MissingMember.NULL


def _update(target: _Target) -> _RowChange:
    if target.preferences.resolution is Resolution.MATCH:
        return _matched_update(target)
    return _RowChange(target, Action.UPDATE, target.input.rows, _missing(target))


def _matched_update(target: _Target) -> _RowChange:
    plan_input, rows = target.input, target.input.rows
    key = known_columns(target.table, plan_input.conflict or target.key)
    if not key:
        hint = "Name the columns that identify a row with the on_conflict parameter."
        message = f"'{target.table.name}' has no primary key to match rows by"
        raise ApiError(400, "PGRST102", message, hint=hint)
    columns = rows.columns if plan_input.columns is None else tuple(sorted({*plan_input.columns, *key}))
    missing = MissingMember.NULL
    if not set(columns) <= set(rows.common) and target.preferences.missing is not Missing.NULL:
        default = target.preferences.missing is Missing.DEFAULT
        missing = MissingMember.DEFAULT if default else MissingMember.UNCHANGED
    rows = rows._replace(columns=columns)
    return _RowChange(target, Action.MATCHED_UPDATE, rows, missing, matched_by=key)


def _put(target: _Target) -> _RowChange:
    key = target.key
    if not key or target.input.selection.equal_columns != set(key):
        raise ApiError(405, "PGRST105", _KEY_FILTERS)
    if not set(key) <= set(target.input.rows.columns):
        raise respond.violated(respond.KEY_MISMATCH, 0)
    return _RowChange(target, Action.PUT, target.input.rows, conflict=_merging(target, key))


def _delete(target: _Target) -> _RowChange:
    return _RowChange(target, Action.DELETE, target.input.rows)


_CHANGES: dict[str, Callable[[_Target], _RowChange]] = {
    "POST": _insert,
    "PATCH": _update,
    "PUT": _put,
    "DELETE": _delete,
}


# ---------------------------------------------------------------- the statement


def _compile(change: _RowChange) -> tuple[Compiled, ...]:
    target = change.target
    role, table, media = target.role, target.table, target.media
    method, selection = target.input.method, target.input.selection
    planner = RowPlanner(role.tables, Relation.of(table), selection, role.project, written=True)
    representation, bound = None, None
    if change.represents:
        bound = role.project.max_answer if media.explain is None else None
        order, required = planner.order(), planner.required()
        body = media.body(table, role.tables.catalog.postgis)
        record = with_column_names(planner.record(), body)
        representation = Representation(table, record, body, order, required)
    conditional = target.input.compared is not None
    if conditional and planner.required() is not None:
        raise unsupported_condition("A conditional write cannot select its rows with !inner.")
    where = None if method == "POST" and not conditional else planner.where()
    guards = []
    if method == "PUT" or (method == "POST" and conditional):
        guards.append(Guard(respond.KEY_MISMATCH))
    if media.single:
        guards.append(Guard(respond.NOT_SINGLE))
    if change.bounded:
        guards.append(Guard(respond.TOO_MANY, Parameter(MaxAffected(), "bigint")))
    query = MutationQuery(
        _algebra(change, where),
        representation,
        tuple(guards),
        change.located,
        bound,
        role.tables.may_read_whole(table),
    )
    return compile_mutation(query, role.dialect)


def _algebra(change: _RowChange, where: Condition | None) -> Mutation:
    target, payload = change.target, change.rows
    method, table = target.input.method, target.table
    if method == "DELETE":
        return Delete(table, where)
    if payload.groups:
        from dataapi.rest.plan.nested import nested_rows  # noqa: PLC0415 - only if configured

        return Insert(table, nested_rows(target.role, target.input, change.conflict), change.conflict)
    catalog, as_text = target.role.catalog, payload.as_text
    columns = tuple([json_column(catalog, table, name, as_text=as_text) for name in payload.columns])
    rows = JsonRows(Parameter(BodyText(), 'pg_catalog."json"'), payload.many, columns, change.missing)
    if method == "PATCH":
        return Update(table, rows, where, change.matched_by)
    return Insert(table, rows, change.conflict, where)
