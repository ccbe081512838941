"""What an insert, update or delete does to one table, and the data-modifying query for it."""

from __future__ import annotations

from dataclasses import dataclass

from dataapi.catalog.model import Table
from dataapi.database.quoting import quote_identifier
from dataapi.query.algebra import Parameter
from dataapi.query.conditions import Condition
from dataapi.query.expressions import condition_sql
from dataapi.query.writer import Row, Writer, qualified

Cell = Parameter | None
"""A value to write, None for NULL."""


@dataclass(frozen=True, slots=True)
class Default:
    """A value that is left to the column's default."""


DEFAULT = Default()


@dataclass(frozen=True, slots=True)
class Conflict:
    """What to do where a row is there already that has the same unique key.

    :ivar constraint: the unique key's constraint, or None.
    :ivar columns: the unique key's columns where no constraint is named.
    :ivar update: columns to set to the new values; none leaves the row as it is.
    """

    constraint: str | None
    columns: tuple[str, ...]
    update: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordType:
    """A column's type in a ``Recordset``, and what it is cast to, "" for nothing."""

    type: str
    cast: str = ""


@dataclass(frozen=True, slots=True)
class Recordset:
    """Rows as one value.

    :ivar values: a JSON array of objects, whose members are named by their columns' places.
    :ivar types: one per column.
    """

    values: Parameter
    types: tuple[RecordType, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    """Rows to insert; each has a cell per column."""

    table: Table
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell | Default, ...], ...] | Recordset
    conflict: Conflict | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Values to set on the rows that match."""

    table: Table
    values: tuple[tuple[str, Cell], ...]
    where: Condition | None


@dataclass(frozen=True, slots=True)
class Delete:
    """The rows that match, to delete."""

    table: Table
    where: Condition | None


def modify_sql(writer: Writer, change: Insert | Update | Delete, target: Row) -> str:
    """Return the data-modifying query, without its ``returning`` clause; ``target`` is the row it writes."""
    table = f"{qualified(change.table)} as {target.alias}"
    match change:
        case Insert(_, columns, rows, conflict):
            names = ", ".join(quote_identifier(name) for name in columns)
            return f"insert into {table} ({names}) {_rows_sql(writer, rows)}{_conflict_sql(conflict)}"
        case Update(_, values_to_set, where):
            assignments = ", ".join(
                f"{quote_identifier(name)} = {_cell_sql(writer, cell)}" for name, cell in values_to_set
            )
            return f"update {table} set {assignments}{_where_sql(writer, where, target)}"
        case Delete(_, where):
            return f"delete from {table}{_where_sql(writer, where, target)}"


def _conflict_sql(conflict: Conflict | None) -> str:
    if conflict is None:
        return ""
    if conflict.constraint is not None:
        target = f"on constraint {quote_identifier(conflict.constraint)}"
    else:
        target = "(" + ", ".join(quote_identifier(name) for name in conflict.columns) + ")"
    if not conflict.update:
        return f" on conflict {target} do nothing"
    names = [quote_identifier(name) for name in conflict.update]
    return f" on conflict {target} do update set " + ", ".join(f"{name} = excluded.{name}" for name in names)


def _rows_sql(writer: Writer, rows: tuple[tuple[Cell | Default, ...], ...] | Recordset) -> str:
    if not isinstance(rows, Recordset):
        return "values " + ", ".join(
            f"({', '.join(_cell_sql(writer, cell) for cell in row)})" for row in rows
        )
    alias = writer.alias()
    cells = ", ".join(
        f'{alias}."{place}"' + (f"::{type_.cast}" if type_.cast else "")
        for place, type_ in enumerate(rows.types)
    )
    types = ", ".join(f'"{place}" {type_.type}' for place, type_ in enumerate(rows.types))
    function, record = "pg_catalog.json_to_recordset", f"{alias}({types})"
    writer.readings.append((f"select pg_catalog.count(*) from {function}($1) as {record}", rows.values))
    return f"select {cells} from {function}({writer.slot(rows.values)}) as {record}"


def _cell_sql(writer: Writer, cell: Cell | Default) -> str:
    if isinstance(cell, Default):
        return "default"
    return "null" if cell is None else writer.slot(cell)


def _where_sql(writer: Writer, where: Condition | None, target: Row) -> str:
    return "" if where is None else f" where {condition_sql(writer, where, target)}"
