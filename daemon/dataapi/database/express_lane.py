"""The express lane: short statements share connections, with several messages in progress on each.

A backend that always has a next message does not sleep and wake up between messages. A single message cannot
be cancelled, so each statement has a time limit of 30 ms instead. PostgreSQL rolls back a message that
exceeds the limit, and the message runs again on its own connection.

See docs/decisions/statements.md for measurements, and for the messages that may use the express lane.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from dataapi.concurrency.wait_queue import WaitQueue
from dataapi.database.session import TIME_LIMIT, NeedsOwnConnection
from dataapi.http.messages import QueueWait

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sized
    from typing import Any

    from dataapi.database.message import Message
    from dataapi.database.session import Session
    from dataapi.database.steps import Rows

_MAX_CONNECTIONS = 2
"""Maximum number of shared connections. Each runs the statements of one message at a time."""

_MAX_IN_PROGRESS = 24
_MAX_WAIT = 0.25
"""Maximum number of seconds that a message waits for a shared connection."""

_LIMIT = re.compile(r"\s*(\d{1,15})\s*(us|ms|s|min|h|d)?\s*", re.ASCII)
_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1e3, "min": 6e4, "h": 3.6e6, "d": 8.64e7}


class LaneFigures(NamedTuple):
    """Numbers of messages: run on shared connections, run again on their own connection, and in progress."""

    shared: int = 0
    returned: int = 0
    in_progress: int = 0


class ExpressLane:
    """Runs short messages on shared connections of a pool.

    A connection is shared while messages are in progress, and then returned to the pool.

    :param always: whether to also run statements that are not known to be short, and messages that arrive
        while no other message is in progress.
    :param outdated: connections that must not be used for further messages.
    :ivar queue: messages that wait for a shared connection.
    """

    def __init__(
        self,
        clock: Any,
        *,
        size: int,
        always: bool,
        opened: Sized,
        idle: list[Session],
        outdated: Container[Session],
        release: Callable[[Session], None],
    ) -> None:
        self._always = always
        self.resize(size)
        self._shared = self._returned = 0
        self.queue: WaitQueue[Session] = WaitQueue(clock, _MAX_WAIT, NeedsOwnConnection)
        self._opened = opened
        self._idle = idle
        self._outdated = outdated
        self._release = release
        self._sessions: list[Session] = []

    def resize(self, size: int) -> None:
        """Set the pool's size. One connection is never shared unless the lane was created with ``always``."""
        self._size = min(_MAX_CONNECTIONS, size if self._always else size - 1)

    def stop(self) -> None:
        self.queue.fail_all(NeedsOwnConnection)

    def figures(self) -> LaneFigures:
        in_progress = sum(len(session.connection.in_progress) for session in self._sessions)
        return LaneFigures(self._shared, self._returned, in_progress)

    def accepts(self, message: Message) -> bool:
        if not message.shareable or message.isolation is not None or message.rollback or message.positioned:
            return False
        for bound in message.statements:
            statement = bound.statement
            if not statement.shareable or not statement.prepared:
                return False
        if statement.times.missing and not self._always:
            return False
        if not self._sessions:
            if not (self._idle and self._idle[-1].shareable):
                return False
            if len(self._idle) == len(self._opened) and not self._always:
                return False  # no other message is in progress
        timeout = dict(message.settings).get("statement_timeout")
        return timeout is None or _exceeds_limit(timeout)

    async def run(self, message: Message, *, anonymous: bool) -> Rows:
        """Run a message for which ``accepts`` is true. Raises the errors of ``Pool.run``.

        :raises NeedsOwnConnection: if the message had no effect and must run on its own connection.
        """
        session = self._choose() or await self._wait(message)
        try:
            rows = await session.run_shared(message, anonymous=anonymous)
        except BaseException as error:
            if isinstance(error, NeedsOwnConnection):
                self._returned += 1
            if session in self._sessions and not session.connection.in_progress:
                self._message_ended(session)  # the message was not sent, so no response ends it
            raise
        self._shared += 1
        return rows

    def _choose(self) -> Session | None:
        chosen, fewest = None, _MAX_IN_PROGRESS
        for session in self._sessions:
            in_progress = len(session.connection.in_progress)
            if in_progress < fewest and self._is_usable(session):
                chosen, fewest = session, in_progress
        if self._idle and len(self._sessions) < self._size and self._idle[-1].shareable:
            chosen = self._idle.pop()
            chosen.connection.on_message_end = partial(self._message_ended, chosen)
            self._sessions.append(chosen)
        return chosen

    async def _wait(self, message: Message) -> Session:
        if not self._sessions:
            raise NeedsOwnConnection
        began = perf_counter()
        try:
            return await self.queue.join()
        finally:
            message.context.report(QueueWait(began, perf_counter()))

    def _message_ended(self, session: Session) -> None:
        if self.queue.waiting and self._is_usable(session):
            self.queue.serve(session)
        elif not session.connection.in_progress:
            session.connection.on_message_end = None
            self._sessions.remove(session)
            self._release(session)

    def _is_usable(self, session: Session) -> bool:
        return not (session.connection.lost or session.connection.altered or session in self._outdated)


@lru_cache(maxsize=64)
def _exceeds_limit(value: str) -> bool:
    limit = _LIMIT.fullmatch(value)
    if limit is None:
        return False
    milliseconds = int(limit[1]) * _MILLISECONDS[limit[2] or "ms"]
    return milliseconds == 0 or milliseconds >= TIME_LIMIT
