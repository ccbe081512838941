"""The SQL generator: an output of the algebra becomes one statement with its sources."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from dataapi.database.message import Statement
from dataapi.query.algebra import Rows
from dataapi.query.expressions import source_sql
from dataapi.query.outputs import output_sql
from dataapi.query.results import Output
from dataapi.query.writer import Row, Writer


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement and where each of its slots takes its value.

    :ivar readings: see ``Writer.readings``.
    """

    statement: Statement
    sources: tuple[Hashable, ...]
    readings: tuple[Compiled, ...] = ()

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
    return compiled(f"select {output_sql(writer, output, None)}::text", writer)


def compile_matching(rows: Rows) -> Compiled:
    """Return the statement of all rows that match, whatever the page, for a look at its plan."""
    writer = Writer()
    return compiled(f"select 1 from {source_sql(writer, rows, Row(writer.alias()), None)}", writer)
