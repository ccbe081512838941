"""Changes and their answers: the statements that insert, update and delete, and show the rows.

A change whose records show only the row itself is one statement: the data-modifying
query and the answer over what it returns.  PostgreSQL runs all parts of one statement on
one snapshot, so relationships of changed rows would be seen as they were before; then the
answer is a second statement of the same message, which finds the rows again by their key.

What is deleted is shown as it was before, with what it related to.  VOLATILE functions do not keep to the
snapshot: where the records call some, they are made before any row is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dataapi.database.quoting import quote_identifier, quote_literal
from dataapi.query.algebra import Parameter
from dataapi.query.comparisons import is_builtin, operator_sql
from dataapi.query.expressions import condition_sql
from dataapi.query.forms import build_object, key_sql
from dataapi.query.kept import keep_rows, shows_only_itself
from dataapi.query.modifications import Delete, Insert, Update, modify_sql
from dataapi.query.nested import NestedInsert, nested_queries
from dataapi.query.outputs import output_sql
from dataapi.query.records import Picking
from dataapi.query.results import AffectedCount, Key, Object, Output, Records
from dataapi.query.sql import Compiled, compiled
from dataapi.query.writer import Row, Writer, qualified

RAISED = "~dataapi~"
"""What a message begins with that a statement raises itself, by casting it to an integer."""

Modification = Insert | NestedInsert | Update | Delete


@dataclass(frozen=True, slots=True)
class Change:
    """A change with its answer.

    :ivar key: columns that identify a row, each with its SQL type (``unknown`` where it has no name
        that every role may use); empty when rows can't be found again.
    :ivar output: the answer, with ``Records`` and ``AffectedCount`` in it.
    :ivar at_most: refuse to affect more rows than that.
    :ivar refusal: the message with which it is refused; the number of the step follows it.
    """

    change: Modification
    key: tuple[tuple[str, str], ...]
    output: Object
    at_most: Parameter | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A read whose answer is one field among changes, such as a volatile function's result."""

    output: Output


Step = Change | Answer


def compile_changes(steps: tuple[tuple[Key, Step], ...]) -> tuple[Compiled, ...]:
    """Return the statements that make the changes in order; the last one's row is the answer's JSON text."""
    if len(steps) == 1:
        key, step = steps[0]
        return _single(key, step)
    statements: list[Compiled] = []
    for number, (_, step) in enumerate(steps):
        *before, answer = _step_statements(number, step)
        statements += before
        json = f"coalesce(pg_catalog.to_json({answer.text})::text, 'null')"
        kept = f"select pg_catalog.set_config({quote_literal(_result(number))}, {json}, true)"
        statements.append(compiled(answer.prefix + kept, answer.writer))
    writer = Writer()
    members = [
        (key_sql(writer, key), f"pg_catalog.current_setting({quote_literal(_result(number))})::json")
        for number, (key, _) in enumerate(steps)
    ]
    statements.append(compiled(f"select {build_object(members)}::text", writer))
    return tuple(statements)


def _single(key: Key, step: Step) -> tuple[Compiled, ...]:
    *before, answer = _step_statements(0, step)
    member = build_object([(key_sql(answer.writer, key), answer.text)])
    return (*before, compiled(f"{answer.prefix}select {member}::text", answer.writer))


@dataclass(frozen=True, slots=True)
class _Pending:
    """An answer's SQL before its statement is finished.

    :ivar prefix: a ``with`` clause, or empty.
    :ivar text: the answer as an expression.
    """

    writer: Writer
    prefix: str
    text: str


def _result(number: int) -> str:
    return f"dataapi.result{number}"


def _step_statements(number: int, step: Step) -> tuple[*tuple[Compiled, ...], _Pending]:
    if isinstance(step, Answer):
        writer = Writer()
        kept = keep_rows(step.output, f"dataapi.rows{number}")
        if kept is None:
            return (_Pending(writer, "", output_sql(writer, step.output, None)),)
        calling, output = kept
        return calling, _Pending(writer, "", output_sql(writer, output, None))
    if step.key and not isinstance(step.change, Delete) and not shows_only_itself(step.output):
        return _in_two(number, step)
    return (_in_one(number, step),)


# ---------------------------------------------------------------- in one statement


