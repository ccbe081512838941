"""PostgreSQL's SQL dialect, with the methods that the dialects of derived databases override.

``dialect_of`` chooses the dialect for a catalog.
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
"""Returns an SQL expression that raises an error if the row count or body size is too large.

The arguments are SQL expressions: the body size, the row count, and the value if there is no error.
"""


@dataclass(frozen=True, slots=True)
class ResultQuery:
    """A query that returns one row. ``before`` is a ``with`` clause, or "".

    :ivar names: quoted column names. The first two are the response body and its number of rows.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    source: str
    before: str = ""

    def sql(self) -> str:
        return f"{self.before}select {', '.join(self.columns)} from {self.source}"


@dataclass(frozen=True, slots=True)
class MutationPart:
    """A mutation within a statement.

    :ivar name: name of the ``with`` query that returns the changed rows.
    :ivar row: the changed row. The query returns the columns that were referenced in it.
    :ivar index: index of the mutation within its request, for errors.
    :ivar output: the part of the response that depends on the rows.
    :ivar guards: bounds for the number of changed rows.
    """

    mutation: Mutation
    name: str
    row: Row
    index: int = 0
    output: object = None
    guards: tuple[Guard, ...] = ()


@dataclass(frozen=True, slots=True)
class MutationSql:
    """The ``with`` queries of a mutation. The last query returns the changed rows.

    :ivar inserted: SQL for the number of inserted rows if an upsert counts them.
    """

    queries: str
    inserted: str
    before: tuple[Compiled, ...] = ()


class Dialect(PageDialect):
    """SQL for PostgreSQL. Subclasses override the methods that differ for their database.

    :cvar separate_messages: whether statements that depend on one another must be sent in separate messages.
    :cvar reads_written_rows: whether a statement can join related rows to rows that the transaction has
        written.
    :cvar planner_settings: settings to apply while the planner estimates the number of rows.
    """

    writer_class = Writer
    separate_messages = False
    reads_written_rows = True
    after_pre_request: tuple[Bound, ...] = ()
    planner_settings: Settings = ()

    def __init__(self) -> None:
        self.writer = partial(self.writer_class, self)

    # ------------------------------------------------------------ algebra

    def rewrite(self, value: T) -> T:
        return value

    def rewrite_result(self, rows: Rows, output: Output) -> tuple[Rows, Output]:
        return rows, output

    # ------------------------------------------------------------ statements

    def mutation_sql(self, writer: Writer, part: MutationPart) -> MutationSql:
        """Return the SQL of a mutation. Call this after referencing the columns to return in ``part.row``."""
        queries = mutation_queries(writer, part.mutation, part.name, part.row, part.index)
        return MutationSql(queries, inserted_sql(part.name, part.mutation))

    def checked(self, _writer: Writer, query: ResultQuery, checks: Sequence[Check], /) -> str:
        text, names = query.sql(), ", ".join(query.names)
        body, count, *others = query.names
        for check in checks:
            number = check(f"pg_catalog.pg_column_size({body})", count, count)
            text = f'select {", ".join((body, number, *others))} from ({text}) as "answer"({names})'
        return text

    # ------------------------------------------------------------ results

    def planned_rows(self, plans: Any) -> int:
        return int(plans[0]["Plan"]["Plan Rows"])

    def error(self, error: DatabaseError, _catalog: Catalog, /) -> DatabaseError:
        return error


POSTGRESQL = Dialect()


def dialect_of(catalog: Catalog) -> Dialect:
    if not catalog.clustered:
        return POSTGRESQL
    from dataapi.sql.dialects.citus import CITUS  # noqa: PLC0415 - import only if needed

    return CITUS


def compile_query(output: Output, dialect: Dialect = POSTGRESQL) -> Compiled:
    writer = dialect.writer()
    return compiled(json_query(dialect.rewrite(output).json(writer, None)), writer)
