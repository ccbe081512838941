"""How many attempts to which host, and of which organization, may begin and be claimed."""

from __future__ import annotations

from collections import Counter
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

from dataapi.webhooks.delivery.concurrency_limits import (
    AHEAD,
    MAX_AHEAD,
    REMEMBERED,
    UNKNOWN,
    ClaimedAttempt,
    ConcurrencyLimits,
)
from dataapi.webhooks.delivery.destinations import host_of
from dataapi.webhooks.model import DueWork
from hypothesis import given
from hypothesis import strategies as st
from support.fake_queue import FakeQueue
from twisted.internet.task import Clock


def work(host: str = "a.example", endpoint: UUID | None = None, organization: str | None = None) -> DueWork:
    """Make an attempt that is to be made; each host is an organization's own unless one is named.

    An organization has one endpoint at a host unless one is named.
    """
    queue = FakeQueue(Clock())
    endpoint = endpoint or uuid5(NAMESPACE_URL, f"{organization or host} {host}")
    queue.add(f"https://{host}/", endpoint, organization=organization or host)
    [row] = queue.rows.values()
    return row.work


def made(maximum: int, per_host: int, known: str = "", organization: str | None = None) -> ConcurrencyLimits:
    """Make limits that know an organization's endpoints to be quick and to have all they may have.

    :param known: their hosts, each named by a letter.
    """
    limits = ConcurrencyLimits(maximum, per_host, slow=5.0)
    for host in known:
        for _ in range(per_host):
            limits.add(ClaimedAttempt(work(host, organization=organization), 0.0))
            held = limits.next(0.0)
            assert held is not None
            limits.ended(held.work, 0.1)
    limits.claimed({}, {}, all_of_them=True)
    limits.update(1000.0)
    assert limits.limits() == {}, "nothing is kept of them but how they answered"
    return limits


def begun(limits: ConcurrencyLimits) -> list[DueWork]:
    """Begin all that may begin."""
    return [held.work for held in iter(lambda: limits.next(0.0), None)]


STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from("xy"),
        st.sampled_from([UUID(int=1), UUID(int=2)]),
        st.sampled_from([None, 0.1, 9.0]),
        st.booleans(),
    ),
    max_size=80,
)


@given(st.integers(1, 6), st.integers(1, 6), STEPS)
def test_limits_hold_whatever_happens(
    maximum: int, per_host: int, steps: list[tuple[str, str, UUID, float | None, bool]]
) -> None:
    """Neither all hosts together nor one has more under way than it may.

    And what waits is held back for a host's or an organization's limit alone: with nothing under way,
    something begins.
    """
    limits = ConcurrencyLimits(maximum, per_host, slow=5.0)
    running: list[DueWork] = []
    waiting = 0
    for host, organization, endpoint, ends, answered in steps:
        if ends is None:
            one = work(host, uuid5(endpoint, organization), organization)
            waiting += limits.add(ClaimedAttempt(one, 0.0))
        elif running:
            limits.ended(running.pop(0), ends, answered=answered)
        came = begun(limits)
        running += came
        waiting -= len(came)
        hosts = Counter(host_of(one.url) for one in running)
        assert len(running) == limits.running <= maximum
        assert all(count <= min(maximum, per_host) for count in hosts.values())
        assert limits.waiting == waiting
        assert running or not waiting
    while running:
        limits.ended(running.pop(), 0.1)
        running += begun(limits)
    assert (limits.running, limits.waiting) == (0, 0), "all of it was begun"


def test_hosts_take_turns() -> None:
    """A host with much work does not begin all of it before the others' first, nor does an organization."""
    limits = made(4, 4)
    for host in "aaaabc":
        limits.add(ClaimedAttempt(work(host, organization="x"), 0.0))
    assert [host_of(one.url) for one in begun(limits)] == ["a", "b", "c"]
    limits = made(4, 4, "abcd", organization="x")
    for host in "abcd":
        limits.add(ClaimedAttempt(work(host, organization="x"), 0.0))
    limits.add(ClaimedAttempt(work("e", organization="y"), 0.0))
    assert [host_of(one.url) for one in begun(limits)] == ["a", "e", "b", "c"]


