"""What one process does, with projects and a site on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

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


class Part:
    """A project on paper."""

    def __init__(self, settings: Project, events: list[str]) -> None:
        self.ref = settings.ref
        self.settings = settings
        self.events = events
        self.available = True
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
        return ProjectState(self.ref, self.available, 1, reason=None if self.available else "no route")

    async def catalog(self) -> None:
        """Have no catalog."""

    async def drain(self) -> None:
        """Have nobody to send elsewhere."""

    def snapshot(self) -> Snapshot:
        """Have a pool."""
        return {"dataapi_pool_size": {(self.ref,): 10.0}}


class Site:
    """A site on paper."""

    def __init__(self, events: list[str]) -> None:
        self.in_flight = 3
        self.draining = False
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

    async def configure(self, settings: Settings) -> None:
        """Note how long their events are kept."""
        kept = settings.webhooks and settings.webhooks.retention_days
        self.events.append(f"configure webhooks {kept}")

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


def project(ref: str, **changed: Any) -> Project:
    """Return a project's settings."""
    return Project(ref=ref, organization="acme", db_uri="postgresql:///app", **changed)


SETTINGS = Settings(projects=(project("p"), project("q")))


class Paper:
    """A process with two projects on paper.

    :ivar served: the projects that the site serves.
    """

    def __init__(self, webhooks: Webhooks | None = None) -> None:
        self.events: list[str] = []
        self.parts: list[Part] = []
        self.clock = Clock()
        self.fake_site = Site(self.events)
        self.served: list[Part] = []
        if webhooks is not None:
            webhooks.events = self.events
        self.process = Process(self.clock, SETTINGS.projects, [], self, webhooks)

    def project(self, settings: Project) -> Part:
        """Make a project on paper."""
        self.parts.append(Part(settings, self.events))
        return self.parts[-1]

    def site(self, projects: Sequence[Part], requests: RequestMetrics) -> Site:
        """Keep what counts requests."""
        self.served = list(projects)
        self.figures = requests
        return self.fake_site

    def configure(
        self, _settings: Settings, _site: Site, projects: Sequence[Part], _requests: RequestMetrics
    ) -> None:
        """Serve other projects."""
        self.served = list(projects)


def test_projects_stop_after_the_requests_in_flight() -> None:
    paper = Paper()
    outcome(paper.process.start())
    stopping = Deferred.fromCoroutine(paper.process.stop())
    assert paper.events == ["start p", "start q", f"drain {GRACE:g}"]
    assert outcome(paper.process.state()).draining
    paper.fake_site.drained.callback(None)
    assert stopping.called
    assert paper.events[3:] == ["stop p", "stop q"]


def test_a_process_that_is_to_stop_goes_on_without_being_ready() -> None:
    paper = Paper()
    outcome(paper.process.start())
    outcome(paper.process.drain())
    state = outcome(paper.process.state())
    assert (state.ready, state.draining) == (False, True)
    assert paper.fake_site.draining
    assert paper.events == ["start p", "start q"]


def test_webhooks_end_beside_the_requests_in_flight() -> None:
    webhooks = Webhooks([])
    paper = Paper(webhooks)
    process = paper.process
    outcome(process.start())
    assert "start webhooks" in paper.events
    state = outcome(process.state())
    assert (state.ready, state.webhooks.reason) == (True, "no schema")
    assert outcome(process.snapshot())["dataapi_webhooks_in_flight"] == {(): 2}
    del paper.events[:]
    stopping = Deferred.fromCoroutine(process.stop())
    assert paper.events == [f"drain {GRACE:g}", f"drain webhooks {GRACE:g}"]
    paper.fake_site.drained.callback(None)
    assert not stopping.called
    webhooks.drained.callback(None)
    assert stopping.called
    assert paper.events[2:] == ["stop webhooks", "stop p", "stop q"]


def test_nothing_is_ready_before_requests_are_accepted() -> None:
    """A process whose projects could answer is not ready until it accepts requests."""
    paper = Paper()
    assert not outcome(paper.process.state()).ready
    outcome(paper.process.start())
    assert outcome(paper.process.state()).ready


def test_webhooks_start_when_requests_are_accepted() -> None:
    webhooks = Webhooks([])
    started: Deferred[None] = Deferred()
    webhooks.start = lambda: started  # type: ignore[method-assign, assignment, return-value]
    paper = Paper(webhooks)
    process = paper.process
    starting = Deferred.fromCoroutine(process.start())
    assert hasattr(paper, "figures"), "the site that answers is there"
    assert outcome(process.state()).starting
    started.callback(None)
    assert starting.called
    assert outcome(process.state()).ready


def test_the_management_api_is_unavailable_until_webhooks_start() -> None:
    webhooks = LazyWebhooks(Clock(), Settings(projects=(), webhooks=WebhooksSettings()))
    request = Request("1", "GET", "/v2/event-types", "", {}, b"")
    error = outcome(webhooks.handle(request, request.path, {}))
    assert isinstance(error, ManagementError)
    assert (error.status, error.headers) == (503, (("Retry-After", "1"),))
    assert webhooks.state() == WebhooksState(False, False, "webhooks are starting")


def test_without_their_section_webhooks_are_off() -> None:
    """Nothing of them starts; the management API says so, as does the state."""
    webhooks = LazyWebhooks(Clock(), Settings(projects=()))
    outcome(webhooks.start())
    request = Request("1", "GET", "/v2/event-types", "", {}, b"")
    error = outcome(webhooks.handle(request, request.path, {}))
    assert isinstance(error, ManagementError)
    assert (error.status, error.code) == (404, "not_found")
    assert error.message == "Webhooks are off: the configuration has no section [webhooks]"
    assert webhooks.state() is None


