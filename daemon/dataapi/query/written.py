"""Changes of REST requests: one statement that changes rows and answers with what it changed.

The rows to write travel as one JSON text.  PostgreSQL runs all parts of the statement on one
snapshot: relationships of changed rows are seen as they were before, as PostgREST shows them.
The columns of the one row are those of ``answers.Answered``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from dataapi.catalog.model import Table
from dataapi.database.quoting import quote_identifier, quote_literal
from dataapi.query.algebra import Parameter
from dataapi.query.comparisons import is_builtin, operator_sql
from dataapi.query.conditions import Condition
from dataapi.query.expressions import condition_sql
from dataapi.query.modifications import Delete, modify_sql
from dataapi.query.writer import Row, Writer, qualified

UPDATED = "dataapi.updated"
"""The transaction's setting that counts the rows that an upsert updates; it must be "0" before."""


class Missing(Enum):
    """What a column gets for which an object has no member."""

    NULL = "null"
    DEFAULT = "default"
    """The column's default."""
    KEPT = "kept"
    """What it has: only for an update."""


@dataclass(frozen=True, slots=True)
class Target:
    """A column to write.

    :ivar type: the SQL type that the JSON member is read as.
    :ivar function: the SQL name of what makes the column's value of that, "" for nothing.
    :ivar default: SQL of the column's default, or None.
    """

    name: str
    type: str
    function: str = ""
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """Rows to write.

    :ivar value: a ``json`` parameter.
    :ivar many: whether it is an array of objects and not one object.
    """

    value: Parameter
    many: bool
    targets: tuple[Target, ...]
    missing: Missing = Missing.NULL


@dataclass(frozen=True, slots=True)
class OnConflict:
    """What to do where a row is there already that has the same values in these columns.

    :ivar merge: set what is given, else leave the row as it is.
    """

    columns: tuple[str, ...]
    merge: bool


@dataclass(frozen=True, slots=True)
class InsertGiven:
    """Rows to insert.

    :ivar matching: takes but the first of those given that satisfies it (``PUT``).
    """

    table: Table
    given: Given
    conflict: OnConflict | None = None
    matching: Condition | None = None


@dataclass(frozen=True, slots=True)
class UpdateGiven:
    """Rows to update.

    :ivar key: each given object is for the row that has the same values in these columns; empty when
        the first object is for all rows.
    """

    table: Table
    given: Given
    where: Condition | None
    key: tuple[str, ...] = ()


Written = InsertGiven | UpdateGiven | Delete


def written_sql(writer: Writer, change: Written, shown: Row) -> str:
    """Return the data-modifying query that gives what was named of the row ``shown``."""
    target = Row(writer.alias())
    match change:
        case InsertGiven():
            text = _insert_sql(writer, change, target)
        case UpdateGiven():
            assignments = [each for each in change.given.targets if each.name not in change.key]
            if not assignments:
                return _nothing_sql(change.table, target, shown)
            text = _update_sql(writer, change, assignments, target)
        case Delete():
            text = modify_sql(writer, change, target)
    return f"{text} returning {shown.selection_from(target)}"


def inserted_sql(changed: str) -> str:
    """Return SQL of how many of the rows that an upsert gives were inserted.

    :param changed: the name of its query.
    """
    updated = f"pg_catalog.current_setting({quote_literal(UPDATED)})::bigint"
    return f"(select pg_catalog.count(*) from {changed}) - {updated}"


# ---------------------------------------------------------------- insert and update


def _insert_sql(writer: Writer, change: InsertGiven, target: Row) -> str:
    given = Row(writer.alias())
    source = _source_sql(writer, change.given, given)
    targets = change.given.targets
    names = f" ({_listed(each.name for each in targets)})" if targets else ""
    cells = ", ".join(_cell_sql(change.given, each, given, None) for each in targets)
    selected = f"select {cells} from" if cells else "select from"
    text = f"insert into {qualified(change.table)} as {target.alias}{names} {selected} {source}"
    if change.matching is not None:
        text += f" where {condition_sql(writer, change.matching, given)} limit 1"
    return text + _conflict_sql(change)


