"""Hanging receivers do not delay other organizations (simulated with a fake clock)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

import pytest
from dataapi.settings import Webhooks
from dataapi.webhooks.delivery.dispatcher import Dispatcher
from dataapi.webhooks.model import AttemptError, AttemptOutcome, Trigger
from support.fake_queue import OK, REFUSED, START, FakeQueue
from twisted.internet.task import Clock, deferLater

if TYPE_CHECKING:
    from dataapi.webhooks.delivery.attempt import Attempt

HANGS = float("inf")
TIMED_OUT = AttemptOutcome(False, START, 20_000, 0, error=AttemptError.TIMEOUT)
RULES = Webhooks()


class Simulation:
    """Simulates receivers. A receiver's name is its host, optionally with a path.

    :ivar seconds: returns the response time of a receiver.
    :ivar respond: returns the outcome of an attempt.
    :ivar began: start times of attempts, by receiver.
    :ivar running: number of running attempts, by receiver.
    :ivar maximum: largest number of concurrent attempts, by receiver.
    """

    def __init__(self, seconds: Callable[[str], float], rules: Webhooks = RULES) -> None:
        self.clock = Clock()
        self.queue = FakeQueue(self.clock)
        self.seconds = seconds
        self.respond: Callable[[Attempt], AttemptOutcome] = lambda _: OK
        self.began: dict[str, list[float]] = {}
        self.running: dict[str, int] = {}
        self.maximum: dict[str, int] = {}
        self._timeout = rules.timeout
        self.dispatcher = Dispatcher(self.clock, self.queue, self, lambda *_: {}, rules, random=lambda: 0.5)

    async def send(self, attempt: Attempt) -> AttemptOutcome:
        """Wait for the response or the timeout and return the outcome."""
        receiver = attempt.url.removeprefix("https://")
        self.began.setdefault(receiver, []).append(self.clock.seconds())
        self.running[receiver] = self.running.get(receiver, 0) + 1
        self.maximum[receiver] = max(self.maximum.get(receiver, 0), self.running[receiver])
        seconds = self.seconds(receiver)
        await deferLater(self.clock, min(seconds, self._timeout))
        self.running[receiver] -= 1
        return self.respond(attempt) if seconds < self._timeout else TIMED_OUT

    def plan(
        self, organization: str, receiver: str, count: int = 1, trigger: Trigger = Trigger.MANUAL
    ) -> None:
        """Queue events for an organization's endpoint at a receiver."""
        endpoint = uuid5(NAMESPACE_URL, f"{organization} {receiver}")
        for _ in range(count):
            self.queue.add(f"https://{receiver}", endpoint, organization=organization, trigger=trigger)

    def pass_time(self, seconds: float, step: float = 0.01) -> None:
        for _ in range(round(seconds / step)):
            self.clock.advance(step)

    def delays(self, organization: str, seconds: float) -> list[float]:
        """Queue four events per second, each to a new receiver, and return their delays."""
        waited = []
        for number in range(round(seconds * 4)):
            host, planned = f"{number}.{organization}", self.clock.seconds()
            self.plan(organization, host)
            self.dispatcher.wake()
            self.pass_time(0.25, 0.025)
            waited.append(self.began.get(host, [HANGS])[0] - planned)
        return waited

    def waits(self, organization: str, receiver: str, seconds: float, every: float = 0.5) -> list[float]:
        """Queue events to one endpoint at a regular interval and return their delays."""
        before, planned = len(self.began.get(receiver, [])), []
        for _ in range(round(seconds / every)):
            planned.append(self.clock.seconds())
            self.plan(organization, receiver)
            self.dispatcher.wake()
            self.pass_time(every, 0.025)
        self.pass_time(1.0, 0.025)
        began = self.began.get(receiver, [])[before:]
        return [start - at for at, start in zip_longest(planned, began, fillvalue=HANGS)]


def hang(receiver: str) -> float:
    """Return the response time of a receiver. Receivers with ``dead`` in their name hang."""
    return HANGS if "dead" in receiver else 0.05


