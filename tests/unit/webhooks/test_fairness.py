"""Receivers that hang do not delay other organizations, and no organization is slower for it; on a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from dataapi.settings import Webhooks
from dataapi.webhooks.delivery.destinations import host_of
from dataapi.webhooks.delivery.dispatcher import Dispatcher
from dataapi.webhooks.model import AttemptError, AttemptOutcome, Trigger
from support.fake_queue import OK, START, FakeQueue
from twisted.internet.task import Clock, deferLater

if TYPE_CHECKING:
    from dataapi.webhooks.delivery.attempt import Attempt

HANGS = float("inf")
TIMED_OUT = AttemptOutcome(False, START, 20_000, 0, error=AttemptError.TIMEOUT)
RULES = Webhooks()


class Simulation:
    """Receivers that take their time, by their hosts' names.

    :ivar seconds: what a host takes for an attempt.
    :ivar began: when attempts began, by host.
    :ivar most: how many were under way at once, by host.
    """

    def __init__(self, seconds: Callable[[str], float], rules: Webhooks = RULES) -> None:
        self.clock = Clock()
        self.queue = FakeQueue(self.clock)
        self.seconds = seconds
        self.began: dict[str, list[float]] = {}
        self.running: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self._timeout = rules.timeout
        self.dispatcher = Dispatcher(self.clock, self.queue, self, lambda *_: {}, rules, random=lambda: 0.5)

    async def send(self, attempt: Attempt) -> AttemptOutcome:
        """Take as long as the host does, or all the time there is."""
        host = host_of(attempt.url)
        self.began.setdefault(host, []).append(self.clock.seconds())
        self.running[host] = self.running.get(host, 0) + 1
        self.most[host] = max(self.most.get(host, 0), self.running[host])
        seconds = self.seconds(host)
        await deferLater(self.clock, min(seconds, self._timeout))
        self.running[host] -= 1
        return OK if seconds < self._timeout else TIMED_OUT

    def plan(self, organization: str, host: str, count: int = 1) -> None:
        """Raise events for one endpoint."""
        endpoint = uuid4()
        for _ in range(count):
            self.queue.add(f"https://{host}/", endpoint, organization=organization, trigger=Trigger.MANUAL)

    def pass_time(self, seconds: float, step: float = 0.01) -> None:
        """Let time pass in small steps."""
        for _ in range(round(seconds / step)):
            self.clock.advance(step)

    def delays(self, organization: str, seconds: float) -> list[float]:
        """Raise an event a quarter of a second to a new receiver each; say how long they waited."""
        found = []
        for number in range(round(seconds * 4)):
            host, planned = f"{number}.{organization}", self.clock.seconds()
            self.plan(organization, host)
            self.dispatcher.wake()
            self.pass_time(0.25, 0.025)
            found.append(self.began.get(host, [HANGS])[0] - planned)
        return found


def hang(host: str) -> float:
    """Let whatever is of dead organizations hang."""
    return HANGS if "dead" in host else 0.05


@pytest.mark.parametrize(("organizations", "receivers"), [(1, 20), (1, 300), (4, 40)])
def test_receivers_that_hang_do_not_delay_another_organization(organizations: int, receivers: int) -> None:
    """From the first event on, with more than enough of them to fill every place."""
    simulation = Simulation(hang)
    for organization in range(organizations):
        for number in range(receivers):
            simulation.plan(f"dead{organization}", f"{number}.dead{organization}", 1000 // receivers)
    simulation.dispatcher.start()
    assert max(simulation.delays("alive", 45)) <= 0.2
    assert len(simulation.began) >= 100 + organizations * min(receivers, 30), "the others are tried"


def test_receivers_that_begin_to_hang_all_at_once_do_not_delay_another_organization() -> None:
    """They were quick, so that each had all that it may have; a twentieth was left free."""
    died = [False]
    simulation = Simulation(lambda host: HANGS if died[0] and "dead" in host else 0.3)
    for number in range(20):
        simulation.plan("dead", f"{number}.dead", 150)
    simulation.dispatcher.start()
    simulation.pass_time(2, 0.05)
    assert sum(simulation.running.values()) > 240
    died[0] = True
    assert max(simulation.delays("alive", 30)) <= 0.2


def test_hosts_of_an_organization_that_hang_do_not_delay_its_others() -> None:
    """As far as they are known to be quick."""
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


def test_an_organization_alone_has_nearly_all() -> None:
    """With many hosts that take a while: as much as 256 at once come to, less a twentieth and a start."""
    hosts, each, seconds = 40, 100, 0.2
    simulation = Simulation(lambda _: seconds)
    for number in range(hosts):
        simulation.plan("alone", f"{number}.alone", each)
    simulation.dispatcher.start()
    while simulation.queue.rows:
        simulation.pass_time(0.05)
        assert simulation.clock.seconds() < 10
    assert simulation.clock.seconds() <= hosts * each * seconds / RULES.concurrency / 0.95 + 1.0


def test_a_host_alone_has_all_that_it_may_have_soon() -> None:
    """After a few answers, one for each of the attempts that it has more."""
    simulation = Simulation(lambda _: 0.05)
    simulation.plan("alone", "one.alone", 400)
    simulation.dispatcher.start()
    simulation.pass_time(0.04)
    assert simulation.most["one.alone"] == 2
    simulation.pass_time(0.31)
    assert simulation.most["one.alone"] == RULES.concurrency_per_host
    simulation.pass_time(1.0)
    assert len(simulation.began["one.alone"]) >= 16 * 1.0 / 0.05


def test_a_host_with_many_endpoints_serves_all_its_organizations() -> None:
    """Where one of them has a long queue at a receiver that others use, too."""
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