def _conflict_sql(change: InsertGiven) -> str:
    conflict = change.conflict
    if conflict is None:
        return ""
    on = f" on conflict ({_listed(conflict.columns)})"
    if not conflict.merge or not change.given.targets:
        return f"{on} do nothing"
    names = [quote_identifier(target.name) for target in change.given.targets]
    assignments = ", ".join(f"{name} = excluded.{name}" for name in names)
    setting = quote_literal(UPDATED)
    more = f"(pg_catalog.current_setting({setting})::bigint + 1)::text"
    return f"{on} do update set {assignments} where pg_catalog.set_config({setting}, {more}, true) <> ''"


def _update_sql(writer: Writer, change: UpdateGiven, assignments: list[Target], target: Row) -> str:
    given = Row(writer.alias())
    source = _source_sql(writer, change.given, given, first=not change.key)
    cells = ", ".join(
        f"{quote_identifier(each.name)} = {_cell_sql(change.given, each, given, target)}"
        for each in assignments
    )
    types = {each.name: each.type for each in change.given.targets}
    conditions = [
        f"{target.column(name)} {operator_sql('=', is_builtin(types[name]))} {given.column(name)}"
        for name in change.key
    ]
    if change.where is not None:
        conditions.append(condition_sql(writer, change.where, target))
    where = f" where {' and '.join(conditions)}" if conditions else ""
    return f"update {qualified(change.table)} as {target.alias} set {cells} from {source}{where}"


def _nothing_sql(table: Table, target: Row, shown: Row) -> str:
    """Return a query without rows for an update that sets nothing, which SQL cannot say."""
    selection = shown.selection_from(target)
    source = f" from {qualified(table)} as {target.alias}" if selection != "1" else ""
    return f"select {selection}{source} where false"


# ---------------------------------------------------------------- what is given


def _source_sql(writer: Writer, given: Given, row: Row, *, first: bool = False) -> str:
    """Return the ``from`` item of the given rows, aliased as the row.

    :param first: take but the first object.
    """
    slot = writer.slot(given.value)
    members = ", ".join(f"{quote_identifier(each.name)} {each.type}" for each in given.targets)
    record = f"{row.alias}({members})"
    if given.targets and given.missing is Missing.NULL:
        function = "json_to_recordset" if given.many else "json_to_record"
        rows = f"pg_catalog.{function}({slot}) as {record}"
        return f"(select * from {rows} limit 1) as {row.alias}" if first and given.many else rows
    objects = f"(select {slot}) as {_objects(row)}(value)"
    if given.many:
        objects = f"pg_catalog.json_array_elements({slot}) as {_objects(row)}(value)"
        if first:
            objects = f"(select * from {objects} limit 1) as {_objects(row)}"
    if not given.targets:
        return objects
    return f"{objects} cross join lateral pg_catalog.json_to_record({_objects(row)}.value) as {record}"


def _cell_sql(given: Given, target: Target, row: Row, kept: Row | None) -> str:
    """Return what a column is set to.

    :param kept: the row that is updated.
    """
    value = row.column(target.name)
    if target.function:
        value = f"{target.function}({value})"
    lacking = None
    if given.missing is Missing.DEFAULT and target.default is not None:
        lacking = f"({target.default})"
    elif given.missing is Missing.KEPT and kept is not None:
        lacking = kept.column(target.name)
    if lacking is None:
        return value
    # A member that is null is the JSON value null; only one that lacks is NULL.
    member = f"{_objects(row)}.value operator(pg_catalog.->) {quote_literal(target.name)}::text"
    return f"case when ({member}) is not null then {value} else {lacking} end"


def _objects(row: Row) -> str:
    """Return the alias of the JSON objects that a row is made of."""
    return f'{row.alias[:-1]}~object"'


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quote_identifier, names))
