"""Quick reads that come while others are under way travel together, over few connections.

Most of what a small read costs is waking PostgreSQL and being woken by it, on both sides.  So a read whose
statement was quick lately waits until one of a few connections is free, and all that wait go in one message,
each in a transaction of its own.  Measured on the pool alone, this takes a quarter off the daemon's part and
a third off PostgreSQL's.  libpq's pipeline mode saves as much, but each statement then takes several messages
of the extended protocol, and old poolers do not know it.

A read changes nothing, so whatever goes wrong is made good by running it once more, alone.
"""

from __future__ import annotations

from collections import deque
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import psycopg2
from twisted.internet import defer

from dataapi.database.connection import ConnectionDied
from dataapi.http.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.concurrency.tasks import Background
    from dataapi.database.connection import Rows
    from dataapi.database.message import Message
    from dataapi.database.session import Session

CONNECTIONS = 3
"""How many connections quick reads use at once; PostgreSQL does on them more than one process can ask for."""

MOST = 8
"""Reads in one message."""

QUICK = 0.001
"""Seconds below which a read is quick."""

PATIENCE = 0.1
"""Seconds after which the reads of a message are run again one by one: one of them was not quick."""


class QuickReads:
    """The quick reads of a pool.

    :param idle: the pool's free connections.
    :param release: takes one back.
    """

    def __init__(
        self,
        reactor: Any,
        background: Background,
        idle: list[Session],
        release: Callable[[Session], None],
    ) -> None:
        self._reactor = reactor
        self._background = background
        self._idle = idle
        self._release = release
        self._waiting: deque[tuple[Message, defer.Deferred[Rows | None]]] = deque()
        self._under_way = 0

    def learn(self, message: Message, seconds: float) -> None:
        """Take note of how long a read took; one that is slow now and then is seldom thought quick."""
        pace = message.statements[-1].statement.pace
        known = seconds if pace.seconds is None else pace.seconds
        pace.seconds = known * 1.02 if seconds > known else known + (seconds - known) * 0.1

    def take(self, message: Message) -> bool:
        """Tell whether a message is a quick read that may travel with others."""
        seconds = message.statements[-1].statement.pace.seconds
        return (
            seconds is not None and seconds < QUICK and message.read_only and not message.rollback
            and (self._under_way > 0 or bool(self._idle))
        )  # fmt: skip

    async def run(self, message: Message) -> Rows | None:
        """Run a quick read and return the last statement's rows, None when it is to be run alone."""
        place: defer.Deferred[Rows | None] = defer.Deferred()
        self._waiting.append((message, place))
        self._send()
        return await place

    def _send(self) -> None:
        """Send what waits over the connections that are free."""
        while self._waiting and self._idle and self._under_way < CONNECTIONS:
            batch = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
            # A place is called when its caller is gone.
            if batch := [(message, place) for message, place in batch if not place.called]:
                self._under_way += 1
                self._background.spawn(self._run(self._idle.pop(), batch))
        while self._waiting and not self._under_way:
            self._waiting.popleft()[1].callback(None)

    async def _run(self, session: Session, batch: list[tuple[Message, defer.Deferred[Rows | None]]]) -> None:
        began, answered = self._reactor.seconds(), list["Rows"]()
        try:
            answered = await session.run_together([message for message, _ in batch], PATIENCE)
            if len(answered) == len(batch):
                self.learn(batch[0][0], (self._reactor.seconds() - began) / len(batch))
            else:
                _set_aside(batch[len(answered)][0])
        except defer.TimeoutError:
            for message, _ in batch:
                _set_aside(message)
        except (ApiError, ConnectionDied, psycopg2.Error, TypeError, ValueError):
            pass  # It comes again where the read is run alone.
        finally:
            self._under_way -= 1
            self._release(session)
            self._send()
            for (_, place), rows in zip_longest(batch, answered):
                place.callback(rows)


def _set_aside(message: Message) -> None:
    """Have a statement that fails or takes long run alone, until it was quick many times again."""
    message.statements[-1].statement.pace.seconds = PATIENCE