@pytest.mark.parametrize(("organizations", "receivers"), [(1, 20), (1, 300), (4, 40)])
def test_hanging_receivers_do_not_delay_another_organization(organizations: int, receivers: int) -> None:
    simulation = Simulation(hang)
    for organization in range(organizations):
        for number in range(receivers):
            simulation.plan(f"dead{organization}", f"{number}.dead{organization}", 1000 // receivers)
    simulation.dispatcher.start()
    assert max(simulation.delays("alive", 45)) <= 0.2
    assert len(simulation.began) >= 100 + organizations * min(receivers, 30), "hanging receivers are tried"


def test_receivers_that_suddenly_hang_do_not_delay_another_organization() -> None:
    """A sixteenth of the capacity is reserved, even if fast receivers could use all of it."""
    died = [False]
    simulation = Simulation(lambda host: HANGS if died[0] and "dead" in host else 0.3)
    for number in range(20):
        simulation.plan("dead", f"{number}.dead", 150)
    simulation.dispatcher.start()
    simulation.pass_time(2, 0.05)
    assert sum(simulation.running.values()) == 240
    died[0] = True
    assert max(simulation.delays("alive", 30)) <= 0.2


def test_hanging_hosts_do_not_delay_other_hosts_of_their_organization() -> None:
    simulation = Simulation(hang)
    simulation.plan("mixed", "quick.example", 3)
    simulation.dispatcher.start()
    simulation.pass_time(1)
    for number in range(100):
        simulation.plan("mixed", f"{number}.dead", 5)
    simulation.dispatcher.wake()
    simulation.pass_time(1)
    for _ in range(100):
        simulation.plan("mixed", "quick.example")
        planned = simulation.clock.seconds()
        simulation.dispatcher.wake()
        simulation.pass_time(0.25, 0.05)
        assert simulation.began["quick.example"][-1] - planned <= 2.5


@pytest.mark.parametrize("every", [0.5, 5.0])
def test_endpoint_among_many_new_hanging_ones_waits_at_most_a_second(every: float) -> None:
    simulation = Simulation(hang)
    simulation.dispatcher.start()
    planned = []
    for _ in range(round(40 / every)):
        for number in range(200):
            simulation.plan("mixed", f"{number}.dead")
        planned.append(simulation.clock.seconds())
        simulation.plan("mixed", "quick.example")
        simulation.dispatcher.wake()
        simulation.pass_time(every, 0.025)
    began = simulation.began["quick.example"]
    assert len(began) == len(planned)
    waits = [start - at for at, start in zip(planned, began, strict=True)]
    assert max(waits) <= 1.0
    assert max(wait for wait, at in zip(waits, planned, strict=True) if at > 1) <= 0.2


@pytest.mark.parametrize("events", [5, 40])
def test_new_endpoints_do_not_wait_for_hanging_ones_of_their_organization(events: int) -> None:
    simulation = Simulation(hang)
    for number in range(200):
        simulation.plan("mixed", f"{number}.dead", events)
    simulation.dispatcher.start()
    simulation.pass_time(1)
    waits = simulation.delays("mixed", 45)
    assert max(waits) <= 0.2
    assert len(simulation.began) == 200 + len(waits), "hanging receivers are tried"


def test_only_active_organization_uses_nearly_all_capacity() -> None:
    hosts, each, seconds = 40, 100, 0.2
    simulation = Simulation(lambda _: seconds)
    for number in range(hosts):
        simulation.plan("alone", f"{number}.alone", each)
    simulation.dispatcher.start()
    while simulation.queue.rows:
        simulation.pass_time(0.05)
        assert simulation.clock.seconds() < 10
    assert simulation.clock.seconds() <= hosts * each * seconds / (RULES.concurrency * 15 / 16) + 1.2


def test_only_active_host_soon_reaches_its_limit() -> None:
    simulation = Simulation(lambda _: 0.05)
    simulation.plan("alone", "one.alone", 400)
    simulation.dispatcher.start()
    simulation.pass_time(0.04)
    assert simulation.maximum["one.alone"] == 1
    simulation.pass_time(0.31)
    assert simulation.maximum["one.alone"] == 14, "an eighth is reserved for new endpoints"
    simulation.pass_time(1.0)
    assert len(simulation.began["one.alone"]) >= 14 * 1.0 / 0.05


def test_busy_host_serves_all_its_organizations() -> None:
    simulation = Simulation(lambda _: 0.5, replace(RULES, concurrency_per_host=4))
    simulation.plan("busy", "shared.example", 500)
    simulation.dispatcher.start()
    simulation.pass_time(5)
    before = len(simulation.began["shared.example"])
    for organization in ("first", "second"):
        simulation.plan(organization, "shared.example", 3)
    simulation.dispatcher.wake()
    simulation.pass_time(5)
    assert not [row for row in simulation.queue.rows.values() if row.work.organization != "busy"]
    assert len(simulation.began["shared.example"]) - before >= 36


SHARED = "hooks.example"
HEALTHY = f"{SHARED}/alive"


def test_hanging_endpoint_does_not_delay_other_organizations_at_its_host() -> None:
    simulation = Simulation(hang)
    simulation.plan("dead", f"{SHARED}/dead", 40)
    simulation.dispatcher.start()
    assert max(simulation.waits("alive", HEALTHY, 90, 1.5)) <= 0.2
    assert simulation.maximum[f"{SHARED}/dead"] == 1
    assert len(simulation.began[f"{SHARED}/dead"]) >= 5, "the hanging endpoint is still tried"


@pytest.mark.parametrize("organization", ["alive", "dead0"])
@pytest.mark.parametrize(("organizations", "endpoints"), [(1, 40), (10, 4), (40, 5)])
def test_hanging_endpoints_do_not_delay_a_healthy_neighbour(
    organizations: int, endpoints: int, organization: str
) -> None:
    simulation = Simulation(hang)
    simulation.plan(organization, HEALTHY)
    simulation.dispatcher.start()
    simulation.pass_time(1)
    for dead in range(organizations):
        for number in range(endpoints):
            simulation.plan(f"dead{dead}", f"{SHARED}/dead/{dead}/{number}", 8)
    assert max(simulation.waits(organization, HEALTHY, 60)) <= 0.2
    assert len(simulation.began) >= 15, "hanging receivers are tried"


@pytest.mark.parametrize(("organizations", "endpoints"), [(1, 15), (5, 4)])
def test_new_endpoint_does_not_wait_for_neighbours_known_to_hang(organizations: int, endpoints: int) -> None:
    simulation = Simulation(hang)
    for dead in range(organizations):
        for number in range(endpoints):
            simulation.plan(f"dead{dead}", f"{SHARED}/dead/{dead}/{number}", 40)
    simulation.dispatcher.start()
    simulation.pass_time(260, 0.05)
    assert len(simulation.began) == organizations * endpoints
    for number in range(10):
        assert max(simulation.waits(f"alive{number}", f"{SHARED}/{number}", 1)) <= 0.2
        assert max(simulation.waits("dead0", f"{SHARED}/0/{number}", 1)) <= 0.2


@pytest.mark.parametrize(("busy", "events"), [(1, 400), (6, 1)])
def test_endpoints_that_begin_to_hang_do_not_delay_their_neighbours(busy: int, events: int) -> None:
    died = [False]
    simulation = Simulation(lambda receiver: HANGS if died[0] and "dead" in receiver else 0.2)
    simulation.dispatcher.start()
    simulation.waits("alive", HEALTHY, 1)
    for second in range(40):
        for number in range(busy):
            simulation.plan(f"dead{number}", f"{SHARED}/dead/{number}", events)
        simulation.dispatcher.wake()
        died[0] = second >= 3
        assert max(simulation.waits("alive", HEALTHY, 0.5)) <= 0.3
        assert sum(count for name, count in simulation.running.items() if "dead" in name) <= 14


def test_only_endpoint_of_a_host_leaves_capacity_for_a_new_one() -> None:
    died = [False]
    simulation = Simulation(lambda receiver: HANGS if died[0] and "dead" in receiver else 0.2)
    simulation.plan("dead", f"{SHARED}/dead", 400)
    simulation.dispatcher.start()
    simulation.pass_time(4)
    died[0] = True
    assert max(simulation.waits("alive", HEALTHY, 20)) <= 0.3


def test_slow_endpoints_do_not_delay_their_neighbours() -> None:
    simulation = Simulation(lambda receiver: 4.9 if "slow" in receiver else 0.05)
    simulation.dispatcher.start()
    simulation.waits("alive", HEALTHY, 1)
    for number in range(10):
        simulation.plan(f"slow{number}", f"{SHARED}/slow/{number}", 100)
    assert max(simulation.waits("alive", HEALTHY, 60)) <= 0.2
    assert len(simulation.began) == 11
    begun = sum(len(began) for name, began in simulation.began.items() if "slow" in name)
    assert begun >= 7 * 60 // 4.9, "slow endpoints still use nearly half of the capacity"


def test_retries_are_made_in_time_next_to_hanging_endpoints() -> None:
    simulation = Simulation(hang)
    simulation.respond = lambda _: REFUSED
    for number in range(5):
        simulation.plan("dead", f"{SHARED}/dead/{number}", 40)
    simulation.dispatcher.start()
    simulation.pass_time(5)
    simulation.plan("alive", HEALTHY, trigger=Trigger.AUTOMATIC)
    simulation.dispatcher.wake()
    simulation.pass_time(150, 0.05)
    began = simulation.began[HEALTHY]
    waits = [after - before for before, after in pairwise(began)]
    assert waits == pytest.approx([10.0, 30.0, 90.0], abs=0.5)


def test_healthy_organizations_and_endpoints_share_a_host_evenly() -> None:
    simulation = Simulation(lambda _: 0.2)
    simulation.plan("one", f"{SHARED}/one", 2000)
    for number in range(4):
        simulation.plan("many", f"{SHARED}/many/{number}", 1000)
    simulation.dispatcher.start()
    simulation.pass_time(5)
    before = {name: len(began) for name, began in simulation.began.items()}
    simulation.pass_time(10)
    made = {name: len(began) - before[name] for name, began in simulation.began.items()}
    everything = sum(made.values())
    assert everything >= 14 * 10 / 0.2 * 0.9
    assert made.pop(f"{SHARED}/one") == pytest.approx(everything / 2, rel=0.1)
    assert all(count == pytest.approx(everything / 8, rel=0.2) for count in made.values()), made


def test_recovered_receiver_soon_regains_its_full_rate() -> None:
    alive = [True]
    simulation = Simulation(lambda receiver: 0.05 if receiver == "0.dead" and alive[0] else hang(receiver))
    simulation.plan("mixed", "0.dead", 1000)
    simulation.dispatcher.start()
    simulation.pass_time(1)
    alive[0] = False
    for number in range(1, 150):
        simulation.plan("mixed", f"{number}.dead", 20)
    simulation.pass_time(60, 0.05)
    assert simulation.running["0.dead"] <= 1
    alive[0], before = True, len(simulation.began["0.dead"])
    simulation.pass_time(30, 0.05)
    assert simulation.maximum["0.dead"] == 14
    assert len(simulation.began["0.dead"]) > before + 200