def test_a_host_of_which_nothing_is_known_begins_with_few() -> None:
    """Each answer allows it one more; it keeps what it has while it has no work for an hour."""
    limits = made(100, 16)
    for _ in range(16):
        assert limits.add(ClaimedAttempt(work(), 0.0))
    running = begun(limits)
    assert len(running) == UNKNOWN
    limits.ended(running.pop(), 0.1)
    running += begun(limits)
    assert len(running) == UNKNOWN + 1
    while running:
        limits.ended(running.pop(), 0.1)
        running += begun(limits)
    now = 0.0
    for seconds, expected in ((REMEMBERED, 14), (REMEMBERED + 1, UNKNOWN)):
        limits.claimed({}, {}, all_of_them=True)
        limits.update(now + 1000)
        now += 1000 + seconds
        limits.update(now)
        for _ in range(16):
            limits.add(ClaimedAttempt(work(), 0.0))
        running = begun(limits)
        assert len(running) == expected
        limits.drop(lambda _: True)
        for one in running:
            limits.ended(one)


def test_a_host_that_hangs_has_less_and_one_that_answers_slowly_has_not() -> None:
    """Each attempt without an answer takes half away, until there is one; what was not made tells nothing."""
    limits = made(100, 16, "ab")
    for host in "ab" * 16:
        assert limits.add(ClaimedAttempt(work(host), 0.0))
    running = begun(limits)
    assert len(running) == 28
    limits.drop(lambda _: True)
    for one in running:
        limits.ended(one, 9.0, answered=host_of(one.url) == "b")
    for _ in range(3):
        attempt = work("a")
        limits.add(ClaimedAttempt(attempt, 0.0))
        assert len(begun(limits)) == 1
        limits.ended(attempt)
    assert [host for host in "ab" * 16 if limits.add(ClaimedAttempt(work(host), 0.0))] == list(
        "ab" + "b" * 15
    )
    assert Counter(host_of(one.url) for one in begun(limits)) == {"a": 1, "b": 14}


def test_an_organization_leaves_as_many_free_as_it_has_to_hosts_that_may_hang() -> None:
    """Those who come after it share what is left in the same way."""
    limits = made(64, 16)
    found = []
    for organization in "xyz":
        for number in range(40):
            limits.add(ClaimedAttempt(work(f"{number}.{organization}", organization=organization), 0.0))
        found.append(len(begun(limits)))
    assert found == [33, 16, 8]


def test_an_organization_whose_hosts_are_quick_has_nearly_all() -> None:
    """Alone it leaves a twentieth free, which is there for another one if all of them hang at once."""
    hosts = "abcdefghijklmnopqr"
    limits = made(256, 16, hosts, organization="x")
    for host in hosts * 16:
        assert limits.add(ClaimedAttempt(work(host, organization="x"), 0.0))
    assert len(begun(limits)) == 244
    assert limits.add(ClaimedAttempt(work("another"), 0.0))
    assert len(begun(limits)) == 1


def test_an_organizations_hosts_that_hang_leave_room_for_those_that_are_quick() -> None:
    """And for what is claimed for them."""
    limits = made(64, 16, "a", organization="x")
    for number in range(60):
        limits.add(ClaimedAttempt(work(f"{number}.x", organization="x"), 0.0))
    assert len(begun(limits)) == 33
    quick = work("a", organization="x")
    assert limits.add(ClaimedAttempt(quick, 0.0))
    assert begun(limits) == [quick]
    assert limits.limits()[quick.endpoint_id] > 0


def test_an_organization_with_much_waiting_is_left_out_of_claims() -> None:
    """What may be held is not all its own; half of what waited gone, it is asked for again."""
    limits = made(10, 2)
    assert limits.room() == (10 + MAX_AHEAD + 1) // 2, "nor has it all of a claim"
    while limits.full() != {"x"}:
        limits.add(ClaimedAttempt(work(f"{limits.waiting}.x", organization="x"), 0.0))
    assert limits.waiting * 2 > 10 + MAX_AHEAD - limits.waiting
    waiting = limits.waiting
    limits.claimed({}, {}, limits.full(), all_of_them=True)
    assert not limits.wants_more()
    running: list[DueWork] = []
    while not limits.wants_more():
        running += begun(limits)
        limits.ended(running.pop(0), 0.1)
    assert waiting // 3 < limits.waiting < waiting * 2 // 3


