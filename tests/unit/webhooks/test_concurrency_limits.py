"""Limits of concurrent attempts by host, endpoint and organization."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

import pytest
from dataapi.webhooks.delivery import concurrency_limits
from dataapi.webhooks.delivery.concurrency_limits import (
    AHEAD,
    DEFAULT_LIMIT,
    MAX_AHEAD,
    ClaimedAttempt,
    ConcurrencyLimits,
)
from dataapi.webhooks.delivery.destinations import host_of
from hypothesis import given
from hypothesis import strategies as st
from support.fake_queue import FakeQueue
from twisted.internet.task import Clock

if TYPE_CHECKING:
    from dataapi.webhooks.model import DueWork

SLOW = 1.0


def work(host: str = "a", endpoint: UUID | None = None, organization: str | None = None) -> DueWork:
    """Return claimed work.

    By default, each host has its own organization, and an organization has one endpoint per host.
    """
    queue = FakeQueue(Clock())
    endpoint = endpoint or uuid5(NAMESPACE_URL, f"{organization or host} {host}")
    queue.add(f"https://{host}/", endpoint, organization=organization or host)
    [row] = queue.rows.values()
    return row.work


class Machine:
    """Concurrency limits with a clock."""

    def __init__(self, maximum: int, per_host: int) -> None:
        self.limits = ConcurrencyLimits(maximum, per_host, SLOW)
        self.now = 0.0

    def add(self, *works: DueWork) -> list[bool]:
        """Add claimed work and return whether each item was accepted."""
        return [self.limits.add(ClaimedAttempt(one, self.now)) for one in works]

    def begin(self, *works: DueWork) -> list[DueWork]:
        """Add claimed work, begin all attempts that the limits permit, and return their work."""
        self.add(*works)
        return [one.work for one in iter(lambda: self.limits.next(self.now), None)]

    def end(self, works: list[DueWork], seconds: float = 0.1, *, responded: bool | None = True) -> None:
        """End attempts after some seconds."""
        self.now += seconds
        for one in works:
            self.limits.ended(one, self.now, responded=responded)

    def know(self, *works: DueWork, seconds: float = 0.1, responded: bool = True, times: int = 1) -> None:
        """Make attempts with this duration, so that the limits record the endpoints' behavior."""
        for _ in range(times):
            for one in works:
                assert self.begin(one) == [one]
                self.end([one], seconds, responded=responded)


STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from("xy"),
        st.sampled_from([UUID(int=1), UUID(int=2)]),
        st.sampled_from([None, 0.1, 9.0]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=80,
)


@given(st.integers(1, 18), st.integers(1, 18), STEPS)
def test_limits_are_never_exceeded(
    maximum: int, per_host: int, steps: list[tuple[str, str, UUID, float | None, bool, bool]]
) -> None:
    machine = Machine(maximum, per_host)
    limits = machine.limits
    running: list[DueWork] = []
    waiting = 0
    for host, organization, endpoint, ends, responded, drops in steps:
        if ends is None:
            waiting += sum(machine.add(work(host, uuid5(endpoint, organization), organization)))
        elif running:
            machine.end([running.pop(0)], ends, responded=responded)
        if drops:
            waiting -= len(limits.drop(lambda _: True))
        begun = machine.begin()
        limits.limits(machine.now)
        running += begun
        waiting -= len(begun)
        hosts = Counter(host_of(one.url) for one in running)
        assert len(running) == limits.running <= maximum
        assert all(count <= min(maximum, per_host) for count in hosts.values())
        assert limits.waiting == waiting
        assert running or not waiting
    while running:
        machine.end([running.pop()])
        running += machine.begin()
    assert (limits.running, limits.waiting) == (0, 0), "all attempts were begun"


def test_organizations_and_their_endpoints_take_turns() -> None:
    machine = Machine(4, 4)
    begun = machine.begin(*(work(host, organization="x") for host in "aabc"), work("e", organization="y"))
    assert [host_of(one.url) for one in begun] == ["a", "e", "b", "c"]


