"""Which connections a pool gives up: rules of time, on a clock of the test's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from dataapi.database.health import Ageing
from dataapi.database.session import SessionOptions
from twisted.internet import defer, task


@dataclass(eq=False)
class Used:
    """A connection as far as its age matters."""

    name: str
    opened: float = 0.0
    uses: int = 0


class Bench:
    """Three connections, all of them free and made at the beginning."""

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
        """Let seconds pass in which some are used all the time; return the names of those that are left."""
        for _ in range(int(seconds * 10)):
            for session in self.sessions:
                session.uses += "abc".index(session.name) in used
            self.clock.advance(0.1)
        return "".join(session.name for session in self.sessions)


def test_what_is_unused_is_closed_but_for_one() -> None:
    bench = Bench(30, None)
    assert bench.pass_time(29, 1) == "abc"
    assert bench.pass_time(5, 1) == "b"
    assert bench.pass_time(100) == "b"


def test_what_is_used_in_the_meantime_stays() -> None:
    bench = Bench(30, None)
    for _ in range(5):
        assert bench.pass_time(25) == "abc"
        assert bench.pass_time(4, 0, 1, 2) == "abc"


def test_what_is_in_use_is_not_closed() -> None:
    bench = Bench(30, None)
    bench.idle.remove(bench.sessions[2])
    assert bench.pass_time(90) == "c"


def test_old_ones_are_replaced_one_at_a_time() -> None:
    """The oldest first; it is asked for again until it has gone."""
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


def test_without_limits_nothing_is_done() -> None:
    bench = Bench(None, None)
    assert bench.watching.called
    assert not bench.clock.getDelayedCalls()
    assert bench.pass_time(10_000) == "abc"


@pytest.mark.parametrize("limit", [0.001, 30.0, 1e6])
def test_looks_are_neither_hectic_nor_rare(limit: float) -> None:
    [call] = Bench(limit, None).clock.getDelayedCalls()
    assert 0.02 <= call.getTime() <= 60
