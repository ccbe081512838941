"""The statements of mutations. They change rows and return the response.

If only columns of the changed rows are selected, one statement is enough: it changes the rows and computes
the response from ``returning``. If relationships are selected, a second statement in the same message reads
the rows by their keys. The first statement would read related rows as they were before the change.

Deleted rows are returned with their relationships from before the delete. A VOLATILE function does not use
the statement's snapshot, so it is called for all rows to delete before the first one is deleted.

A VOLATILE function that returns rows is called by a statement of its own. A statement that also selected a
page, a count or relationships would call the function several times, and would read related rows as they were
before the call.
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
    """The affected rows of a mutation."""

    output: Output

    def reads_only_columns(self) -> bool:
        return self.output.reads_only_columns()


@dataclass(frozen=True, slots=True)
class AffectedCount(InnerOutput):
    """The number of affected rows of a mutation."""

    def reads_only_columns(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class MutationStep:
    """A mutation and its response.

    :ivar key: the key columns with their SQL types, ``unknown`` for types that a role may lack the
        privilege to use. Empty if rows cannot be read again.
    :ivar output: the response, which contains ``AffectedRecords`` and ``AffectedCount``.
    :ivar guard: the limit of affected rows, None if there is none.
    """

    mutation: Mutation
    key: tuple[tuple[str, str], ...]
    output: Object
    guard: Guard | None = None

    @property
    def reads_again(self) -> bool:
        """Whether changed rows are read again by their keys, because relationships are selected."""
        plain = isinstance(self.mutation, Delete) or self.output.reads_only_columns()
        return bool(self.key) and not plain


OperationStep = MutationStep | Output


def compile_mutations(
    steps: tuple[tuple[Key, OperationStep], ...], dialect: Dialect = POSTGRESQL
) -> tuple[Compiled, ...]:
    """Return the statements of mutation fields in order. The last statement returns the data as JSON text."""
    steps = dialect.rewrite(steps)
    statements: list[Compiled] = []
    members: list[tuple[Key, Json]] = []
    for number, (key, step) in enumerate(steps):
        *before, response = step_statements(dialect, number, step)
        statements += before
        if len(steps) == 1:
            query = json_query(object_json(response.writer, [(key, response.json)]))
            return (*statements, compiled(f"{response.prefix}{query}", response.writer))
        result = quote_literal(f"dataapi.result{number}")
        stored = f"select pg_catalog.set_config({result}, {json_sql(response.json)}, true)"
        statements.append(compiled(response.prefix + stored, response.writer))
        members.append((key, (f"pg_catalog.current_setting({result})",)))
    writer = dialect.writer()
    return (*statements, compiled(json_query(object_json(writer, members)), writer))


@dataclass(frozen=True, slots=True)
class UnfinishedStatement:
    """An unfinished statement: the SQL of a response. ``prefix`` is a ``with`` clause, or empty."""

    writer: Writer
    prefix: str
    json: Json


def step_statements(
    dialect: Dialect, number: int, step: OperationStep
) -> tuple[*tuple[Compiled, ...], UnfinishedStatement]:
    """Return the statements of a field, given its index. The last statement returns the response."""
    if not isinstance(step, MutationStep):
        calling, output = _call_separately(dialect, step, f"dataapi.rows{number}")
        writer = dialect.writer()
        return *calling, UnfinishedStatement(writer, "", output.json(writer, None))
    if step.reads_again:
        keys, count = f"dataapi.keys{number}", f"dataapi.count{number}"
        storing = _modify_and_store(dialect, number, step, keys, count)
        return *storing, _read_again(dialect, step, keys, count)
    return _in_one(dialect, number, step)


def _in_one(
    dialect: Dialect, number: int, step: MutationStep
) -> tuple[*tuple[Compiled, ...], UnfinishedStatement]:
    writer = dialect.writer()
    changed = writer.alias()
    row = Row(writer.alias(), step.mutation.table, derived=True)
    records, count = MemberWriter(writer, row, joining=False), "pg_catalog.count(*)"
    response = response_json(writer, step.output, lambda inner: array_json(records.json(inner)), count)
    if writer.volatile and isinstance(step.mutation, Delete):
        return (_read_before(dialect, number, step, step.mutation),)
    change = dialect.mutation_sql(writer, MutationPart(step.mutation, changed, row, number, step.output))
    # ``having`` makes this an aggregate query, so it returns one row even if no aggregate is selected.
    source = f"{changed} as {row.alias}{''.join(records.joins)} having true"
    guarded = _guarded_json(writer, number, step, count, response)
    return *change.before, UnfinishedStatement(
        writer, f"with {change.queries} ", (JsonQuery(guarded, source),)
    )


def _guarded_json(writer: Writer, number: int, step: MutationStep, count: str, response: Json) -> Json:
    if step.guard is None:
        return response
    violated = step.guard.violated_sql(writer, count)
    error_sql = f"{raise_sql(step.guard.reason, count, number)}::text"
    return (f"case when {violated} then {error_sql} else {json_sql(response)} end",)


def response_json(writer: Writer, output: Output, records: Callable[[Output], Json], count: str) -> Json:
    """Return the JSON of a response.

    ``records`` returns the JSON array of the affected rows, ``count`` is SQL for their number.
    """
    match output:
        case Object(members):
            written = [(key, response_json(writer, value, records, count)) for key, value in members]
            return object_json(writer, written)
        case AffectedRecords(inner):
            return records(inner)
        case AffectedCount():
            return (f"{count}::text",)
        case _:
            return output.json(writer, None)


def _read_before(dialect: Dialect, number: int, step: MutationStep, delete: Delete) -> UnfinishedStatement:
    """Return a delete whose records are computed before the first row is deleted."""
    writer = dialect.writer()
    before, changed = writer.alias(), writer.alias()
    row = Row(writer.alias(), delete.table, derived=True)
    matching, target = Row(writer.alias()), Row(writer.alias())
    record_columns: list[str] = []
    joins: list[str] = []

    def records(inner: Output) -> Json:
        members = MemberWriter(writer, row, joining=False)
        name = f'"~record{len(record_columns)}"'
        record_columns.append(f"{json_sql(members.json(inner))} as {name}")
        joins.extend(members.joins)
        deleted, read = writer.alias(), writer.alias()
        array = array_json((f"{read}.{name}",), f' order by {read}."~place"')
        source = f'{changed} as {deleted} join (select distinct on ("~identity") * from {before}) as {read}'
        matching = f'{deleted}."~identity" {EQUAL} {read}."~identity"'
        return (JsonQuery(array, f"{source} on {matching}"),)

    count = f"(select pg_catalog.count(*) from {changed})"
    response = response_json(writer, step.output, records, count)
    identity = _identity(step, row)
    where = "" if delete.where is None else f" where {condition_sql(writer, delete.where, matching)}"
    source = f'(select {row.selection_from(matching)}, {identity(matching)} as "~identity"'
    source += f" from {qualified(delete.table)} as {matching.alias}{where}) as {row.alias}"
    columns = ", ".join(
        [f'{row.alias}."~identity"', 'pg_catalog.row_number() over () as "~place"', *record_columns]
    )
    # The condition does not depend on rows, so PostgreSQL evaluates it before reading any rows.
    deleting = delete_sql(writer, delete, target, f"(select pg_catalog.count(*) from {before}) is not null")
    prefix = (
        f"with {before} as materialized (select {columns} from {source}{''.join(joins)}), "
        f'{changed} as ({deleting} returning {identity(target)} as "~identity") '
    )
    return UnfinishedStatement(writer, prefix, _guarded_json(writer, number, step, count, response))


def _identity(step: MutationStep, row: Row) -> Callable[[Row], str]:
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
    writer = dialect.writer()
    changed, row = writer.alias(), Row(writer.alias(), derived=True)
    for name, _ in step.key:
        row.column(name)
    change = dialect.mutation_sql(writer, MutationPart(step.mutation, changed, row, number))
    count_sql = guarded_count(writer, number, step)
    values = ", ".join(f"{quote_identifier(name)}::text" for name, _ in step.key)
    array = f"pg_catalog.json_agg(pg_catalog.json_build_array({values}))"
    text = (
        f"with {change.queries} "
        f"select pg_catalog.set_config({quote_literal(count)}, ({count_sql})::text, true), "
        f"pg_catalog.set_config({quote_literal(keys)}, coalesce({array}, '[]')::text, true) "
        f"from {changed}"
    )
    return *change.before, compiled(text, writer)


def guarded_count(writer: Writer, number: int, step: MutationStep) -> str:
    """Return SQL for the number of affected rows. It raises an error if there are too many rows."""
    count_sql = "pg_catalog.count(*)"
    if step.guard is None:
        return count_sql
    violated = step.guard.violated_sql(writer, count_sql)
    error_sql = raise_sql(step.guard.reason, count_sql, number)
    return f"case when {violated} then {error_sql} else {count_sql} end"


def _read_again(dialect: Dialect, step: MutationStep, keys: str, count: str) -> UnfinishedStatement:
    writer = dialect.writer()
    row, stored = Row(writer.alias(), step.mutation.table), writer.alias()
    matches = []
    for index, (name, type_) in enumerate(step.key):
        value = f"({stored}.key {operator_sql('->>')} {index})"
        if type_ == "unknown":
            matches.append(f"{row.column(name)}::text {EQUAL} {value}")
        else:
            matches.append(f"{row.column(name)} {EQUAL} {value}::{type_}")
    source = (
        f"pg_catalog.json_array_elements(pg_catalog.current_setting({quote_literal(keys)})::json) "
        f"with ordinality as {stored}(key, place) "
        f"join {qualified(step.mutation.table)} as {row.alias} on {' and '.join(matches)}"
    )
    count_sql = f"pg_catalog.current_setting({quote_literal(count)})::int"

    def records(inner: Output) -> Json:
        members = MemberWriter(writer, row)
        array = array_json(members.json(inner), f" order by {stored}.place")
        return (JsonQuery(array, f"{source}{''.join(members.joins)}"),)

    return UnfinishedStatement(writer, "", response_json(writer, step.output, records, count_sql))


def _call_separately(dialect: Dialect, output: Output, setting: str) -> tuple[tuple[Compiled, ...], Output]:
    """Return a statement that calls a volatile function and stores its rows, and the output that reads them.

    There is no statement if the function changes nothing, or if only columns of one row are selected.
    """
    if not isinstance(output, One | ConnectionOutput) or output.rows.call is None:
        return (), output
    rows = output.rows
    volatile = output.rows.call.function.volatility is Volatility.VOLATILE
    if not volatile or (isinstance(output, One) and output.output.reads_only_columns()):
        return (), output
    calling, stored_rows = call_first(dialect.writer(), rows, setting)
    return (calling,), replace(output, rows=stored_rows)
