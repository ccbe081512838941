"""One process of the daemon, with fake projects and a fake site."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dataapi.database.succession import Lineage
from dataapi.http.errors import DatabaseUnavailable
from dataapi.http.messages import Request
from dataapi.service.assembly import LazyWebhooks, ProcessAssembly
from dataapi.service.process import GRACE, Process
from dataapi.settings import Project, Settings
from dataapi.settings import Webhooks as WebhooksSettings
from dataapi.telemetry.metrics import Snapshot
from dataapi.telemetry.readiness import ProjectState, Reloaded, WebhooksState
from dataapi.telemetry.requests import CompletedRequest, RequestMetrics
from dataapi.webhooks.management.errors import ManagementError
from support.deferreds import outcome
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

if TYPE_CHECKING:
    from collections.abc import Sequence


class FakeProject:
    """A fake project."""

    def __init__(self, settings: Project, events: list[str]) -> None:
        self.ref = settings.ref
        self.settings = settings
        self.events = events
        self.available = True
        self.reloading: Deferred[int] = Deferred()
        self.checks = 0

    async def start(self) -> None:
        self.events.append(f"start {self.ref}")

    async def stop(self) -> None:
        self.events.append(f"stop {self.ref}")

    async def reload(self) -> int:
        return await self.reloading

    async def check(self) -> None:
        self.checks += 1

    def state(self) -> ProjectState:
        return ProjectState(self.ref, self.available, 1, reason=None if self.available else "no route")

    async def catalog(self) -> None:
        pass

    async def drain(self) -> None:
        pass

    def snapshot(self) -> Snapshot:
        return {"dataapi_pool_size": {(self.ref,): 10.0}}


class FakeSite:
    """A fake site."""

    def __init__(self, events: list[str]) -> None:
        self.in_flight = 3
        self.draining = False
        self.events = events
        self.drained: Deferred[None] = Deferred()

    def drain(self, seconds: float) -> Deferred[None]:
        self.events.append(f"drain {seconds:g}")
        return self.drained


class FakeWebhooks:
    """Fake webhooks."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.drained: Deferred[None] = Deferred()
        self.checks = 0

    async def start(self) -> None:
        self.events.append("start webhooks")

    async def configure(self, settings: Settings) -> None:
        days = settings.webhooks and settings.webhooks.retention_days
        self.events.append(f"configure webhooks {days}")

    async def drain(self, seconds: float) -> None:
        self.events.append(f"drain webhooks {seconds:g}")
        await self.drained

    async def stop(self) -> None:
        self.events.append("stop webhooks")

    async def check(self) -> None:
        self.checks += 1

    def state(self) -> WebhooksState:
        return WebhooksState(database_available=True, migrated=False, reason="no schema")

    async def snapshot(self) -> Snapshot:
        return {"dataapi_webhooks_in_flight": {(): 2.0}}


def project(ref: str, **settings: Any) -> Project:
    return Project(ref=ref, organization="acme", db_uri="postgresql:///app", **settings)


SETTINGS = Settings(projects=(project("p"), project("q")))


class Harness:
    """A process with two fake projects.

    :ivar served: the projects that the site serves.
    """

    def __init__(self, webhooks: FakeWebhooks | None = None) -> None:
        self.events: list[str] = []
        self.parts: list[FakeProject] = []
        self.clock = Clock()
        self.fake_site = FakeSite(self.events)
        self.served: list[FakeProject] = []
        if webhooks is not None:
            webhooks.events = self.events
        self.process = Process(self.clock, SETTINGS.projects, [], self, webhooks)

    def project(self, settings: Project) -> FakeProject:
        self.parts.append(FakeProject(settings, self.events))
        return self.parts[-1]

    def site(self, projects: Sequence[FakeProject], requests: RequestMetrics) -> FakeSite:
        self.served = list(projects)
        self.figures = requests
        return self.fake_site

    def configure(
        self, _settings: Settings, _site: FakeSite, projects: Sequence[FakeProject], _requests: RequestMetrics
    ) -> None:
        self.served = list(projects)


def test_projects_stop_after_the_requests_in_flight() -> None:
    harness = Harness()
    outcome(harness.process.start())
    stopping = Deferred.fromCoroutine(harness.process.stop())
    assert harness.events == ["start p", "start q", f"drain {GRACE:g}"]
    assert outcome(harness.process.state()).draining
    harness.fake_site.drained.callback(None)
    assert stopping.called
    assert harness.events[3:] == ["stop p", "stop q"]


