"""How long callers' SQL takes and how it fails: reported to its request, and logged (``log-query``)."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import psycopg
from twisted.logger import Logger

from dataapi.database import errors
from dataapi.database.connection import ConnectionDied
from dataapi.database.message import text_of
from dataapi.http.messages import RoundTrip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dataapi.database.message import Bound
    from dataapi.http.errors import ApiError
    from dataapi.http.messages import Fact

_log = Logger(namespace="dataapi.queries")


@dataclass(frozen=True, slots=True)
class QueryLog:
    """Logs statements with ``$1`` … in place of their values.

    :ivar every: whether it logs all of them; else those that fail, and those that are slow.
    :ivar slow: seconds from which on a statement is slow, None if none is.
    """

    every: bool
    slow: float | None

    def add(self, trip: RoundTrip, code: str = "") -> None:
        """Log the statements of one message, if they are to be logged.

        :param code: of the error that it came to, "" without one.
        """
        seconds = trip.ended - trip.began
        slow = self.slow is not None and seconds >= self.slow
        if not trip.text or not (self.every or code or slow):
            return
        members = {"milliseconds": round(seconds * 1000, 3), "sql": trip.text}
        if code:
            _log.warn("SQL failed: {code}", code=code, **members)
        else:
            _log.info("SQL took {milliseconds} ms", **members)


def report_failure(
    report: Callable[[Fact], None],
    query_log: QueryLog | None,
    statements: Sequence[Bound],
    began: float,
    error: BaseException,
    *,
    anonymous: bool,
) -> None:
    """Report a caller's message that failed or was cancelled, and raise the error as a typed one.

    :param anonymous: whether the caller is the one for whom a missing privilege is 401 and not 403.
    :raises DatabaseError: PostgreSQL refuses a statement.
    :raises DatabaseUnavailable: the connection died.
    """
    typed: ApiError | None = None
    sqlstate = code = ""
    if isinstance(error, psycopg.Error):
        sqlstate = code = error.sqlstate or ""
        typed = errors.refused(error, anonymous=anonymous)
    elif isinstance(error, ConnectionDied):
        typed = errors.died(error.__cause__)
        code = typed.code
    trip = RoundTrip(began, perf_counter(), "; ".join(map(text_of, statements)), sqlstate)
    report(trip)
    if query_log is not None:
        query_log.add(trip, code)
    if typed is not None:
        raise typed from error
