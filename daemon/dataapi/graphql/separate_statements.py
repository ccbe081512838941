"""Mutations that need several messages in one transaction, because Citus distributes their tables.

Citus may run a whole statement on the server of a shard, and other servers do not see the settings made
there. So the daemon passes results to later messages: keys of changed rows to the message that reads these
rows, and the responses of fields to the message that returns the data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dataapi.database.message import Bound
from dataapi.database.sql_text import EQUAL
from dataapi.graphql.mutation_statements import (
    MutationStep,
    OperationStep,
    guarded_count,
    response_json,
    step_statements,
)
from dataapi.graphql.sources import Variables
from dataapi.sql.algebra import Parameter, Rows
from dataapi.sql.dialect import Dialect, MutationPart
from dataapi.sql.dialects.tenants import tenant_in
from dataapi.sql.expressions import condition_sql
from dataapi.sql.outputs import Json, Output, Text, array_json, json_query, json_sql
from dataapi.sql.row_output import MemberWriter
from dataapi.sql.statement import Compiled, Row, compiled, qualified

_PREVIOUS = "~"
"""Name of the variable for the row that the previous message returned. It is not a valid GraphQL name."""


@dataclass(frozen=True, slots=True)
class PreviousResult:
    """A column of the row that the previous message returned."""

    index: int

    def bind(self, variables: Variables) -> str | None:
        row: Sequence[object] | None = variables.get(_PREVIOUS)
        return None if row is None else str(row[self.index])


@dataclass(frozen=True, slots=True)
class FieldStatements:
    """The statements of a mutation field, grouped into messages that are sent separately.

    The last statement returns the field's JSON text. ``key`` is the response key, ``constant`` the JSON of a
    field that needs no statement.
    """

    key: str
    messages: tuple[tuple[Compiled, ...], ...]
    constant: str = ""

    @property
    def statements(self) -> tuple[Compiled, ...]:
        return tuple([each for message in self.messages for each in message])

    def unprepared(self) -> FieldStatements:
        messages = [tuple([each.unprepared() for each in message]) for message in self.messages]
        return replace(self, messages=tuple(messages))


def bind_after(
    message: Sequence[Compiled], variables: Mapping[str, object], row: Sequence[object]
) -> list[Bound]:
    values = {**variables, _PREVIOUS: row}
    return [each.bind(values) for each in message]


def needs_several_messages(steps: Sequence[OperationStep]) -> bool:
    mutations = [step for step in steps if isinstance(step, MutationStep)]
    return bool(mutations) and (len(steps) > 1 or mutations[0].reads_again)


def compile_separately(
    dialect: Dialect, keys: Sequence[str], steps: Sequence[OperationStep]
) -> tuple[FieldStatements, ...]:
    fields = []
    for number, (key, step) in enumerate(zip(keys, dialect.rewrite(tuple(steps)), strict=True)):
        if isinstance(step, Text):
            fields.append(FieldStatements(key, (), json.dumps(step.text)))
        elif isinstance(step, MutationStep) and step.reads_again:
            fields.append(FieldStatements(key, (_modify(dialect, number, step), (_read(dialect, step),))))
        else:
            *before, response = step_statements(dialect, number, step)
            last = compiled(f"{response.prefix}{json_query(response.json)}", response.writer)
            fields.append(FieldStatements(key, ((*before, last),)))
    return tuple(fields)


# ---------------------------------------------------------------- changed rows, read again by their keys

_COUNT, _IDENTITIES, _KEYS = 0, 1, 2
"""Indexes of returned columns: number of changed rows, their identities, first of the key columns."""


def _modify(dialect: Dialect, number: int, step: MutationStep) -> tuple[Compiled, ...]:
    writer = dialect.writer()
    changed, row = writer.alias(), Row(writer.alias(), derived=True)
    keys = [row.column(name) for name, _ in step.key]
    columns = [f"({guarded_count(writer, number, step)})::text", _array_text(_identity_sql(keys))]
    columns += [_array_text(f"{key}::text") for key in keys]
    change = dialect.mutation_sql(writer, MutationPart(step.mutation, changed, row, number))
    text = f"with {change.queries} select {', '.join(columns)} from {changed} as {row.alias}"
    return *change.before, compiled(text, writer)


def _array_text(sql: str) -> str:
    return f"coalesce(pg_catalog.array_agg({sql}), '{{}}')::text"


def _identity_sql(keys: list[str]) -> str:
    return f"row({', '.join(keys)})::text"


def _read(dialect: Dialect, step: MutationStep) -> Compiled:
    """Return the statement that reads the changed rows by their keys, in the order of the mutation.

    Each server computes the JSON of its own rows. Citus cannot compute it from rows of several servers.
    """
    writer = dialect.writer()
    table, tenant = step.mutation.table, tenant_in(step.mutation)
    row = Row(writer.alias(), table)
    row.value = dialect.whole_row(Rows(table), row)
    identities = writer.slot(Parameter(PreviousResult(_IDENTITIES), "text[]"))
    identity = _identity_sql([row.column(name) for name, _ in step.key])
    conditions = [] if tenant is None else [condition_sql(writer, tenant, row)]
    for index, (name, type_) in enumerate(step.key, _KEYS):
        is_named = type_ != "unknown"
        column = row.column(name) if is_named else f"{row.column(name)}::text"
        values = writer.slot(Parameter(PreviousResult(index), f"{type_}[]" if is_named else "text[]"))
        conditions.append(f"{column} {EQUAL} any({values})")
    conditions.append(f"{identity} {EQUAL} any({identities})")

    def records(inner: Output) -> Json:
        record = json_sql(MemberWriter(writer, row, joining=False).json(inner))
        position, rows = f"pg_catalog.array_position({identities}, {identity})", writer.alias()
        source = (
            f'(select {record} as "json", {position} as "place" from {qualified(table)} as {row.alias} '
            f"where {' and '.join(conditions)} order by 2 offset 0) as {rows}"
        )
        array = array_json((f'{rows}."json"',))
        return (f"(select {json_sql(array)} from {source})",)

    count = writer.slot(Parameter(PreviousResult(_COUNT), "text"))
    return compiled(json_query(response_json(writer, step.output, records, count)), writer)
