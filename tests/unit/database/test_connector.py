"""Opening and reopening a pool's connections."""

from __future__ import annotations

from typing import Any

from dataapi.concurrency.tasks import Background
from dataapi.concurrency.timers import Backoff
from dataapi.database.connection import ConnectionFailed
from dataapi.database.connector import Connector
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock


class Attempt:
    """A session. The test decides when it connects or fails."""

    def __init__(self) -> None:
        self.connection = self
        self.made: Deferred[None] = Deferred()

    async def open(self, _parameters: dict[str, str], _timeout: float) -> None:
        await self.made

    def fail(self) -> None:
        self.made.errback(ConnectionFailed("refused"))

    def close(self) -> None:
        """Do nothing, because name resolution in a thread cannot be cancelled immediately."""


class Opened:
    """A connector for one connection, and its attempts."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.attempts: list[Attempt] = []
        self.sessions: list[Any] = []
        self.refusals = 0
        self.connector = Connector(
            self.clock,
            "postgresql://localhost/app",
            Background(),
            self._make,
            opened=self.sessions.append,
            failed=self._fail,
            grow=self.grow,
            backoff=Backoff(first=1.0),
        )
        self.connector.start()
        self.grow()

    def _make(self) -> Any:
        self.attempts.append(Attempt())
        return self.attempts[-1]

    def _fail(self) -> None:
        self.refusals += 1

    def grow(self) -> None:
        """Open a connection if there is none."""
        self.connector.open(1, len(self.sessions))


def test_next_attempt_waits_after_a_failure() -> None:
    opened = Opened()
    opened.attempts[0].fail()
    assert (len(opened.attempts), opened.refusals) == (1, 1)
    opened.clock.advance(2.0)
    assert len(opened.attempts) == 2


def test_attempts_from_before_a_failover_are_ignored() -> None:
    opened = Opened()
    opened.connector.restart()
    opened.grow()
    assert len(opened.attempts) == 2
    opened.attempts[0].fail()
    assert (opened.refusals, opened.connector.failing, opened.connector.waiting) == (0, False, False)
    opened.attempts[1].made.callback(None)
    assert opened.sessions == [opened.attempts[1]]
