"""What one process does, with projects and a site on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dataapi.http.errors import DatabaseUnavailable
from dataapi.http.messages import Request
from dataapi.service.process import GRACE, LateWebhooks, Serving
from dataapi.settings import Project, Settings
from dataapi.settings import Webhooks as WebhooksSettings
from dataapi.telemetry.metrics import Snapshot
from dataapi.telemetry.readiness import ProjectState, Reloaded, WebhooksState
from dataapi.telemetry.requests import AnsweredRequest, RequestMetrics
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
        self.events.append(f"configure webhooks {settings.webhooks.retention_days}")

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


class Process:
    """A process with two projects.

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
        self.serving = Serving(self.clock, SETTINGS.projects, [], self, webhooks)

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
    """Stopping drains the site first, and only then ends the projects' connections."""
    process = Process()
    outcome(process.serving.start())
    stopping = Deferred.fromCoroutine(process.serving.stop())
    assert process.events == ["start p", "start q", f"drain {GRACE:g}"]
    assert outcome(process.serving.state()).draining
    process.fake_site.drained.callback(None)
    assert stopping.called
    assert process.events[3:] == ["stop p", "stop q"]


def test_a_process_that_is_to_stop_goes_on_without_being_ready() -> None:
    """Nothing is stopped yet; connections end after their next answers."""
    process = Process()
    outcome(process.serving.start())
    outcome(process.serving.drain())
    state = outcome(process.serving.state())
    assert (state.ready, state.draining) == (False, True)
    assert process.fake_site.draining
    assert process.events == ["start p", "start q"]


def test_webhooks_end_beside_the_requests_in_flight() -> None:
    """Nothing is claimed while requests end; connections are closed when the last attempt and request did."""
    webhooks = Webhooks([])
    process = Process(webhooks)
    serving = process.serving
    outcome(serving.start())
    assert "start webhooks" in process.events
    state = outcome(serving.state())
    assert (state.ready, state.webhooks.reason) == (True, "no schema")
    assert outcome(serving.snapshot())["dataapi_webhooks_in_flight"] == {(): 2}
    del process.events[:]
    stopping = Deferred.fromCoroutine(serving.stop())
    assert process.events == [f"drain {GRACE:g}", f"drain webhooks {GRACE:g}"]
    process.fake_site.drained.callback(None)
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
    webhooks = Webhooks([])
    started: Deferred[None] = Deferred()
    webhooks.start = lambda: started  # type: ignore[method-assign, assignment, return-value]
    process = Process(webhooks)
    serving = process.serving
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
    process.figures.observe(AnsweredRequest("rest", Request("1", "GET", "/", "", {}, b""), 200, 0.1, 0))
    snapshot = outcome(process.serving.snapshot())
    assert snapshot["dataapi_requests_total"] == {("rest", "GET", "", "200", ""): 1}
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


def test_a_changed_project_is_replaced_and_others_go_on() -> None:
    """Requests go to the new part at once; the old one ends when it has answered what it began."""
    webhooks = Webhooks([])
    process = Process(webhooks)
    outcome(process.serving.start())
    old, other = process.parts
    del process.events[:]
    changed = project("p", db_max_rows=5)
    settings = replace(
        SETTINGS, projects=(changed, project("q")), webhooks=WebhooksSettings(retention_days=3)
    )
    other.reloading.callback(8)
    reloading = Deferred.fromCoroutine(process.serving.reload(settings))
    new = process.parts[2]
    assert process.events == ["start p", "configure webhooks 3"]
    assert process.served == [new, other]
    new.reloading.callback(1)
    assert outcome(reloading) == Reloaded({"p": 1, "q": 8}, {})
    process.clock.advance(GRACE)
    assert process.events[2:] == ["stop p"]
    assert old not in process.served


def test_settings_by_which_the_database_cannot_be_used_are_not_used() -> None:
    """A wrong password is reported, and the old part goes on."""
    process = Process()
    outcome(process.serving.start())
    old, other = process.parts
    make = process.project

    def unusable(settings: Project) -> Part:
        part = make(settings)
        part.available = False
        return part

    process.project = unusable  # type: ignore[method-assign]
    settings = replace(SETTINGS, projects=(project("p", db_pool=2), project("q")))
    old.reloading.callback(1)
    other.reloading.callback(1)
    reloaded = outcome(process.serving.reload(settings))
    assert reloaded.failures == {"p": "the new settings are not used: no route"}
    assert process.served == [old, other]
    assert process.events[-1] == "stop p"


def test_projects_come_and_go() -> None:
    """One that is no longer configured ends, a new one is served."""
    process = Process()
    outcome(process.serving.start())
    process.parts[1].reloading.callback(1)
    settings = replace(SETTINGS, projects=(project("q"), project("r")))
    reloading = Deferred.fromCoroutine(process.serving.reload(settings))
    process.parts[2].reloading.callback(1)
    assert outcome(reloading).generations == {"q": 1, "r": 1}
    assert [part.ref for part in process.served] == ["q", "r"]
    stopping = Deferred.fromCoroutine(process.serving.stop())
    process.fake_site.drained.callback(None)
    assert stopping.called
    assert sorted(process.events[-3:]) == ["stop p", "stop q", "stop r"]
    assert process.clock.getDelayedCalls() == []


def test_settings_that_come_during_the_start_are_used_after_it() -> None:
    """The site, which they change, is made at the end of the start."""
    process = Process()
    old, other = process.parts
    started: Deferred[None] = Deferred()

    async def start() -> None:
        await started

    old.start = start  # type: ignore[method-assign]
    starting = Deferred.fromCoroutine(process.serving.start())
    settings = replace(SETTINGS, projects=(project("p", db_pool=2), project("q")))
    other.reloading.callback(1)
    reloading = Deferred.fromCoroutine(process.serving.reload(settings))
    assert len(process.parts) == 2
    started.callback(None)
    assert starting.called
    new = process.parts[2]
    new.reloading.callback(1)
    assert outcome(reloading) == Reloaded({"p": 1, "q": 1}, {})
    assert process.served == [new, other]
