"""How long callers' SQL takes and how it fails, for a request's facts and for the log (``log-query``)."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import psycopg
from twisted.logger import Logger

from dataapi.database import errors
from dataapi.database.connection import ConnectionDied
from dataapi.http.messages import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.database.message import Bound
    from dataapi.http.errors import ApiError
    from dataapi.http.messages import RequestFacts

_log = Logger(namespace="dataapi.queries")


@dataclass(frozen=True, slots=True)
class QueryLog:
    """Logs statements with ``$1`` … in place of their values.

    :ivar every: whether it logs all of them; else those that fail, and those that are slow.
    :ivar slow: seconds from which on a statement is slow, None if none is.
    """

    every: bool
    slow: float | None

    def add(self, statements: Sequence[Bound], seconds: float, code: str) -> None:
        """Log what one message ran, if it is to be logged.

        :param code: of the error that it came to, "" without one.
        """
        if not statements or not (self.every or code or (self.slow is not None and seconds >= self.slow)):
            return
        sql = "; ".join([bound.statement.text for bound in statements])
        members = {"milliseconds": round(seconds * 1000, 3), "sql": sql}
        if code:
            _log.warn("SQL failed: {code}", code=code, **members)
        else:
            _log.info("SQL took {milliseconds} ms", **members)


def record(
    facts: RequestFacts,
    query_log: QueryLog | None,
    statements: Sequence[Bound],
    began: float,
    error: BaseException | None = None,
    *,
    anonymous: bool = False,
) -> None:
    """Record how long a caller's message took and the code of its error, which is raised as a typed one.

    :param anonymous: whether the caller is the one for whom a missing privilege is 401 and not 403.
    :raises DatabaseError: what PostgreSQL refuses.
    :raises DatabaseUnavailable: the connection died.
    """
    ended = perf_counter()
    typed: ApiError | None = None
    code = ""
    if isinstance(error, psycopg.Error):
        code = facts.sqlstate = error.sqlstate or ""
        typed = errors.refused(error, anonymous=anonymous)
    elif isinstance(error, ConnectionDied):
        typed = errors.died(error.__cause__)
        code = typed.code
    facts.database += ended - began
    if facts.intervals is not None:
        text = "; ".join([bound.statement.text for bound in statements])
        facts.intervals.append(Interval("statement", began, ended, text))
    if query_log is not None:
        query_log.add(statements, ended - began, code)
    if typed is not None:
        raise typed from error
