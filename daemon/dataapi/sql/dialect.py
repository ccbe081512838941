"""What the generator leaves to relatives of PostgreSQL; what is here is PostgreSQL's own.

A statement's ``Writer`` has the dialect that it is written in, which the catalog decides: see ``dialect_of``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from dataapi.catalog.model import Catalog
from dataapi.database.message import Bound, Settings
from dataapi.http.errors import DatabaseError
from dataapi.sql.algebra import Rows
from dataapi.sql.dml import inserted_sql, mutation_queries
from dataapi.sql.mutations import Mutation
from dataapi.sql.outputs import Output, json_query
from dataapi.sql.row_output import PageDialect
from dataapi.sql.statement import Compiled, Guard, Row, Writer, compiled

T = TypeVar("T")

Check = Callable[[str, str, str], str]
"""Makes SQL of a number of rows, which raises where that, or the size of the body, is out of bounds.

It takes SQL of the body's size, of the number of rows, and of what stands for that number so far.
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """A query of one row.

    :ivar names: of its columns, the first two being a body and the number of rows in it; in quotes.
    :ivar columns: the SQL of each.
    :ivar source: what stands behind ``from``.
    :ivar before: a ``with`` clause, or empty.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    source: str
    before: str = ""

    def sql(self) -> str:
        return f"{self.before}select {', '.join(self.columns)} from {self.source}"


@dataclass(frozen=True, slots=True)
class ChangeOf:
    """A mutation that is a part of a statement.

    :ivar name: that of the query that gives the changed rows.
    :ivar row: what was named of it is what the query gives.
    :ivar place: which of several changes of one request it is, for what it raises.
    :ivar shown: all that the answer has of the rows.
    :ivar guards: what an inserted row must satisfy.
    """

    mutation: Mutation
    name: str
    row: Row
    place: int = 0
    shown: object = None
    guards: tuple[Guard, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A mutation's SQL.

    :ivar queries: the ``with`` queries, the last of which gives the changed rows.
    :ivar inserted: SQL of how many of them were inserted, where an upsert counts them.
    :ivar before: statements to run before the one that has these queries.
    """

    queries: str
    inserted: str
    before: tuple[Compiled, ...] = ()


class Dialect(PageDialect):
    """How PostgreSQL's SQL is written; a subclass overrides where a relative differs.

    :cvar writing: the class of writers; ``writer()`` makes one.
    :cvar sends_apart: whether statements that depend on one another take a message each.
    :cvar reads_after: whether a later statement may read what was written, with related rows.
    :cvar after_pre_request: statements that follow a call of the pre-request function.
    :cvar of_planner: settings under which the planner estimates the number of rows.
    """

    writing = Writer
    sends_apart = False
    reads_after = True
    after_pre_request: tuple[Bound, ...] = ()
    of_planner: Settings = ()

    def __init__(self) -> None:
        self.writer = partial(self.writing, self)

    # ------------------------------------------------------------ the algebra

    def rewritten(self, value: T) -> T:
        """Return algebra as it is to be written."""
        return value

    def answered(self, rows: Rows, output: Output) -> tuple[Rows, Output]:
        """Return the rows of an answer and the output of each, as they are to be written."""
        return rows, output

    # ------------------------------------------------------------ statements

    def change(self, writer: Writer, asked: ChangeOf) -> Change:
        """Return what changes rows; what is to be returned of them was named before."""
        queries = mutation_queries(writer, asked.mutation, asked.name, asked.row, asked.place)
        return Change(queries, inserted_sql(asked.name, asked.mutation))

    def checked(self, _writer: Writer, answer: Answer, checks: Sequence[Check], /) -> str:
        """Return the text of an answer whose number of rows is made by checks, one after the other."""
        text, names = answer.sql(), ", ".join(answer.names)
        body, count, *others = answer.names
        for check in checks:
            number = check(f"pg_catalog.pg_column_size({body})", count, count)
            text = f'select {", ".join((body, number, *others))} from ({text}) as "answer"({names})'
        return text

    # ------------------------------------------------------------ what PostgreSQL answers

    def planned_rows(self, plans: Any) -> int:
        """Return how many rows the planner expects.

        :param plans: what ``EXPLAIN (FORMAT JSON)`` gives.
        """
        return int(plans[0]["Plan"]["Plan Rows"])

    def error(self, error: DatabaseError, _catalog: Catalog, /) -> DatabaseError:
        """Return an error as clients may read it."""
        return error


POSTGRESQL = Dialect()


def dialect_of(catalog: Catalog) -> Dialect:
    """Return the dialect of a catalog's database: PostgreSQL's own, unless Citus holds tables of it."""
    if not catalog.clustered:
        return POSTGRESQL
    from dataapi.sql.dialects.citus import CITUS  # noqa: PLC0415 - where nothing is distributed it stays out

    return CITUS


def compile_query(output: Output, dialect: Dialect = POSTGRESQL) -> Compiled:
    """Return the statement whose single row and column is the output's JSON text."""
    writer = dialect.writer()
    return compiled(json_query(dialect.rewritten(output).json(writer, None)), writer)