def test_draining_process_serves_requests_but_is_not_ready() -> None:
    harness = Harness()
    outcome(harness.process.start())
    outcome(harness.process.drain())
    state = outcome(harness.process.state())
    assert (state.ready, state.draining) == (False, True)
    assert harness.fake_site.draining
    assert harness.events == ["start p", "start q"]


def test_webhooks_drain_together_with_requests() -> None:
    webhooks = FakeWebhooks([])
    harness = Harness(webhooks)
    process = harness.process
    outcome(process.start())
    assert "start webhooks" in harness.events
    state = outcome(process.state())
    assert (state.ready, state.webhooks.reason) == (True, "no schema")
    assert outcome(process.snapshot())["dataapi_webhooks_in_flight"] == {(): 2}
    del harness.events[:]
    stopping = Deferred.fromCoroutine(process.stop())
    assert harness.events == [f"drain {GRACE:g}", f"drain webhooks {GRACE:g}"]
    harness.fake_site.drained.callback(None)
    assert not stopping.called
    webhooks.drained.callback(None)
    assert stopping.called
    assert harness.events[2:] == ["stop webhooks", "stop p", "stop q"]


def test_process_is_not_ready_until_it_accepts_requests() -> None:
    harness = Harness()
    assert not outcome(harness.process.state()).ready
    outcome(harness.process.start())
    assert outcome(harness.process.state()).ready


def test_webhooks_start_after_the_site() -> None:
    webhooks = FakeWebhooks([])
    started: Deferred[None] = Deferred()
    webhooks.start = lambda: started  # type: ignore[method-assign, assignment, return-value]
    harness = Harness(webhooks)
    process = harness.process
    starting = Deferred.fromCoroutine(process.start())
    assert hasattr(harness, "figures"), "the site has been created"
    assert outcome(process.state()).starting
    started.callback(None)
    assert starting.called
    assert outcome(process.state()).ready


def test_management_api_is_unavailable_until_webhooks_start() -> None:
    webhooks = LazyWebhooks(Clock(), Settings(projects=(), webhooks=WebhooksSettings()))
    request = Request("1", "GET", "/v2/event-types", "", {}, b"")
    error = outcome(webhooks.handle(request, request.path, {}))
    assert isinstance(error, ManagementError)
    assert (error.status, error.headers) == (503, (("Retry-After", "1"),))
    assert webhooks.state() == WebhooksState(False, False, "webhooks are starting")


def test_webhooks_are_disabled_without_their_section() -> None:
    webhooks = LazyWebhooks(Clock(), Settings(projects=()))
    outcome(webhooks.start())
    request = Request("1", "GET", "/v2/event-types", "", {}, b"")
    error = outcome(webhooks.handle(request, request.path, {}))
    assert isinstance(error, ManagementError)
    assert (error.status, error.code) == (404, "not_found")
    assert error.message == "Webhooks are off: the configuration has no section [webhooks]"
    assert webhooks.state() is None


def test_snapshot_combines_metrics_of_requests_and_projects() -> None:
    harness = Harness()
    outcome(harness.process.start())
    harness.figures.observe(CompletedRequest("rest", Request("1", "GET", "/", "", {}, b""), 200, 0.1, 0))
    snapshot = outcome(harness.process.snapshot())
    assert snapshot["dataapi_requests_total"] == {("rest", "GET", "", "200", ""): 1}
    assert snapshot["dataapi_requests_in_flight"] == {(): 3}
    assert snapshot["dataapi_pool_size"] == {("p",): 10, ("q",): 10}


def test_failed_reload_of_a_project_does_not_affect_others() -> None:
    harness = Harness()
    reloading = Deferred.fromCoroutine(harness.process.reload())
    harness.parts[1].reloading.callback(7)
    harness.parts[0].reloading.errback(DatabaseUnavailable(503, "PGRST000", "no connection"))
    reloaded = outcome(reloading)
    assert reloaded.generations == {"q": 7}
    assert reloaded.failures == {"p": "no connection"}


def test_failed_reload_reports_why_the_database_is_unavailable() -> None:
    harness = Harness()
    harness.parts[0].available = False
    harness.parts[0].reloading.errback(DatabaseUnavailable(503, "PGRST000", "no connection"))
    harness.parts[1].reloading.callback(7)
    assert outcome(harness.process.reload()).failures == {"p": "no route"}


