"""Reports the duration and errors of callers' SQL, and logs the SQL (``log-query``)."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import psycopg
from twisted.logger import Logger

from dataapi.database import errors
from dataapi.database.connection import ConnectionFailed
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
    """Logs statements with ``$n`` parameters instead of values.

    :ivar every: whether to log all statements instead of only failed and slow statements.
    :ivar slow: minimum duration of slow statements in seconds, None to log none.
    """

    every: bool
    slow: float | None

    def add(self, trip: RoundTrip, code: str = "") -> None:
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
    """Report a message that failed or was cancelled, and raise the error for the client.

    :raises DatabaseError: if PostgreSQL reported an error.
    :raises DatabaseUnavailable: if the connection was lost.
    """
    client_error: ApiError | None = None
    sqlstate = code = ""
    if isinstance(error, psycopg.Error):
        sqlstate = code = error.sqlstate or ""
        client_error = errors.from_postgres(error, anonymous=anonymous)
    elif isinstance(error, ConnectionFailed):
        client_error = errors.connection_lost(error.__cause__)
        code = client_error.code
    trip = RoundTrip(began, perf_counter(), "; ".join(map(text_of, statements)), sqlstate)
    report(trip)
    if query_log is not None:
        query_log.add(trip, code)
    if client_error is not None:
        raise client_error from error
