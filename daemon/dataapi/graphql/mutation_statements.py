"""The statements of mutations: they insert, update and delete, and answer with the affected rows.

A mutation whose records have only columns of the row itself is one statement: the data-modifying query and
the answer over what it returns.  PostgreSQL runs all parts of a statement on one snapshot, so relationships
of changed rows would be those from before the change.  Where records have some, a second statement of
the same message finds the rows again by their key and answers.

Deleted rows are answered as they were, with what they were related to.  VOLATILE functions do not use that
snapshot: where records call some, they are made before any row is deleted.

A VOLATILE function that returns rows is called once, by a statement of its own.  The answer may have a page,
a count and relationships of the rows: in the calling statement each of these would call the function again,
and see related rows as they were before the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dataapi.catalog.model import Volatility
from dataapi.database.sql_text import EQUAL, operator_sql, quote_identifier, quote_literal
from dataapi.graphql.outputs import ConnectionOutput
from dataapi.sql.dialect import POSTGRESQL, Dialect, MutationPart
from dataapi.sql.dml import delete_sql
from dataapi.sql.expressions import condition_sql
from dataapi.sql.mutations import Delete, Mutation
from dataapi.sql.outputs import (
    InnerOutput,
    Json,
    JsonQuery,
    Key,
    Object,
    Output,
    array_json,
    json_query,
    json_sql,
    object_json,
)
from dataapi.sql.row_output import MemberWriter, One
from dataapi.sql.statement import Compiled, Guard, Row, Writer, compiled, qualified, raise_sql
from dataapi.sql.stored_rows import call_first


@dataclass(frozen=True, slots=True)
class AffectedRecords(InnerOutput):
    """The rows that a mutation affected."""

    output: Output

    def reads_only_columns(self) -> bool:
        return self.output.reads_only_columns()


@dataclass(frozen=True, slots=True)
class AffectedCount(InnerOutput):
    """How many rows a mutation affected."""

    def reads_only_columns(self) -> bool:
        """Return True: it reads no row."""
        return True


@dataclass(frozen=True, slots=True)
class MutationStep:
    """A mutation with its answer.

    :ivar key: the columns that identify a row, each with its SQL type (``unknown`` where not every role may
        name it); empty when rows can't be found again.
    :ivar output: the answer, with ``AffectedRecords`` and ``AffectedCount`` in it.
    :ivar guard: the limit of affected rows, None without one.
    """

    mutation: Mutation
    key: tuple[tuple[str, str], ...]
    output: Object
    guard: Guard | None = None

    @property
    def reads_again(self) -> bool:
        """Whether the changed rows are found again by their key, for more than what they are made of."""
        plain = isinstance(self.mutation, Delete) or self.output.reads_only_columns()
        return bool(self.key) and not plain


OperationStep = MutationStep | Output
"""A mutation, or an output of its own, such as a volatile function's result."""