def test_endpoints_of_one_host_share_its_room() -> None:
    """The cap is the host's, whatever the port, path and letters' case of the URL."""
    assert host_of("https://A.example:8443/x") == host_of("http://a.example/") == "a.example"
    assert host_of("http://[broken") == "http://[broken"
    limits = ConcurrencyLimits(10, 2)
    one, other = uuid4(), uuid4()
    assert limits.add(ClaimedAttempt(work("a", one), 0.0))
    assert limits.add(ClaimedAttempt(work("a", other), 0.0))
    assert not limits.add(ClaimedAttempt(work("a", other), 0.0)), "more than its room is given back"
    assert limits.limits() == {one: 0, other: 0}
    assert set(limits.saturated()) == {one, other}


def test_organizations_that_share_a_host_have_their_turns_there() -> None:
    """However much one of them has for it."""
    limits = made(10, 2, "a", organization="x")
    for _ in range(2):
        assert limits.add(ClaimedAttempt(work("a", organization="x"), 0.0))
    running = begun(limits)
    assert limits.add(ClaimedAttempt(work("a", organization="y"), 0.0))
    assert not limits.add(ClaimedAttempt(work("a", organization="y"), 0.0))
    assert begun(limits) == []
    limits.ended(running[0], 0.1)
    assert limits.add(ClaimedAttempt(work("a", organization="x"), 0.0))
    assert [one.organization for one in begun(limits)] == ["y"]


def test_a_quick_host_has_work_ahead_and_a_hanging_one_has_not() -> None:
    """As many attempts wait as end within AHEAD seconds, so that none of them waits for a claim."""
    limits = ConcurrencyLimits(10, 2)
    endpoint = uuid4()
    now = 0.0
    for _ in range(200):
        limits.add(ClaimedAttempt(work("a", endpoint), now))
        held = limits.next(0.0)
        assert held is not None
        now += 0.001
        limits.ended(held.work, 0.001)
        limits.update(now)
    assert limits.limits()[endpoint] > 1000 * AHEAD / 2
    assert limits.limits()[endpoint] <= 2 + MAX_AHEAD
    limits.add(ClaimedAttempt(work("a", endpoint), now))
    limits.next(0.0)
    limits.update(now + 10)
    assert limits.limits()[endpoint] == 1


def test_more_is_claimed_when_a_claim_was_cut_short() -> None:
    """Whoever got all there was does not ask again with every attempt that ends."""
    limits = ConcurrencyLimits(10, 1)
    first = work("a")
    limits.add(ClaimedAttempt(first, 0.0))
    limits.claimed({first.endpoint_id: 1}, {}, all_of_them=True)
    assert not limits.wants_more(), "the host has no room"
    limits.next(0.0)
    assert limits.ended(first, 0.0), "there may be more of this endpoint"
    second = work("b")
    limits.add(ClaimedAttempt(second, 0.0))
    limits.claimed({second.endpoint_id: 0}, {first.endpoint_id: 1}, all_of_them=True)
    limits.next(0.0)
    assert not limits.ended(second, 0.0)


def test_what_waits_is_dropped_by_choice() -> None:
    """The rest keeps its place."""
    limits = ConcurrencyLimits(1, 1)
    old, new = work("a"), work("b")
    limits.add(ClaimedAttempt(old, 1.0))
    limits.add(ClaimedAttempt(new, 5.0))
    assert limits.drop(lambda held: held.since < 3) == [old.claim]
    held = limits.next(0.0)
    assert held is not None
    assert held.work is new
    assert limits.waiting == 0