def test_figures_of_requests_and_projects_come_together() -> None:
    paper = Paper()
    outcome(paper.process.start())
    paper.figures.observe(CompletedRequest("rest", Request("1", "GET", "/", "", {}, b""), 200, 0.1, 0))
    snapshot = outcome(paper.process.snapshot())
    assert snapshot["dataapi_requests_total"] == {("rest", "GET", "", "200", ""): 1}
    assert snapshot["dataapi_requests_in_flight"] == {(): 3}
    assert snapshot["dataapi_pool_size"] == {("p",): 10, ("q",): 10}


def test_projects_reload_at_the_same_time_and_one_failure_spoils_no_other() -> None:
    paper = Paper()
    reloading = Deferred.fromCoroutine(paper.process.reload())
    paper.parts[1].reloading.callback(7)
    paper.parts[0].reloading.errback(DatabaseUnavailable(503, "PGRST000", "no connection"))
    reloaded = outcome(reloading)
    assert reloaded.generations == {"q": 7}
    assert reloaded.failures == {"p": "no connection"}


def test_a_reload_says_why_a_database_is_away() -> None:
    paper = Paper()
    paper.parts[0].available = False
    paper.parts[0].reloading.errback(DatabaseUnavailable(503, "PGRST000", "no connection"))
    paper.parts[1].reloading.callback(7)
    assert outcome(paper.process.reload()).failures == {"p": "no route"}


def test_an_unknown_failure_of_a_reload_shows_nothing_of_itself() -> None:
    paper = Paper()
    paper.parts[0].reloading = succeed(2)
    paper.parts[1].reloading.errback(KeyError("inside"))
    reloaded = outcome(paper.process.reload())
    assert reloaded.generations == {"p": 2}
    assert "inside" not in reloaded.failures["q"]


def test_a_changed_project_is_replaced_and_others_go_on() -> None:
    webhooks = Webhooks([])
    paper = Paper(webhooks)
    outcome(paper.process.start())
    old, other = paper.parts
    del paper.events[:]
    changed = project("p", db_max_rows=5)
    settings = replace(
        SETTINGS, projects=(changed, project("q")), webhooks=WebhooksSettings(retention_days=3)
    )
    other.reloading.callback(8)
    reloading = Deferred.fromCoroutine(paper.process.reload(settings))
    new = paper.parts[2]
    assert paper.events == ["start p", "configure webhooks 3"]
    assert paper.served == [new, other]
    new.reloading.callback(1)
    assert outcome(reloading) == Reloaded({"p": 1, "q": 8}, {})
    paper.clock.advance(GRACE)
    assert paper.events[2:] == ["stop p"]
    assert old not in paper.served


def test_settings_by_which_the_database_cannot_be_used_are_not_used() -> None:
    paper = Paper()
    outcome(paper.process.start())
    old, other = paper.parts
    make = paper.project

    def unusable(settings: Project) -> Part:
        part = make(settings)
        part.available = False
        return part

    paper.project = unusable  # type: ignore[method-assign]
    settings = replace(SETTINGS, projects=(project("p", db_pool=2), project("q")))
    old.reloading.callback(1)
    other.reloading.callback(1)
    reloaded = outcome(paper.process.reload(settings))
    assert reloaded.failures == {"p": "the new settings were not applied: no route"}
    assert paper.served == [old, other]
    assert paper.events[-1] == "stop p"


def test_a_project_with_other_settings_knows_what_it_knew_of_its_servers() -> None:
    assembly: Any = ProcessAssembly(Clock(), None, None, None, lambda _: None, None, None)  # type: ignore[arg-type]
    before, newer = Lineage(1, 1), Lineage(1, 2)
    assembly.project(project("a", db_max_rows=1)).succession.add_primary(newer)
    assert assembly.project(project("a", db_max_rows=2)).succession.is_outdated(before)
    assert not assembly.project(project("b")).succession.is_outdated(before)
    elsewhere = "postgresql:///elsewhere"
    for other in (replace(project("a"), db_uri=elsewhere), replace(project("a"), db_read_uri=elsewhere)):
        assert not assembly.project(other).succession.is_outdated(before)


def test_projects_come_and_go() -> None:
    paper = Paper()
    outcome(paper.process.start())
    paper.parts[1].reloading.callback(1)
    settings = replace(SETTINGS, projects=(project("q"), project("r")))
    reloading = Deferred.fromCoroutine(paper.process.reload(settings))
    paper.parts[2].reloading.callback(1)
    assert outcome(reloading).generations == {"q": 1, "r": 1}
    assert [part.ref for part in paper.served] == ["q", "r"]
    stopping = Deferred.fromCoroutine(paper.process.stop())
    paper.fake_site.drained.callback(None)
    assert stopping.called
    assert sorted(paper.events[-3:]) == ["stop p", "stop q", "stop r"]
    assert paper.clock.getDelayedCalls() == []


def test_settings_that_come_during_the_start_are_used_after_it() -> None:
    paper = Paper()
    old, other = paper.parts
    started: Deferred[None] = Deferred()

    async def start() -> None:
        await started

    old.start = start  # type: ignore[method-assign]
    starting = Deferred.fromCoroutine(paper.process.start())
    settings = replace(SETTINGS, projects=(project("p", db_pool=2), project("q")))
    other.reloading.callback(1)
    reloading = Deferred.fromCoroutine(paper.process.reload(settings))
    assert len(paper.parts) == 2
    started.callback(None)
    assert starting.called
    new = paper.parts[2]
    new.reloading.callback(1)
    assert outcome(reloading) == Reloaded({"p": 1, "q": 1}, {})
    assert paper.served == [new, other]
