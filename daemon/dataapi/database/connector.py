"""Opens the connections of a pool, and tries again, further apart with every failure, while it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from twisted.internet import defer
from twisted.logger import Logger

from dataapi.concurrency.timers import RECONNECT_BACKOFF, Backoff, Retry
from dataapi.database import address
from dataapi.database.connection import ConnectionDied

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.concurrency.tasks import Background
    from dataapi.database.session import Session


class Connector:
    """Opens connections to one database.

    :param uri: as a ``Pool`` takes it.
    :param make: returns a session that is not connected yet.
    :param opened: takes a connection that was made.
    :param failed: called after an attempt that failed, when the next one is planned.
    :param grow: called after every attempt, and when one is due: it calls ``open`` with their number.
    :ivar connects: connections made.
    :ivar trouble: why the last attempt failed, None when it did not.
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
        """Begin; return a Deferred that fires when the first attempt has succeeded or failed."""
        self._stopped = False
        self._first_attempt = first = defer.Deferred[None]()
        return first

    def stop(self) -> None:
        """Plan no more attempts."""
        self._stopped = True
        self._retry.cancel()

    @property
    def waiting(self) -> bool:
        """Whether nothing is tried until the next attempt is due."""
        return self._retry.pending

    @property
    def remaining(self) -> float:
        """The seconds until the next attempt is due, 0 where none is planned."""
        return self._retry.remaining

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._retry.failures > 0

    def open(self, number: int, present: int) -> None:
        """Open as many connections as are missing to a number; one at a time after a failure.

        :param present: how many there are.
        """
        if self.waiting:
            return
        if self.failing:
            number = min(number, present + 1)
        for _ in range(number - present - len(self._opening)):
            self._background.spawn(self._open())

    def restart(self) -> None:
        """End the attempts that are under way; those that ``open`` asks for next begin at once.

        Attempts that began, or failed, before a server took the place of another one say nothing of it.
        """
        ended, self._opening = self._opening, set()
        for session in ended:
            session.connection.close()
        self._retry.cancel()
        self._retry.succeeded()

    async def _open(self) -> None:
        session = self._make()
        self._opening.add(session)
        try:
            await session.open(self._parameters, self._timeout)
        except (ConnectionDied, psycopg.Error) as error:
            session.connection.close()
            if session in self._opening:
                self._plan(error)
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

    def _plan(self, error: Exception) -> None:
        """Plan the next attempt after one that failed."""
        known, self.trouble = self.trouble, str(error)
        if self._stopped or self.waiting:
            return
        wait = self._retry.failed()
        if self.trouble != known:
            self._log.warn(
                "no database connection, trying again in {wait:.1f} s: {error}", wait=wait, error=error
            )
        self._failed()