def compile_mutations(
    steps: tuple[tuple[Key, OperationStep], ...], dialect: Dialect = POSTGRESQL
) -> tuple[Compiled, ...]:
    """Return the statements of mutation fields in order; the last one's row is the answer's JSON text."""
    steps = dialect.rewrite(steps)
    statements: list[Compiled] = []
    members: list[tuple[Key, Json]] = []
    for number, (key, step) in enumerate(steps):
        *before, answer = step_statements(dialect, number, step)
        statements += before
        if len(steps) == 1:
            query = json_query(object_json(answer.writer, [(key, answer.json)]))
            return (*statements, compiled(f"{answer.prefix}{query}", answer.writer))
        result = quote_literal(f"dataapi.result{number}")
        stored = f"select pg_catalog.set_config({result}, {json_sql(answer.json)}, true)"
        statements.append(compiled(answer.prefix + stored, answer.writer))
        members.append((key, (f"pg_catalog.current_setting({result})",)))
    writer = dialect.writer()
    return (*statements, compiled(json_query(object_json(writer, members)), writer))


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer's SQL before its statement is finished.

    :ivar prefix: a ``with`` clause, or empty.
    """

    writer: Writer
    prefix: str
    json: Json


def step_statements(
    dialect: Dialect, number: int, step: OperationStep
) -> tuple[*tuple[Compiled, ...], Pending]:
    """Return the statements of a field, of which the last one answers.

    :param number: its place among the fields.
    """
    if not isinstance(step, MutationStep):
        calling, output = _call_separately(dialect, step, f"dataapi.rows{number}")
        writer = dialect.writer()
        return *calling, Pending(writer, "", output.json(writer, None))
    if step.reads_again:
        keys, count = f"dataapi.keys{number}", f"dataapi.count{number}"
        storing = _modify_and_store(dialect, number, step, keys, count)
        return *storing, _read_again(dialect, step, keys, count)
    return _in_one(dialect, number, step)


def _in_one(dialect: Dialect, number: int, step: MutationStep) -> tuple[*tuple[Compiled, ...], Pending]:
    writer = dialect.writer()
    changed = writer.alias()
    row = Row(writer.alias(), step.mutation.table, derived=True)
    records, count = MemberWriter(writer, row, joining=False), "pg_catalog.count(*)"
    answer = answer_json(writer, step.output, lambda inner: array_json(records.json(inner)), count)
    if writer.volatile and isinstance(step.mutation, Delete):
        return (_read_before(dialect, number, step, step.mutation),)
    change = dialect.mutation_sql(writer, MutationPart(step.mutation, changed, row, number, step.output))
    # It is one row also where the answer has nothing of the rows.
    source = f"{changed} as {row.alias}{''.join(records.joins)} having true"
    guarded = _guarded_json(writer, number, step, count, answer)
    return *change.before, Pending(writer, f"with {change.queries} ", (JsonQuery(guarded, source),))


def _guarded_json(writer: Writer, number: int, step: MutationStep, count: str, answer: Json) -> Json:
    """Return the answer, or SQL that raises where too many rows are affected."""
    if step.guard is None:
        return answer
    violated = step.guard.violated_sql(writer, count)
    raised = f"{raise_sql(step.guard.reason, count, number)}::text"
    return (f"case when {violated} then {raised} else {json_sql(answer)} end",)


def answer_json(writer: Writer, output: Output, records: Callable[[Output], Json], count: str) -> Json:
    """Return the answer.

    :param records: makes the JSON array of the affected rows.
    :param count: SQL of how many there are.
    """
    match output:
        case Object(members):
            made = [(key, answer_json(writer, value, records, count)) for key, value in members]
            return object_json(writer, made)
        case AffectedRecords(inner):
            return records(inner)
        case AffectedCount():
            return (f"{count}::text",)
        case _:
            return output.json(writer, None)


def _read_before(dialect: Dialect, number: int, step: MutationStep, delete: Delete) -> Pending:
    """Return a delete whose records are made of the matching rows before the first of them is gone."""
    writer = dialect.writer()
    before, changed = writer.alias(), writer.alias()
    row = Row(writer.alias(), delete.table, derived=True)
    matching, target = Row(writer.alias()), Row(writer.alias())
    made: list[str] = []
    joins: list[str] = []

    def records(inner: Output) -> Json:
        members = MemberWriter(writer, row, joining=False)
        name = f'"~record{len(made)}"'
        made.append(f"{json_sql(members.json(inner))} as {name}")
        joins.extend(members.joins)
        gone, known = writer.alias(), writer.alias()
        listed = array_json((f"{known}.{name}",), f' order by {known}."~place"')
        source = f'{changed} as {gone} join (select distinct on ("~identity") * from {before}) as {known}'
        matching = f'{gone}."~identity" {EQUAL} {known}."~identity"'
        return (JsonQuery(listed, f"{source} on {matching}"),)

    count = f"(select pg_catalog.count(*) from {changed})"
    answer = answer_json(writer, step.output, records, count)
    identity = _identity(step, row)
    where = "" if delete.where is None else f" where {condition_sql(writer, delete.where, matching)}"
    source = f'(select {row.selection_from(matching)}, {identity(matching)} as "~identity"'
    source += f" from {qualified(delete.table)} as {matching.alias}{where}) as {row.alias}"
    columns = ", ".join([f'{row.alias}."~identity"', 'pg_catalog.row_number() over () as "~place"', *made])
    # As a condition that names no row, the count is made before any row is looked at.
    deleting = delete_sql(writer, delete, target, f"(select pg_catalog.count(*) from {before}) is not null")
    prefix = (
        f"with {before} as materialized (select {columns} from {source}{''.join(joins)}), "
        f'{changed} as ({deleting} returning {identity(target)} as "~identity") '
    )
    return Pending(writer, prefix, _guarded_json(writer, number, step, count, answer))


def _identity(step: MutationStep, row: Row) -> Callable[[Row], str]:
    """Return what makes the SQL of a text that identifies a row: of its key, or of all columns of the answer.

    :param row: what was named of this one is in the answer.
    """
    key = [name for name, _ in step.key]
    by_key = bool(key) and step.mutation.table.is_unique(key)
    names = key if by_key else list(row.columns)
    whole = row.needs_whole and not by_key

    def identity_sql(of: Row) -> str:
        parts = [*map(of.column, names), *([of.whole()] if whole else [])]
        return f"row({', '.join(parts)})::text"

    return identity_sql


def _modify_and_store(
    dialect: Dialect, number: int, step: MutationStep, keys: str, count: str
) -> tuple[Compiled, ...]:
    """Return what changes the rows and stores their keys and number in settings."""
    writer = dialect.writer()
    changed, row = writer.alias(), Row(writer.alias(), derived=True)
    for name, _ in step.key:
        row.column(name)
    change = dialect.mutation_sql(writer, MutationPart(step.mutation, changed, row, number))
    counted = guarded_count(writer, number, step)
    values = ", ".join(f"{quote_identifier(name)}::text" for name, _ in step.key)
    listed = f"pg_catalog.json_agg(pg_catalog.json_build_array({values}))"
    text = (
        f"with {change.queries} "
        f"select pg_catalog.set_config({quote_literal(count)}, ({counted})::text, true), "
        f"pg_catalog.set_config({quote_literal(keys)}, coalesce({listed}, '[]')::text, true) "
        f"from {changed}"
    )
    return *change.before, compiled(text, writer)


def guarded_count(writer: Writer, number: int, step: MutationStep) -> str:
    """Return SQL of how many rows are affected, which raises where they are too many."""
    counted = "pg_catalog.count(*)"
    if step.guard is None:
        return counted
    violated = step.guard.violated_sql(writer, counted)
    raised = raise_sql(step.guard.reason, counted, number)
    return f"case when {violated} then {raised} else {counted} end"


def _read_again(dialect: Dialect, step: MutationStep, keys: str, count: str) -> Pending:
    """Return the answer over the rows found again by the stored keys, in the order of the mutation."""
    writer = dialect.writer()
    row, stored = Row(writer.alias(), step.mutation.table), writer.alias()
    matches = []
    for place, (name, type_) in enumerate(step.key):
        value = f"({stored}.key {operator_sql('->>')} {place})"
        if type_ == "unknown":
            matches.append(f"{row.column(name)}::text {EQUAL} {value}")
        else:
            matches.append(f"{row.column(name)} {EQUAL} {value}::{type_}")
    source = (
        f"pg_catalog.json_array_elements(pg_catalog.current_setting({quote_literal(keys)})::json) "
        f"with ordinality as {stored}(key, place) "
        f"join {qualified(step.mutation.table)} as {row.alias} on {' and '.join(matches)}"
    )
    counted = f"pg_catalog.current_setting({quote_literal(count)})::int"

    def records(inner: Output) -> Json:
        members = MemberWriter(writer, row)
        listed = array_json(members.json(inner), f" order by {stored}.place")
        return (JsonQuery(listed, f"{source}{''.join(members.joins)}"),)

    return Pending(writer, "", answer_json(writer, step.output, records, counted))


def _call_separately(dialect: Dialect, output: Output, setting: str) -> tuple[tuple[Compiled, ...], Output]:
    """Return the statement that calls a volatile function and stores its rows, and the output over these.

    There is none when the call may stand in the answer itself: it changes nothing, or the answer has only
    columns of one row.

    :param setting: the name of the transaction's setting that holds the rows.
    """
    if not isinstance(output, One | ConnectionOutput) or output.rows.call is None:
        return (), output
    rows = output.rows
    volatile = output.rows.call.function.volatility is Volatility.VOLATILE
    if not volatile or (isinstance(output, One) and output.output.reads_only_columns()):
        return (), output
    calling, kept = call_first(dialect.writer(), rows, setting)
    return (calling,), replace(output, rows=kept)
