"""How many attempts of which host may begin and be claimed, for whatever comes and goes."""

from __future__ import annotations

from collections import Counter
from uuid import UUID, uuid4

from dataapi.webhooks.lanes import AHEAD, MOST_AHEAD, Held, Lanes, host_of
from dataapi.webhooks.work import DueWork
from hypothesis import given
from hypothesis import strategies as st
from support.fake_queue import FakeQueue
from twisted.internet.task import Clock


def work(host: str = "a.example", endpoint: UUID | None = None) -> DueWork:
    """Make an attempt that is to be made."""
    queue = FakeQueue(Clock())
    queue.add(f"https://{host}/", endpoint)
    [row] = queue.rows.values()
    return row.work


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60),
)
def test_limits_hold_whatever_happens(most: int, per_host: int, steps: list[tuple[str, bool]]) -> None:
    """reference/webhooks.md 3, fairness: neither all hosts together nor one has more under way than it may.

    And while there is room, nothing that waits is held back.
    """
    lanes = Lanes(most, per_host)
    running: list[DueWork] = []
    waiting: Counter[str] = Counter()
    for host, comes in steps:
        if comes:
            waiting[host] += lanes.add(Held(work(host), 0.0))
        elif running:
            lanes.ended(running.pop(0))
        while held := lanes.next():
            running.append(held.work)
            waiting[host_of(held.work.url)] -= 1
        hosts = Counter(host_of(one.url) for one in running)
        assert len(running) == lanes.running <= most
        assert all(count <= min(most, per_host) for count in hosts.values())
        assert lanes.waiting == waiting.total()
        blocked = {host for host, count in hosts.items() if count == min(most, per_host)}
        assert lanes.running == most or set(+waiting) <= blocked


def test_hosts_take_turns() -> None:
    """A host with much work does not begin all of it before the others' first."""
    lanes = Lanes(4, 4)
    for host in "aaaabc":
        lanes.add(Held(work(host), 0.0))
    begun = [held.work for held in iter(lanes.next, None)]
    assert [host_of(one.url) for one in begun] == ["a", "b", "c", "a"]


def test_endpoints_of_one_host_share_its_room() -> None:
    """The cap is the host's, whatever the port, path and letters' case of the URL."""
    assert host_of("https://A.example:8443/x") == host_of("http://a.example/") == "a.example"
    assert host_of("http://[broken") == "http://[broken"
    lanes = Lanes(10, 2)
    one, other = uuid4(), uuid4()
    assert lanes.add(Held(work("a", one), 0.0))
    assert lanes.add(Held(work("a", other), 0.0))
    assert not lanes.add(Held(work("a", other), 0.0)), "more than its room is given back"
    assert lanes.limits() == {one: 0, other: 0}
    assert set(lanes.saturated()) == {one, other}


def test_a_quick_host_has_work_ahead_and_a_hanging_one_has_not() -> None:
    """As many attempts wait as end within AHEAD seconds, so that none of them waits for a claim."""
    lanes = Lanes(10, 2)
    endpoint = uuid4()
    now = 0.0
    for _ in range(200):
        lanes.add(Held(work("a", endpoint), now))
        held = lanes.next()
        assert held is not None
        now += 0.001
        lanes.ended(held.work)
        lanes.reckon(now)
    assert lanes.limits()[endpoint] > 1000 * AHEAD / 2
    assert lanes.limits()[endpoint] <= 2 + MOST_AHEAD
    lanes.add(Held(work("a", endpoint), now))
    lanes.next()
    lanes.reckon(now + 10)
    assert lanes.limits()[endpoint] == 1


def test_more_is_claimed_when_a_claim_was_cut_short() -> None:
    """Whoever got all there was does not ask again with every attempt that ends."""
    lanes = Lanes(10, 1)
    first = work("a")
    lanes.add(Held(first, 0.0))
    lanes.claimed({first.endpoint_id: 1}, {}, all_of_them=True)
    assert not lanes.hungry(), "the host has no room"
    lanes.next()
    assert lanes.ended(first), "there may be more of this endpoint"
    second = work("b")
    lanes.add(Held(second, 0.0))
    lanes.claimed({second.endpoint_id: 0}, {first.endpoint_id: 1}, all_of_them=True)
    lanes.next()
    assert not lanes.ended(second)