def test_unexpected_error_of_a_reload_is_not_disclosed() -> None:
    harness = Harness()
    harness.parts[0].reloading = succeed(2)
    harness.parts[1].reloading.errback(KeyError("inside"))
    reloaded = outcome(harness.process.reload())
    assert reloaded.generations == {"p": 2}
    assert "inside" not in reloaded.failures["q"]


def test_changed_project_is_replaced_and_others_are_not() -> None:
    webhooks = FakeWebhooks([])
    harness = Harness(webhooks)
    outcome(harness.process.start())
    old, other = harness.parts
    del harness.events[:]
    changed = project("p", db_max_rows=5)
    settings = replace(
        SETTINGS, projects=(changed, project("q")), webhooks=WebhooksSettings(retention_days=3)
    )
    other.reloading.callback(8)
    reloading = Deferred.fromCoroutine(harness.process.reload(settings))
    new = harness.parts[2]
    assert harness.events == ["start p", "configure webhooks 3"]
    assert harness.served == [new, other]
    new.reloading.callback(1)
    assert outcome(reloading) == Reloaded({"p": 1, "q": 8}, {})
    harness.clock.advance(GRACE)
    assert harness.events[2:] == ["stop p"]
    assert old not in harness.served


def test_settings_are_not_applied_if_the_database_is_unavailable() -> None:
    harness = Harness()
    outcome(harness.process.start())
    old, other = harness.parts
    create = harness.project

    def unusable(settings: Project) -> FakeProject:
        part = create(settings)
        part.available = False
        return part

    harness.project = unusable  # type: ignore[method-assign]
    settings = replace(SETTINGS, projects=(project("p", db_pool=2), project("q")))
    old.reloading.callback(1)
    other.reloading.callback(1)
    reloaded = outcome(harness.process.reload(settings))
    assert reloaded.failures == {"p": "the new settings were not applied: no route"}
    assert harness.served == [old, other]
    assert harness.events[-1] == "stop p"


def test_changed_project_remembers_the_primary_of_its_database() -> None:
    settings, nothing = Settings(()), cast("Any", None)
    assembly: Any = ProcessAssembly(Clock(), settings, nothing, nothing, lambda _: None, None, nothing)
    before, newer = Lineage(1, 1), Lineage(1, 2)
    assembly.project(project("a", db_max_rows=1)).succession.add_primary(newer)
    assert assembly.project(project("a", db_max_rows=2)).succession.is_outdated(before)
    assert not assembly.project(project("b")).succession.is_outdated(before)
    elsewhere = "postgresql:///elsewhere"
    for other in (replace(project("a"), db_uri=elsewhere), replace(project("a"), db_read_uri=elsewhere)):
        assert not assembly.project(other).succession.is_outdated(before)


def test_projects_can_be_added_and_removed() -> None:
    harness = Harness()
    outcome(harness.process.start())
    harness.parts[1].reloading.callback(1)
    settings = replace(SETTINGS, projects=(project("q"), project("r")))
    reloading = Deferred.fromCoroutine(harness.process.reload(settings))
    harness.parts[2].reloading.callback(1)
    assert outcome(reloading).generations == {"q": 1, "r": 1}
    assert [part.ref for part in harness.served] == ["q", "r"]
    stopping = Deferred.fromCoroutine(harness.process.stop())
    harness.fake_site.drained.callback(None)
    assert stopping.called
    assert sorted(harness.events[-3:]) == ["stop p", "stop q", "stop r"]
    assert harness.clock.getDelayedCalls() == []


def test_reload_during_the_start_is_applied_afterwards() -> None:
    harness = Harness()
    old, other = harness.parts
    started: Deferred[None] = Deferred()

    async def start() -> None:
        await started

    old.start = start  # type: ignore[method-assign]
    starting = Deferred.fromCoroutine(harness.process.start())
    settings = replace(SETTINGS, projects=(project("p", db_pool=2), project("q")))
    other.reloading.callback(1)
    reloading = Deferred.fromCoroutine(harness.process.reload(settings))
    assert len(harness.parts) == 2
    started.callback(None)
    assert starting.called
    new = harness.parts[2]
    new.reloading.callback(1)
    assert outcome(reloading) == Reloaded({"p": 1, "q": 1}, {})
    assert harness.served == [new, other]
