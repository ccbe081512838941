"""Mutations that take several messages, in one transaction: those of tables that Citus distributes.

Citus may have a shard's server run a whole statement, and a setting that is made there is known to no other
one.  So the daemon hands on what a message returned: the keys of changed rows as parameters of the one that
answers with them, and the answers of several fields as members of the data.
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
    answer_json,
    guarded_count,
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

_EARLIER = "~"
"""The variable that stands for what the message before returned; no document can name one like this."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A column of the row that the message before returned."""

    place: int

    def bind(self, variables: Variables) -> str | None:
        """Return the column's value, None before that message was sent."""
        row: Sequence[object] | None = variables.get(_EARLIER)
        return None if row is None else str(row[self.place])


@dataclass(frozen=True, slots=True)
class FieldStatements:
    """The statements of one field, message by message, the last one giving its JSON text.

    :ivar key: the field's response key.
    :ivar constant: its JSON where it takes none.
    """

    key: str
    messages: tuple[tuple[Compiled, ...], ...]
    constant: str = ""

    @property
    def statements(self) -> tuple[Compiled, ...]:
        """All of them."""
        return tuple([each for message in self.messages for each in message])

    def unprepared(self) -> FieldStatements:
        """Return the same with statements that are not prepared."""
        messages = [tuple([each.unprepared() for each in message]) for message in self.messages]
        return replace(self, messages=tuple(messages))


def bound_after(
    message: Sequence[Compiled], variables: Mapping[str, object], row: Sequence[object]
) -> list[Bound]:
    """Return the statements of a message with their values.

    :param row: what the message before returned.
    """
    values = {**variables, _EARLIER: row}
    return [each.bind(values) for each in message]


def are_separate(steps: Sequence[OperationStep]) -> bool:
    """Whether mutation fields take several messages."""
    mutations = [step for step in steps if isinstance(step, MutationStep)]
    return bool(mutations) and (len(steps) > 1 or mutations[0].reads_again)


def compile_separately(
    dialect: Dialect, keys: Sequence[str], steps: Sequence[OperationStep]
) -> tuple[FieldStatements, ...]:
    """Return the statements of mutation fields, in order."""
    found = []
    for number, (key, step) in enumerate(zip(keys, dialect.rewrite(tuple(steps)), strict=True)):
        if isinstance(step, Text):
            found.append(FieldStatements(key, (), json.dumps(step.text)))
        elif isinstance(step, MutationStep) and step.reads_again:
            found.append(FieldStatements(key, (_modify(dialect, number, step), (_read(dialect, step),))))
        else:
            *before, answer = step_statements(dialect, number, step)
            last = compiled(f"{answer.prefix}{json_query(answer.json)}", answer.writer)
            found.append(FieldStatements(key, ((*before, last),)))
    return tuple(found)


# ---------------------------------------------------------------- rows that are found again

_COUNT, _IDENTITIES, _KEYS = 0, 1, 2
"""Places of what a change returns: how many rows, their identities, and the values of each key column."""


def _modify(dialect: Dialect, number: int, step: MutationStep) -> tuple[Compiled, ...]:
    """Return what changes the rows; the last statement returns their number and keys, as texts."""
    writer = dialect.writer()
    changed, row = writer.alias(), Row(writer.alias(), derived=True)
    keys = [row.column(name) for name, _ in step.key]
    columns = [f"({guarded_count(writer, number, step)})::text", _listed(_identity_sql(keys))]
    columns += [_listed(f"{key}::text") for key in keys]
    change = dialect.mutation_sql(writer, MutationPart(step.mutation, changed, row, number))
    text = f"with {change.queries} select {', '.join(columns)} from {changed} as {row.alias}"
    return *change.before, compiled(text, writer)


def _listed(sql: str) -> str:
    return f"coalesce(pg_catalog.array_agg({sql}), '{{}}')::text"


def _identity_sql(keys: list[str]) -> str:
    return f"row({', '.join(keys)})::text"


def _read(dialect: Dialect, step: MutationStep) -> Compiled:
    """Return the answer over the rows found again by their keys, in the order of the mutation.

    Each server makes the records of the rows that it has, as Citus refuses that once they are gathered.
    """
    writer = dialect.writer()
    table, tenant = step.mutation.table, tenant_in(step.mutation)
    row = Row(writer.alias(), table)
    row.value = dialect.whole_row(Rows(table), row)
    identities = writer.slot(Parameter(Earlier(_IDENTITIES), "text[]"))
    identity = _identity_sql([row.column(name) for name, _ in step.key])
    conditions = [] if tenant is None else [condition_sql(writer, tenant, row)]
    for place, (name, type_) in enumerate(step.key, _KEYS):
        known = type_ != "unknown"
        column = row.column(name) if known else f"{row.column(name)}::text"
        values = writer.slot(Parameter(Earlier(place), f"{type_}[]" if known else "text[]"))
        conditions.append(f"{column} {EQUAL} any({values})")
    conditions.append(f"{identity} {EQUAL} any({identities})")

    def records(inner: Output) -> Json:
        made = json_sql(MemberWriter(writer, row, joining=False).json(inner))
        place, rows = f"pg_catalog.array_position({identities}, {identity})", writer.alias()
        source = (
            f'(select {made} as "json", {place} as "place" from {qualified(table)} as {row.alias} '
            f"where {' and '.join(conditions)} order by 2 offset 0) as {rows}"
        )
        listed = array_json((f'{rows}."json"',))
        return (f"(select {json_sql(listed)} from {source})",)

    count = writer.slot(Parameter(Earlier(_COUNT), "text"))
    return compiled(json_query(answer_json(writer, step.output, records, count)), writer)