def _in_one(number: int, change: Change) -> _Pending:
    writer = Writer()
    changed = writer.alias()
    row = Row(writer.alias(), derived=True)
    count = f"(select pg_catalog.count(*) from {changed})"
    affected = _Affected(_listing(writer, row, f"{changed} as {row.alias}"), count)
    answer = _answer_sql(writer, change.output, affected)
    if writer.volatile and isinstance(change.change, Delete):
        return _shown_before(number, change, change.change)
    prefix = f"with {_changing_queries(writer, change.change, changed, row)} "
    return _Pending(writer, prefix, _limited_sql(writer, number, change, count, answer))


def _limited_sql(writer: Writer, number: int, change: Change, count: str, answer: str) -> str:
    """Return the answer, or SQL that refuses to affect too many rows."""
    if change.at_most is None:
        return answer
    limit = writer.slot(change.at_most)
    refusal = f"pg_catalog.to_json({_refusal_sql(number, change, count)})"
    return f"case when {count} > {limit} then {refusal} else {answer} end"


def _changing_queries(writer: Writer, change: Modification, changed: str, row: Row) -> str:
    """Return the ``with`` queries that make the change, the last one giving what was named of the row."""
    if isinstance(change, NestedInsert):
        return nested_queries(writer, change, changed, row)
    target = Row(writer.alias())
    modify = modify_sql(writer, change, target)
    return f"{changed} as ({modify} returning {row.selection_from(target)})"


def raised_sql(message: str, count: str) -> str:
    """Return SQL that raises a message; it depends on the count, so that planning does not raise it."""
    return f"({quote_literal(RAISED + message + RAISED)} || {count})::int"


def _refusal_sql(number: int, change: Change, count: str) -> str:
    """Return SQL that refuses a change: RAISED, its message, RAISED, the step's number, RAISED, the count."""
    return raised_sql(f"{change.refusal}{RAISED}{number}", count)


@dataclass(frozen=True, slots=True)
class _Affected:
    """How an answer shows the affected rows.

    :ivar records: makes the SQL of their JSON array.
    :ivar count: SQL of how many there are.
    """

    records: Callable[[Output], str]
    count: str


def _listing(writer: Writer, row: Row, source: str, order: str = "") -> Callable[[Output], str]:
    """Return what makes the records of rows.

    :param source: the ``from`` item of the row.
    :param order: an ``order by`` clause, or empty.
    """

    def records(inner: Output) -> str:
        picking = Picking(writer, output_sql, None, row, joining=bool(order))
        listed = f"pg_catalog.json_agg({picking.value_sql(inner)}{order})"
        return f"(select coalesce({listed}, '[]'::json) from {source}{picking.joins.sql()})"

    return records


def _answer_sql(writer: Writer, output: Output, affected: _Affected) -> str:
    match output:
        case Object(members):
            return build_object(
                [(key_sql(writer, key), _answer_sql(writer, value, affected)) for key, value in members]
            )
        case Records(inner):
            return affected.records(inner)
        case AffectedCount():
            return affected.count
        case _:
            return output_sql(writer, output, None)


# ---------------------------------------------------------------- deletes shown before


