"""SQL of what rows come from: tables, calls of functions, rows kept in a setting."""

from __future__ import annotations

from dataapi.database.quoting import quote_identifier, quote_literal
from dataapi.query.algebra import SCALAR, Call, CallArgument, Rows, Through, Unfolded
from dataapi.query.writer import Row, Writer, qualified


def call_sql(writer: Writer, call: Call, parent: Row | None, unfolded: Row | None = None) -> str:
    """Return a function call with its arguments, by name where they have one.

    :param unfolded: the row that has the arguments of ``call.unfolded``.
    """
    arguments = [parent.whole()] if call.of_row and parent is not None else []
    arguments += [_argument_sql(writer, argument, unfolded) for argument in call.arguments]
    return f"{writer.function(call.function)}({', '.join(arguments)})"


def _argument_sql(writer: Writer, argument: CallArgument, unfolded: Row | None) -> str:
    if unfolded is not None and argument.value is None:
        value = unfolded.column(argument.name)
    else:
        value = "null" if argument.value is None else writer.slot(argument.value)
    if argument.composite is not None and argument.value is not None:
        made = f"pg_catalog.json_populate_record(null::{qualified(argument.composite)}, "
        writer.readings.append((f"select {made}$1) is null", argument.value))
        value = f"{made}{value})"
    name = f"{quote_identifier(argument.name)} => " if argument.name else ""
    return f"{'variadic ' if argument.variadic else ''}{name}{value}"


def relation_sql(writer: Writer, rows: Rows, row: Row, parent: Row | None) -> str:
    """Return the ``from`` item of the rows, aliased as the row, with the table in between if there is one."""
    relation = _own_relation_sql(writer, rows, row, parent)
    if rows.through is None:
        return relation
    assert parent is not None, "a table in between needs the row on its other side"
    return relation + _through_sql(writer, rows.through, row, parent)


def _own_relation_sql(writer: Writer, rows: Rows, row: Row, parent: Row | None) -> str:
    if rows.call is not None:
        return _called_sql(writer, rows.call, row, parent)
    assert rows.table is not None, "rows are of a table or of a call"
    if rows.kept is not None:
        kept = f"pg_catalog.current_setting({quote_literal(rows.kept)})"
        return f"pg_catalog.unnest({kept}::{qualified(rows.table)}[]) as {row.alias}"
    return f"{qualified(rows.table)} as {row.alias}"


def _called_sql(writer: Writer, call: Call, row: Row, parent: Row | None) -> str:
    lead, unfolded = "", None
    if call.unfolded is not None:
        unfolded = Row(writer.alias())
        lead = f"{_unfolded_sql(writer, call.unfolded, unfolded)} cross join lateral "
    called = call_sql(writer, call, parent, unfolded)
    if call.scalar:
        called = f"(select {called} as {quote_identifier(SCALAR)})"
    return f"{lead}{called} as {row.alias}"


def _unfolded_sql(writer: Writer, unfolded: Unfolded, row: Row) -> str:
    value = writer.slot(unfolded.value)
    members = ", ".join(f"{quote_identifier(name)} {type_}" for name, type_ in unfolded.members)
    if not unfolded.many:
        return f"pg_catalog.json_to_record({value}) as {row.alias}({members})"
    inner = Row(writer.alias())
    records = f"pg_catalog.json_to_recordset({value}) as {inner.alias}({members})"
    return f"(select {inner.alias}.* from {records} limit 1) as {row.alias}"


def _through_sql(writer: Writer, through: Through, row: Row, parent: Row) -> str:
    between = Row(writer.alias())
    matches = [f"{between.column(own)} = {row.column(theirs)}" for own, theirs in through.far]
    matches += [f"{between.column(own)} = {parent.column(theirs)}" for own, theirs in through.near]
    return f" join {qualified(through.table)} as {between.alias} on {' and '.join(matches)}"
