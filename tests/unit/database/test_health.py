"""A pool closes old and idle connections (with a fake clock)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from dataapi.database.health import Ageing
from dataapi.database.session import SessionOptions
from twisted.internet import defer, task


@dataclass(eq=False)
class Used:
    """The opening time of a connection and the number of its uses."""

    name: str
    opened: float = 0.0
    uses: int = 0


class Bench:
    """Three idle connections that were opened at the same time."""

    def __init__(self, idle_time: float | None, lifetime: float | None) -> None:
        self.clock = task.Clock()
        self.sessions = [Used(name) for name in "abc"]
        self.idle = list(self.sessions)
        self.replaced: list[str] = []
        self._ageing = Ageing(
            self.clock,
            SessionOptions(idle_time=idle_time, lifetime=lifetime),
            cast("Any", self.sessions),
            cast("Any", self.idle),
            cast("Any", self._discard),
            cast("Any", lambda session: self.replaced.append(session.name)),
        )
        self.watching = defer.Deferred.fromCoroutine(self._ageing.watch())

    def _discard(self, session: Used) -> None:
        self.sessions.remove(session)
        self.idle.remove(session)

    def pass_time(self, seconds: float, *used: int) -> str:
        """Advance the clock while some connections are used and return the names of the open ones."""
        for _ in range(int(seconds * 10)):
            for session in self.sessions:
                session.uses += "abc".index(session.name) in used
            self.clock.advance(0.1)
        return "".join(session.name for session in self.sessions)


def test_idle_connections_are_closed_except_one() -> None:
    bench = Bench(30, None)
    assert bench.pass_time(29, 1) == "abc"
    assert bench.pass_time(5, 1) == "b"
    assert bench.pass_time(100) == "b"


def test_recently_used_connections_stay_open() -> None:
    bench = Bench(30, None)
    for _ in range(5):
        assert bench.pass_time(25) == "abc"
        assert bench.pass_time(4, 0, 1, 2) == "abc"


def test_connections_in_use_are_not_closed() -> None:
    bench = Bench(30, None)
    bench.idle.remove(bench.sessions[2])
    assert bench.pass_time(90) == "c"


def test_expired_connections_are_replaced_one_at_a_time() -> None:
    """The oldest connection is first. Its replacement is requested until the connection is closed."""
    bench = Bench(None, 60)
    bench.sessions[1].opened = -10
    bench.pass_time(49)
    assert bench.replaced == []
    bench.pass_time(6)
    assert bench.replaced == ["b"]
    bench.pass_time(6)
    assert bench.replaced == ["b", "b"]
    bench.sessions.pop(1)
    bench.pass_time(6)
    assert bench.replaced == ["b", "b", "a"]


def test_without_limits_no_connection_is_closed() -> None:
    bench = Bench(None, None)
    assert bench.watching.called
    assert not bench.clock.getDelayedCalls()
    assert bench.pass_time(10_000) == "abc"


@pytest.mark.parametrize("limit", [0.001, 30.0, 1e6])
def test_check_interval_is_bounded(limit: float) -> None:
    [call] = Bench(limit, None).clock.getDelayedCalls()
    assert 0.02 <= call.getTime() <= 60
