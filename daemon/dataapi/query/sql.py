"""The SQL generator: an output of the algebra becomes one statement with its sources."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from dataapi.database.message import Statement
from dataapi.query.algebra import Output
from dataapi.query.outputs import output_sql
from dataapi.query.writer import Writer


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement and where each of its slots takes its value."""

    statement: Statement
    sources: tuple[Hashable, ...]


def compile_query(output: Output) -> Compiled:
    """Return the statement whose single row and column is the output's JSON text."""
    writer = Writer()
    text = f"select {output_sql(writer, output, None)}::text"
    return Compiled(Statement(text, tuple(writer.types)), tuple(writer.sources))
