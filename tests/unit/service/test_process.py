"""What one process does, with projects and a site on paper."""

from __future__ import annotations

from dataapi.http.errors import DatabaseUnavailable
from dataapi.http.messages import Request
from dataapi.service.process import GRACE, LateWebhooks, Serving
from dataapi.settings import Settings
from dataapi.telemetry.metrics import RequestMetrics, Snapshot
from dataapi.telemetry.readiness import ProjectState, WebhooksState
from dataapi.webhooks.management.errors import ManagementError
from support.deferreds import outcome
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock


class Part:
    """A project on paper."""

    def __init__(self, ref: str, events: list[str]) -> None:
        self.ref = ref
        self.events = events
        self.reloading: Deferred[int] = Deferred()
        self.checks = 0

    async def start(self) -> None:
        """Start."""
        self.events.append(f"start {self.ref}")

    async def stop(self) -> None:
        """Stop."""
        self.events.append(f"stop {self.ref}")

    async def reload(self) -> int:
        """Reload when told to."""
        return await self.reloading

    async def check(self) -> None:
        """Be asked for a sign of life."""
        self.checks += 1

    def state(self) -> ProjectState:
        """Be ready."""
        return ProjectState(self.ref, database_available=True, generation=1)

    def snapshot(self) -> Snapshot:
        """Have a pool."""
        return {"dataapi_pool_size": {(self.ref,): 10.0}}


class Site:
    """A site on paper."""

    def __init__(self, events: list[str]) -> None:
        self.in_flight = 3
        self.events = events
        self.drained: Deferred[None] = Deferred()

    def drain(self, seconds: float) -> Deferred[None]:
        """Drain when told to."""
        self.events.append(f"drain {seconds:g}")
        return self.drained


class Webhooks:
    """Webhooks on paper."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.drained: Deferred[None] = Deferred()
        self.checks = 0

    async def start(self) -> None:
        """Start."""
        self.events.append("start webhooks")

    async def drain(self, seconds: float) -> None:
        """Drain when told to."""
        self.events.append(f"drain webhooks {seconds:g}")
        await self.drained

    async def stop(self) -> None:
        """Stop."""
        self.events.append("stop webhooks")

    async def check(self) -> None:
        """Be asked for a sign of life."""
        self.checks += 1

    def state(self) -> WebhooksState:
        """Lack the schema."""
        return WebhooksState(database_available=True, migrated=False, reason="no schema")

    async def snapshot(self) -> Snapshot:
        """Have attempts under way."""
        return {"dataapi_webhooks_in_flight": {(): 2.0}}


class Process:
    """A process with two projects."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.parts = [Part("p", self.events), Part("q", self.events)]
        self.site = Site(self.events)
        self.serving = Serving(Clock(), self.parts, [], self.make_site)

    def make_site(self, figures: RequestMetrics) -> Site:
        """Keep what counts requests."""
        self.figures = figures
        return self.site


def test_projects_stop_after_the_requests_in_flight() -> None:
    """Stopping drains the site first, and only then ends the projects' connections."""
    process = Process()
    outcome(process.serving.start())
    stopping = Deferred.fromCoroutine(process.serving.stop())
    assert process.events == ["start p", "start q", f"drain {GRACE:g}"]
    assert outcome(process.serving.state()).draining
    process.site.drained.callback(None)
    assert stopping.called
    assert process.events[3:] == ["stop p", "stop q"]


def test_webhooks_end_beside_the_requests_in_flight() -> None:
    """Nothing is claimed while requests end; connections are closed when the last attempt and request did."""
    process = Process()
    webhooks = Webhooks(process.events)
    serving = Serving(Clock(), process.parts, [], process.make_site, webhooks)
    outcome(serving.start())
    assert "start webhooks" in process.events
    state = outcome(serving.state())
    assert (state.ready, state.webhooks.reason) == (True, "no schema")
    assert outcome(serving.snapshot())["dataapi_webhooks_in_flight"] == {(): 2}
    del process.events[:]
    stopping = Deferred.fromCoroutine(serving.stop())
    assert process.events == [f"drain {GRACE:g}", f"drain webhooks {GRACE:g}"]
    process.site.drained.callback(None)
    assert not stopping.called
    webhooks.drained.callback(None)
    assert stopping.called
    assert process.events[2:] == ["stop webhooks", "stop p", "stop q"]


def test_nothing_is_ready_before_requests_are_accepted() -> None:
    """A process whose projects could answer is not ready until it accepts requests."""
    process = Process()
    assert not outcome(process.serving.state()).ready
    outcome(process.serving.start())
    assert outcome(process.serving.state()).ready


def test_webhooks_start_when_requests_are_accepted() -> None:
    """The first request need not wait for webhooks; the process is ready when both have started."""
    process = Process()
    webhooks = Webhooks(process.events)
    started: Deferred[None] = Deferred()
    webhooks.start = lambda: started  # type: ignore[method-assign, assignment, return-value]
    serving = Serving(Clock(), process.parts, [], process.make_site, webhooks)
    starting = Deferred.fromCoroutine(serving.start())
    assert hasattr(process, "figures"), "the site that answers is there"
    assert outcome(serving.state()).starting
    started.callback(None)
    assert starting.called
    assert outcome(serving.state()).ready


def test_the_management_api_is_unavailable_until_webhooks_start() -> None:
    """Clients are asked to come back, and the state says why."""
    webhooks = LateWebhooks(Clock(), Settings(projects=()))
    request = Request("1", "GET", "/v2/event-types", "", {}, b"")
    error = outcome(webhooks.answer(request, request.path, {}))
    assert isinstance(error, ManagementError)
    assert (error.status, error.headers) == (503, (("Retry-After", "1"),))
    assert webhooks.state().reason == "webhooks are starting"


def test_figures_of_requests_and_projects_come_together() -> None:
    """One snapshot has the requests, those in flight, and every project's pool."""
    process = Process()
    outcome(process.serving.start())
    process.figures.observe("rest", 200, 0.1)
    snapshot = outcome(process.serving.snapshot())
    assert snapshot["dataapi_requests_total"] == {("rest", "2xx"): 1}
    assert snapshot["dataapi_requests_in_flight"] == {(): 3}
    assert snapshot["dataapi_pool_size"] == {("p",): 10, ("q",): 10}


def test_projects_reload_at_the_same_time_and_one_failure_spoils_no_other() -> None:
    """A reload reports each project's generation, or why its catalog stays; clients' texts only."""
    process = Process()
    reloading = Deferred.fromCoroutine(process.serving.reload())
    process.parts[1].reloading.callback(7)
    process.parts[0].reloading.errback(DatabaseUnavailable(503, "PGRST000", "no connection"))
    reloaded = outcome(reloading)
    assert reloaded.generations == {"q": 7}
    assert reloaded.failures == {"p": "no connection"}


def test_an_unknown_failure_of_a_reload_shows_nothing_of_itself() -> None:
    """What is no error for operators stays in the log."""
    process = Process()
    process.parts[0].reloading = succeed(2)
    process.parts[1].reloading.errback(KeyError("inside"))
    reloaded = outcome(process.serving.reload())
    assert reloaded.generations == {"p": 2}
    assert "inside" not in reloaded.failures["q"]