def _shown_before(number: int, change: Change, delete: Delete) -> _Pending:
    """Return a delete whose records are made of the matching rows before the first of them is gone."""
    writer = Writer()
    before, changed = writer.alias(), writer.alias()
    row, matching, target = Row(writer.alias(), derived=True), Row(writer.alias()), Row(writer.alias())
    shown: list[str] = []
    joins: list[str] = []

    def records(inner: Output) -> str:
        picking = Picking(writer, output_sql, None, row, joining=False)
        shown.append(f'pg_catalog.to_json({picking.value_sql(inner)}) as "~shown{len(shown)}"')
        joins.append(picking.joins.sql())
        gone, known = writer.alias(), writer.alias()
        listed = f'pg_catalog.json_agg({known}."~shown{len(shown) - 1}" order by {known}."~place")'
        source = f'{changed} as {gone} join (select distinct on ("~identity") * from {before}) as {known}'
        return f"(select coalesce({listed}, '[]'::json) from {source} using (\"~identity\"))"

    count = f"(select pg_catalog.count(*) from {changed})"
    answer = _answer_sql(writer, change.output, _Affected(records, count))
    identity = _identity(change, row)
    where = "" if delete.where is None else f" where {condition_sql(writer, delete.where, matching)}"
    source = f'(select {row.selection_from(matching)}, {identity(matching)} as "~identity"'
    source += f" from {qualified(delete.table)} as {matching.alias}{where}) as {row.alias}"
    columns = ", ".join([f'{row.alias}."~identity"', 'pg_catalog.row_number() over () as "~place"', *shown])
    # Asked for alone, as a condition on no row, the count is made before any row is looked at.
    conditions = f"(select pg_catalog.count(*) from {before}) is not null"
    if delete.where is not None:
        conditions += f" and {condition_sql(writer, delete.where, target)}"
    deleting = f"delete from {qualified(delete.table)} as {target.alias} where {conditions}"
    prefix = (
        f"with {before} as materialized (select {columns} from {source}{''.join(joins)}), "
        f'{changed} as ({deleting} returning {identity(target)} as "~identity") '
    )
    return _Pending(writer, prefix, _limited_sql(writer, number, change, count, answer))


def _identity(change: Change, row: Row) -> Callable[[Row], str]:
    """Return what makes the SQL of a text that tells a row from others: of its key, or of all that is shown.

    :param row: what was named of this one is shown.
    """
    key = [name for name, _ in change.key]
    by_key = bool(key) and change.change.table.is_unique(key)
    names = key if by_key else list(row.columns)
    whole = row.needs_whole and not by_key

    def identity_sql(of: Row) -> str:
        parts = [*map(of.column, names), *([of.whole()] if whole else [])]
        return f"row({', '.join(parts)})::text"

    return identity_sql


# ---------------------------------------------------------------- in two statements


def _in_two(number: int, change: Change) -> tuple[Compiled, _Pending]:
    keys, count = f"dataapi.keys{number}", f"dataapi.count{number}"
    return _modify_and_keep(number, change, keys, count), _read_again(change, keys, count)


def _modify_and_keep(number: int, change: Change, keys: str, count: str) -> Compiled:
    """Return the statement that makes the change and keeps the keys and the count of rows as settings."""
    writer = Writer()
    changed, row = writer.alias(), Row(writer.alias(), derived=True)
    for name, _ in change.key:
        row.column(name)
    queries = _changing_queries(writer, change.change, changed, row)
    counted = "pg_catalog.count(*)"
    if change.at_most is not None:
        limit = writer.slot(change.at_most)
        refusal = _refusal_sql(number, change, counted)
        counted = f"case when {counted} > {limit} then {refusal} else {counted} end"
    values = ", ".join(f"{quote_identifier(name)}::text" for name, _ in change.key)
    listed = f"pg_catalog.json_agg(pg_catalog.json_build_array({values}))"
    text = (
        f"with {queries} "
        f"select pg_catalog.set_config({quote_literal(count)}, ({counted})::text, true), "
        f"pg_catalog.set_config({quote_literal(keys)}, coalesce({listed}, '[]')::text, true) "
        f"from {changed}"
    )
    return compiled(text, writer)


def _read_again(change: Change, keys: str, count: str) -> _Pending:
    """Return the answer over the rows found again by the kept keys, in the order of the change."""
    writer = Writer()
    row, kept = Row(writer.alias()), writer.alias()
    matches = []
    for place, (name, type_) in enumerate(change.key):
        value = f"({kept}.key ->> {place})"
        if type_ == "unknown":
            matches.append(f"{row.column(name)}::text = {value}")
        else:
            matches.append(f"{row.column(name)} {operator_sql('=', is_builtin(type_))} {value}::{type_}")
    source = (
        f"pg_catalog.json_array_elements(pg_catalog.current_setting({quote_literal(keys)})::json) "
        f"with ordinality as {kept}(key, place) "
        f"join {qualified(change.change.table)} as {row.alias} on {' and '.join(matches)}"
    )
    counted = f"pg_catalog.current_setting({quote_literal(count)})::int"
    affected = _Affected(_listing(writer, row, source, f" order by {kept}.place"), counted)
    return _Pending(writer, "", _answer_sql(writer, change.output, affected))
