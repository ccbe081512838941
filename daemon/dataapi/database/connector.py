"""Opens the connections of a pool. Failed attempts are retried with increasing delays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from twisted.internet import defer
from twisted.logger import Logger

from dataapi.concurrency.timers import RECONNECT_BACKOFF, Backoff, Retry
from dataapi.database import address
from dataapi.database.connection import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.concurrency.tasks import Background
    from dataapi.database.session import Session


class Connector:
    """Opens connections to one database.

    :param make: returns a new session that is not connected.
    :param opened: receives each connected session.
    :param failed: called when an attempt has failed and the next attempt is scheduled.
    :param grow: calls ``open`` if connections are missing. Called after each attempt and when a retry is due.
    :ivar trouble: why the last attempt failed, or None.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        uri: str,
        background: Background,
        make: Callable[[], Session],
        *,
        opened: Callable[[Session], None],
        failed: Callable[[], None],
        grow: Callable[[], None],
        backoff: Backoff = RECONNECT_BACKOFF,
    ) -> None:
        self._parameters = address.parameters(uri)
        self._timeout = address.connect_timeout(self._parameters)
        self._background = background
        self._make = make
        self._opened = opened
        self._failed = failed
        self._grow = grow
        self._retry = Retry(reactor, backoff, grow)
        self._opening: set[Session] = set()
        self._first_attempt: defer.Deferred[None] | None = None
        self._stopped = True
        self.connects = 0
        self.trouble: str | None = None

    def start(self) -> defer.Deferred[None]:
        """Start connecting. The Deferred fires when the first attempt has succeeded or failed."""
        self._stopped = False
        self._first_attempt = first = defer.Deferred[None]()
        return first

    def stop(self) -> None:
        self._stopped = True
        self._retry.cancel()

    @property
    def waiting(self) -> bool:
        return self._retry.pending

    @property
    def remaining(self) -> float:
        return self._retry.remaining

    @property
    def failing(self) -> bool:
        return self._retry.failures > 0

    def open(self, number: int, present: int) -> None:
        """Open the missing connections. After a failure, open only one at a time."""
        if self.waiting:
            return
        if self.failing:
            number = min(number, present + 1)
        for _ in range(number - present - len(self._opening)):
            self._background.spawn(self._open())

    def restart(self) -> None:
        """Abort the attempts in progress and reset the delay.

        Attempts that started or failed before a failover are not relevant to the new server.
        """
        aborted, self._opening = self._opening, set()
        for session in aborted:
            session.connection.close()
        self._retry.cancel()
        self._retry.succeeded()

    async def _open(self) -> None:
        session = self._make()
        self._opening.add(session)
        try:
            await session.open(self._parameters, self._timeout)
        except (ConnectionFailed, psycopg.Error) as error:
            session.connection.close()
            if session in self._opening:
                self._schedule_retry(error)
        except defer.CancelledError:
            session.connection.close()
        else:
            self.connects += 1
            self.trouble = None
            self._retry.succeeded()
            self._opened(session)
        finally:
            self._opening.discard(session)
            first, self._first_attempt = self._first_attempt, None
            if first is not None:
                first.callback(None)
        self._grow()

    def _schedule_retry(self, error: Exception) -> None:
        previous, self.trouble = self.trouble, str(error)
        if self._stopped or self.waiting:
            return
        wait = self._retry.failed()
        if self.trouble != previous:
            self._log.warn(
                "cannot connect to the database, retrying in {wait:.1f} s: {error}", wait=wait, error=error
            )
        self._failed()
