"""The shape of a change of rows, and its statement for one role; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dataapi.catalog.model import Table
from dataapi.query.algebra import Parameter
from dataapi.query.changed import RestChange, Showing, compile_change
from dataapi.query.conditions import Condition
from dataapi.query.modifications import Delete
from dataapi.query.refused import Refusal
from dataapi.query.sql import Compiled
from dataapi.query.written import Given, InsertGiven, Missing, OnConflict, UpdateGiven, Written
from dataapi.rest import refusals
from dataapi.rest.media import Media
from dataapi.rest.resolve.columns import targets_of
from dataapi.rest.resolve.fields import MostRows
from dataapi.rest.resolve.naming import named_for
from dataapi.rest.resolve.relations import Relation
from dataapi.rest.resolve.selecting import Selecting
from dataapi.rest.resolve.selection import Selection
from dataapi.rest.role import RoleView


class Kind(Enum):
    """What becomes of rows."""

    INSERT = "insert"
    PUT = "put"
    """One row, put in the place that the URL names."""
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class WriteShape:
    """What of a change decides its statement.

    :ivar columns, many: as of ``Payload``.
    :ivar key: for an update of each row by an object of its own, the columns that name the row.
    :ivar media: the form in which rows are shown, None when none are.
    :ivar single: exactly one row must be affected.
    :ivar bounded: whether there is a most of affected rows.
    :ivar located: key columns of which an inserted row's values are told.
    """

    kind: Kind
    schema: str
    table: str
    selection: Selection
    columns: tuple[str, ...] = ()
    many: bool = False
    missing: Missing = Missing.NULL
    conflict: OnConflict | None = None
    key: tuple[str, ...] = ()
    media: Media | None = None
    single: bool = False
    bounded: bool = False
    located: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether the inserted rows are counted apart from the updated ones."""
        return self.conflict is not None and self.conflict.merge

    @property
    def size(self) -> int:
        """Characters of the shape."""
        return self.selection.size + sum(map(len, self.columns))


@dataclass(frozen=True, slots=True)
class WriteValues:
    """The values of a change.

    :ivar lifted: those of its selection.
    :ivar rows: the JSON text of what is given.
    :ivar most: how many rows may be affected, None for any number.
    """

    lifted: tuple[str, ...]
    rows: str = ""
    most: int | None = None


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Where a statement finds the rows to write."""

    def bind(self, values: WriteValues) -> str:
        """Return the JSON text."""
        return values.rows


def compile_write(
    role: RoleView, table: Table, shape: WriteShape, *, aggregates: bool, most_bytes: int
) -> tuple[Compiled]:
    """Return the statement of a change.

    :param most_bytes: a larger body is refused.
    :raises ApiError: for what is not there, not available or cannot be understood.
    """
    selecting = Selecting(role.tables, shape.selection, None, aggregates=aggregates)
    relation = Relation.of(table)
    selecting.check(relation)
    showing, bound = None, None
    if shape.media is not None:
        bound = most_bytes if shape.media.explain is None else None
        order, required = selecting.order(relation), selecting.required(relation)
        body = shape.media.body(table)
        record = named_for(selecting.record(relation), body)
        showing = Showing(table, record, body, order, required)
    where = None if shape.kind is Kind.INSERT else selecting.where(relation)
    change = _change(role, table, shape, where)
    wanted = RestChange(change, showing, _refusals(shape), shape.located, shape.counts, bound)
    return (compile_change(wanted),)


def _refusals(shape: WriteShape) -> tuple[Refusal, ...]:
    refused = []
    if shape.kind is Kind.PUT:
        refused.append(Refusal(refusals.OTHER_KEY))
    if shape.single:
        refused.append(Refusal(refusals.NOT_SINGLE))
    if shape.bounded:
        refused.append(Refusal(refusals.TOO_MANY, Parameter(MostRows(), "bigint")))
    return tuple(refused)


def _change(role: RoleView, table: Table, shape: WriteShape, where: Condition | None) -> Written:
    if shape.kind is Kind.DELETE:
        return Delete(table, where)
    targets = targets_of(role.catalog, table, shape.columns)
    given = Given(Parameter(GivenRows(), 'pg_catalog."json"'), shape.many, targets, shape.missing)
    if shape.kind is Kind.UPDATE:
        return UpdateGiven(table, given, where, shape.key)
    return InsertGiven(table, given, shape.conflict, where)
