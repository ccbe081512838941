"""The statement that an output of the algebra becomes, with the sources of its slots."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dataapi.database.message import Bound, Statement
from dataapi.sql.algebra import Rows, SlotSource
from dataapi.sql.expressions import source_sql
from dataapi.sql.outputs import Output
from dataapi.sql.writer import Row, Writer


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement and where each of its slots takes its value.

    :ivar readings: see ``Writer.readings``.
    """

    statement: Statement
    sources: tuple[SlotSource, ...]
    readings: tuple[Compiled, ...] = ()

    def bind(self, values: Any) -> Bound:
        """Return the statement with the values that its sources find among those of one request."""
        return Bound(self.statement, tuple([source.bind(values) for source in self.sources]))

    def unprepared(self) -> Compiled:
        """Return the same with a statement that is not prepared."""
        return replace(self, statement=replace(self.statement, prepared=False))


def compiled(text: str, writer: Writer) -> Compiled:
    """Return the statement of a text with the slots that were written into it."""
    readings = tuple(
        Compiled(Statement(reading, (parameter.type,), prepared=False), (parameter.source,))
        for reading, parameter in writer.readings
    )
    return Compiled(Statement(text, tuple(writer.types)), tuple(writer.sources), readings)


def compile_query(output: Output) -> Compiled:
    """Return the statement whose single row and column is the output's JSON text."""
    writer = Writer()
    return compiled(f"select {output.sql(writer, None)}::text", writer)


def compile_matching(rows: Rows) -> Compiled:
    """Return the statement of all rows that match, whatever the page, for a look at its plan."""
    writer = Writer()
    return compiled(f"select 1 from {source_sql(writer, rows, Row(writer.alias()), None)}", writer)