def slow_limits(maximum: int, per_host: int, hosts: str) -> ConcurrencyLimits:
    """Make limits that know the hosts, each named by a letter, to answer slowly."""
    limits = made(maximum, per_host, hosts)
    for host in hosts:
        limits.add(ClaimedAttempt(work(host), 0.0))
        held = limits.next(0.0)
        assert held is not None
        limits.ended(held.work, 5.0)
    limits.claimed({}, {}, all_of_them=True)
    limits.update(2000.0)
    assert limits.limits() == {}, "nothing is kept of them but that they are slow"
    return limits


def test_slow_hosts_share_half_of_the_attempts_evenly() -> None:
    """What the others take is not theirs."""
    limits = slow_limits(16, 4, "abcd")
    assert [host for host in "ab" * 5 if limits.add(ClaimedAttempt(work(host), 0.0))] == list("abababab")
    assert [host for host in "xxxxyyyy" if limits.add(ClaimedAttempt(work(host), 0.0))] == list("xxxxyyyy")
    limits = slow_limits(16, 4, "abcd")
    for host in "abcd":
        assert limits.add(ClaimedAttempt(work(host), 0.0))
    assert [host for host in "abcd" * 4 if limits.add(ClaimedAttempt(work(host), 0.0))] == list("abcd")


def test_each_slow_host_may_have_one_attempt_whatever_the_others_have() -> None:
    """Else one that is quick again would be found out late."""
    limits = slow_limits(4, 2, "abcd")
    for host in "abcd":
        assert limits.add(ClaimedAttempt(work(host), 0.0))
    assert not any(limits.add(ClaimedAttempt(work(host), 0.0)) for host in "abcd")


def test_slow_hosts_that_get_quick_have_their_share_again() -> None:
    """The last attempt counts, and who is quick takes nothing of the slow ones' half."""
    limits = slow_limits(4, 4, "ab")
    assert [host for host in "abab" if limits.add(ClaimedAttempt(work(host), 0.0))] == list("ab")
    first = limits.next(0.0)
    assert first is not None
    limits.ended(first.work, 4.9)
    assert [host for host in "aaaaabb" if limits.add(ClaimedAttempt(work(host), 0.0))] == list("aaaab")


def test_a_host_that_was_refused_some_has_more() -> None:
    """What is given back is asked for again as soon as there is room, however little it was."""
    limits = ConcurrencyLimits(10, 2)
    first, second, other = work("a"), work("a"), work("a")
    assert [limits.add(ClaimedAttempt(one, 0.0)) for one in (first, second, other)] == [True, True, False]
    counts = {one.endpoint_id: 1 for one in (first, second, other)}
    limits.claimed(counts, {}, all_of_them=True)
    limits.next(0.0)
    limits.next(0.0)
    assert limits.ended(first, 0.0)
    limits.claimed({other.endpoint_id: 1}, {}, all_of_them=True)
    assert not limits.ended(second, 0.0), "the next claim found no more"


@given(st.integers(1, 8), st.integers(1, 4), st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 3))))
def test_slow_hosts_have_half_of_the_attempts_again_once_the_others_are_quick(
    maximum: int, per_host: int, steps: list[tuple[str, int]]
) -> None:
    """Whatever came, ended and was dropped meanwhile."""
    limits = slow_limits(maximum, per_host, "abcdez")
    running: list[DueWork] = []
    for now, (host, step) in enumerate(steps):
        if step == 0:
            limits.add(ClaimedAttempt(work(host), 0.0))
        elif running:
            limits.ended(running.pop(), 9.0 if step == 1 else 1.0)
        if step == 3:
            limits.drop(lambda _: True)
        running += begun(limits)
        limits.claimed({}, {}, all_of_them=True)
        limits.update(float(3000 + now))
    limits.drop(lambda _: True)
    for one in running:
        limits.ended(one, 1.0)
    limits.update(9000.0)
    for _ in range(per_host):
        limits.add(ClaimedAttempt(work("z"), 0.0))
        held = limits.next(0.0)
        assert held is not None
        limits.ended(held.work, 9.0)
    mine = sum(limits.add(ClaimedAttempt(work("z"), 0.0)) for _ in range(per_host))
    assert mine == max(1, min(maximum // 2, per_host))