def test_new_endpoint_begins_with_one_attempt_and_gains_one_per_response() -> None:
    machine = Machine(100, 16)
    counts = []
    for _ in range(6):
        begun = machine.begin(*(work() for _ in range(30)))
        counts.append(len(begun))
        machine.limits.drop(lambda _: True)
        machine.end(begun)
    assert counts == [1, 2, 4, 8, 14, 14]


@pytest.mark.parametrize(
    ("seconds", "responded", "cap"), [(9.0, False, 1), (9.0, True, 14), (0.1, False, 14)]
)
def test_each_timeout_halves_the_cap_of_an_endpoint(seconds: float, responded: bool, cap: int) -> None:
    machine = Machine(100, 16)
    machine.know(work(), times=16)
    begun = machine.begin(*(work() for _ in range(16)))
    assert len(begun) == 14
    machine.limits.drop(lambda _: True)
    machine.end(begun, seconds, responded=responded)
    assert len(machine.begin(*(work() for _ in range(16)))) == cap


def test_attempts_that_were_not_made_do_not_change_the_cap() -> None:
    machine = Machine(100, 16)
    machine.know(work(), times=3)
    for _ in range(2):
        begun = machine.begin(*(work() for _ in range(16)))
        assert len(begun) == 4
        machine.limits.drop(lambda _: True)
        machine.end(begun, 9.0, responded=None)
        machine.know(work("b"))


@pytest.mark.parametrize(
    ("per_host", "limit", "slow", "new", "every"),
    [
        (False, 256, (120, 128), (210, 224), (240, 256)),
        (False, 16, (8, 8), (14, 14), (15, 16)),
        (False, 2, (1, 1), (2, 2), (2, 2)),
        (True, 256, (56, 64), (112, 128), (224, 256)),
        (True, 16, (4, 4), (7, 8), (14, 16)),
        (True, 2, (1, 1), (1, 1), (2, 2)),
    ],
)
def test_share_of_a_limit_depends_on_speed_and_organizations(
    per_host: bool, limit: int, slow: tuple[int, int], new: tuple[int, int], every: tuple[int, int]
) -> None:
    def many(kind: str, organizations: int) -> list[DueWork]:
        return [
            work(
                "h" if per_host else f"{number}.{kind}",
                uuid5(NAMESPACE_URL, f"{kind} {number}"),
                f"{kind}{number % organizations}",
            )
            for number in range(limit + 1)
        ]

    for kind, expected in (("slow", slow), ("new", new), ("fast", every)):
        for organizations, count in zip((1, limit + 1), expected, strict=True):
            machine = Machine(10_000 if per_host else limit, limit)
            machine.know(work("h", uuid4(), "other"))
            if kind != "new":
                machine.know(*many(kind, organizations), seconds=9.0 if kind == "slow" else 0.1)
            begun = machine.begin(*many(kind, organizations))
            assert len(begun) == count, (kind, organizations)


def test_slow_endpoint_alone_at_its_host_may_use_seven_eighths() -> None:
    """Only endpoints at the same host have reserved capacity. One eighth is reserved for new endpoints."""
    machine = Machine(256, 16)
    machine.know(work(), seconds=3.0, times=16)
    assert len(machine.begin(*(work() for _ in range(16)))) == 14
    machine = Machine(256, 16)
    machine.know(work(), seconds=3.0, times=16)
    machine.know(work("a", uuid4(), "other"))
    assert len(machine.begin(*(work() for _ in range(16)))) == 4


def test_recovered_endpoint_leaves_the_share_of_slow_endpoints() -> None:
    machine = Machine(16, 4)
    recovers = work("z")
    machine.know(*(work(host) for host in "abcdefghz"), seconds=9.0, responded=False)
    assert len(machine.begin(*(work(host) for host in "abcdefg"), recovers)) == 8
    assert machine.begin(work("h")) == []
    machine.limits.drop(lambda _: True)
    machine.end([recovers])
    assert len(machine.begin(*(work("z") for _ in range(4)))) == 2