def test_what_waits_is_dropped_by_choice() -> None:
    """The rest keeps its place."""
    lanes = Lanes(1, 1)
    old, new = work("a"), work("b")
    lanes.add(Held(old, 1.0))
    lanes.add(Held(new, 5.0))
    assert lanes.drop(lambda held: held.since < 3) == [old.claim]
    held = lanes.next()
    assert held is not None
    assert held.work is new
    assert lanes.waiting == 0


def slow_lanes(most: int, per_host: int, hosts: str) -> Lanes:
    """Make lanes that know the hosts, each named by a letter, to be slow."""
    lanes = Lanes(most, per_host, slow=5.0)
    for host in hosts:
        lanes.add(Held(work(host), 0.0))
        held = lanes.next()
        assert held is not None
        lanes.ended(held.work, 5.0)
    lanes.claimed({}, {}, all_of_them=True)
    lanes.reckon(1000.0)
    assert lanes.limits() == {}, "nothing is kept of them but that they are slow"
    return lanes


def test_slow_hosts_share_half_of_the_attempts_evenly() -> None:
    """What the others take is not theirs."""
    lanes = slow_lanes(16, 4, "abcd")
    assert [host for host in "ab" * 5 if lanes.add(Held(work(host), 0.0))] == list("abababab")
    assert [host for host in "xxxxyyyy" if lanes.add(Held(work(host), 0.0))] == list("xxxxyyyy")
    lanes = slow_lanes(16, 4, "abcd")
    for host in "abcd":
        assert lanes.add(Held(work(host), 0.0))
    assert [host for host in "abcd" * 4 if lanes.add(Held(work(host), 0.0))] == list("abcd")


def test_each_slow_host_may_have_one_attempt_whatever_the_others_have() -> None:
    """Else one that is quick again would be found out late."""
    lanes = slow_lanes(4, 2, "abcd")
    for host in "abcd":
        assert lanes.add(Held(work(host), 0.0))
    assert not any(lanes.add(Held(work(host), 0.0)) for host in "abcd")


def test_slow_hosts_that_get_quick_have_their_share_again() -> None:
    """The last attempt counts, and who is quick takes nothing of the slow ones' half."""
    lanes = slow_lanes(4, 4, "ab")
    assert [host for host in "abab" if lanes.add(Held(work(host), 0.0))] == list("ab")
    first = lanes.next()
    assert first is not None
    lanes.ended(first.work, 4.9)
    assert [host for host in "aaaaabb" if lanes.add(Held(work(host), 0.0))] == list("aaaab")


def test_a_host_that_was_refused_some_has_more() -> None:
    """What is given back is asked for again as soon as there is room, however little it was."""
    lanes = Lanes(10, 2)
    first, second, other = work("a"), work("a"), work("a")
    assert [lanes.add(Held(one, 0.0)) for one in (first, second, other)] == [True, True, False]
    counts = {one.endpoint_id: 1 for one in (first, second, other)}
    lanes.claimed(counts, {}, all_of_them=True)
    lanes.next()
    lanes.next()
    assert lanes.ended(first)
    lanes.claimed({other.endpoint_id: 1}, {}, all_of_them=True)
    assert not lanes.ended(second), "the next claim found no more"


@given(st.integers(1, 8), st.integers(1, 4), st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 3))))
def test_slow_hosts_have_half_of_the_attempts_again_once_the_others_are_quick(
    most: int, per_host: int, steps: list[tuple[str, int]]
) -> None:
    """Whatever came, ended and was dropped meanwhile."""
    lanes = slow_lanes(most, per_host, "abcde")
    running: list[DueWork] = []
    for now, (host, step) in enumerate(steps):
        if step == 0:
            lanes.add(Held(work(host), 0.0))
        elif running:
            lanes.ended(running.pop(), 9.0 if step == 1 else 1.0)
        if step == 3:
            lanes.drop(lambda _: True)
        while held := lanes.next():
            running.append(held.work)
        lanes.claimed({}, {}, all_of_them=True)
        lanes.reckon(float(2000 + now))
    lanes.drop(lambda _: True)
    for one in running:
        lanes.ended(one, 1.0)
    lanes.reckon(9000.0)
    slow = work("z")
    lanes.add(Held(slow, 0.0))
    lanes.next()
    lanes.ended(slow, 9.0)
    mine = sum(lanes.add(Held(work("z"), 0.0)) for _ in range(per_host))
    assert mine == max(1, min(most // 2, per_host))