def test_endpoint_is_slow_before_its_hanging_attempts_end() -> None:
    machine = Machine(256, 16)
    hangs, slow = work("a", organization="x"), work("a", organization="y")
    machine.know(hangs, times=16)
    machine.know(slow, seconds=9.0)
    assert len(machine.begin(*([hangs] * 8))) == 8
    machine.now += SLOW
    machine.limits.limits(machine.now)
    assert machine.begin(slow) == [slow]
    assert len(machine.begin(*([hangs] * 8))) == 3


def test_organization_with_much_waiting_work_is_excluded_from_claims() -> None:
    machine = Machine(16, 2)
    limits = machine.limits
    assert limits.room() == (16 + MAX_AHEAD + 1) // 2, "a claim may fill half of the free capacity"
    fast, unknown = work("f", organization="x"), work("u", organization="x")
    machine.know(fast)
    running: list[DueWork] = []
    while limits.limits(machine.now)[1] != {"x"}:
        running += machine.begin(work(f"{limits.waiting}-{len(running)}", organization="x"))
    assert limits.waiting > 16 + MAX_AHEAD - limits.running - limits.waiting
    rooms, _ = limits.limits(machine.now)
    assert rooms[fast.endpoint_id] > 0, "the organization's fast endpoints are not excluded"
    assert unknown.endpoint_id not in rooms
    machine.end([running.pop()])
    running += machine.begin()
    machine.end(running)
    assert limits.limits(machine.now)[1] == frozenset()


def test_endpoints_of_one_host_share_its_limit() -> None:
    """Port, path and letter case of a URL do not distinguish hosts."""
    assert host_of("https://A.example:8443/x") == host_of("http://a.example/") == "a.example"
    assert host_of("http://[broken") == "http://[broken"
    machine = Machine(10, 2)
    one, other, third = (work("a", uuid4()) for _ in range(3))
    assert machine.add(one, other, other) == [True, True, False], "excess work is released"
    assert machine.add(third) == [False]
    rooms, _ = machine.limits.limits(machine.now)
    assert (rooms[one.endpoint_id], rooms[other.endpoint_id]) == (0, 0)


def test_work_is_claimed_ahead_only_for_fast_endpoints() -> None:
    machine = Machine(10, 2)
    endpoint = work().endpoint_id
    machine.know(work(), seconds=0.002, times=4)
    assert machine.limits.limits(machine.now)[0] == {endpoint: 2 + int(2 * AHEAD / 0.002)}
    machine.begin(work())
    machine.now += SLOW
    assert machine.limits.limits(machine.now)[0] == {endpoint: 1}


def test_endpoints_with_recent_work_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency_limits, "MAX_IDLE_ENDPOINTS", 1)
    machine = Machine(100, 16)
    for host in "ab":
        machine.know(work(host), times=4)
        machine.limits.claimed({}, {}, complete=True)
    assert machine.limits.limits(machine.now) == ({}, frozenset()), "no more than for new endpoints"
    assert len(machine.begin(*(work("a") for _ in range(9)))) == DEFAULT_LIMIT
    assert len(machine.begin(*(work("b") for _ in range(9)))) == 5


def test_more_is_claimed_after_an_incomplete_claim() -> None:
    machine = Machine(10, 1)
    limits, first, second = machine.limits, work("a"), work("b")
    machine.add(first)
    limits.claimed({first.endpoint_id: 1}, {}, complete=True)
    assert not limits.wants_more(), "the host is at its limit"
    assert machine.begin() == [first]
    assert limits.ended(first, 0.0, responded=True), "more work of this endpoint may be due"
    machine.begin(second)
    limits.claimed({second.endpoint_id: 0}, {first.endpoint_id: 1}, complete=True)
    assert not limits.ended(second, 0.0, responded=True)
    limits.claimed({}, {}, complete=False)
    assert limits.wants_more()


def test_waiting_attempts_can_be_dropped_selectively() -> None:
    machine = Machine(1, 1)
    old, new = work("a"), work("b")
    machine.limits.add(ClaimedAttempt(old, 1.0))
    machine.limits.add(ClaimedAttempt(new, 5.0))
    assert machine.limits.drop(lambda attempt: attempt.since < 3) == [old.claim]
    assert machine.begin() == [new]
    assert machine.limits.waiting == 0
