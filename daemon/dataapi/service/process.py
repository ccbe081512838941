"""One process: its projects, the site and webhooks, started, reloaded and stopped in order."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.internet.task import deferLater
from twisted.logger import Logger

from dataapi.concurrency.tasks import Background, concurrently
from dataapi.http.errors import ApiError, DatabaseUnavailable
from dataapi.service.garbage_collection import ShortCollections
from dataapi.service.sockets import Acceptor, Descriptor, accept
from dataapi.settings import Project, Settings
from dataapi.telemetry.metrics import Snapshot, merge
from dataapi.telemetry.process import ProcessMetrics
from dataapi.telemetry.readiness import DaemonState, ProjectState, Reloaded, ReloadError, WebhooksState
from dataapi.telemetry.requests import RequestMetrics
from dataapi.telemetry.tracing import Tracing

if TYPE_CHECKING:
    pass

_log = Logger(namespace="dataapi.service")

SWITCH_INTERVAL = 0.0005
"""Seconds that the reactor waits for the interpreter while another thread computes, not Python's 0.005."""

GRACE = 30.0
"""Seconds that requests in flight may take once the daemon stops."""


class Served(Protocol):
    """A part of the daemon while it runs, which has a database."""

    async def start(self) -> None:
        """Begin, or find that the database is unavailable."""

    async def stop(self) -> None:
        """Close every connection."""

    async def check(self) -> None:
        """Ask the database at once whether it answers; ``state`` has the result."""


class ServedProject(Served, Protocol):
    """A project while the daemon runs."""

    ref: str
    settings: Project

    async def reload(self) -> int:
        """Read the catalog again and return its generation; raises ``ApiError`` or ``ReloadError``."""

    def state(self) -> ProjectState:
        """Return whether requests can be answered."""

    def snapshot(self) -> Snapshot:
        """Take its metrics."""

    async def drain(self) -> None:
        """Have those connect again elsewhere whose answers go on for as long as they like."""

    async def catalog(self) -> Mapping[str, Any] | None:
        """Return its catalog as values that JSON has, None before the first load."""


class ServedWebhooks(Served, Protocol):
    """Webhooks while the daemon runs; the APIs do not depend on them."""

    async def configure(self, settings: Settings) -> None:
        """Go on with other settings, if they differ."""

    async def drain(self, seconds: float) -> None:
        """Deliver nothing more; returns when no attempt is under way, or after ``seconds``."""

    def state(self) -> WebhooksState | None:
        """Return whether they work, None if they are off."""

    async def snapshot(self) -> Snapshot:
        """Take their metrics."""


class DrainableSite(Protocol):
    """The factory of the public sockets."""

    in_flight: int
    draining: bool

    def drain(self, seconds: float) -> Deferred[None]:
        """Close idle connections; fires when no request is in flight, or after ``seconds``."""


class Assembly(Protocol):
    """Makes the parts of the process."""

    def project(self, settings: Project) -> ServedProject:
        """Make the part of a project, which is started later."""

    def site(self, projects: Sequence[Any], requests: RequestMetrics) -> DrainableSite:
        """Make the factory of the public sockets, once the projects are started."""

    def configure(
        self, settings: Settings, site: Any, projects: Sequence[Any], requests: RequestMetrics
    ) -> None:
        """Have the site serve these projects by these settings from the next request on."""


class Process:
    """Answers requests in this process.

    :param webhooks: started and stopped together with the projects.
    :param collections: started once everything that stays is loaded.
    """

    def __init__(
        self,
        reactor: Any,
        projects: Sequence[Project],
        sockets: Sequence[Descriptor],
        assembly: Assembly,
        webhooks: ServedWebhooks | None = None,
        collections: ShortCollections | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._collections = collections
        self._reactor = reactor
        self._webhooks = webhooks
        self._projects = [assembly.project(project) for project in projects]
        self._sockets = sockets
        self._requests = RequestMetrics()
        self._process = ProcessMetrics(reactor)
        self._assembly = assembly
        self._background = Background()
        self._changing = DeferredLock()
        self._site: DrainableSite | None = None
        self._accepting: list[Acceptor] = []
        self._starting = True
        self._draining = False

    async def start(self) -> None:
        """Start every project, then accept requests, and start webhooks, which the APIs do not need."""
        await self._changing.acquire()
        gc.disable()  # nearly all that a start loads stays
        try:
            await concurrently(project.start() for project in self._projects)
            self._site = site = self._assembly.site(self._projects, self._requests)
            self._accepting = [accept(self._reactor, bound, site) for bound in self._sockets]
            if self._webhooks:
                await self._webhooks.start()
        finally:
            gc.enable()
            self._changing.release()
        if self._collections:
            self._collections.start()
        sys.setswitchinterval(SWITCH_INTERVAL)
        self._process.start()
        self._starting = False

    async def drain(self) -> None:
        """Go on answering, the last request on each connection, and say that no more should come."""
        self._draining = True
        if self._site:
            self._site.draining = True

    async def stop(self) -> None:
        """Accept no more, finish what is in flight (for ``GRACE`` seconds), then stop the projects."""
        self._draining = True
        for accepting in self._accepting:
            accepting.stop()
        await concurrently(project.drain() for project in self._projects)
        ending: list[Awaitable[None]] = [self._site.drain(GRACE)] if self._site else []
        if self._webhooks:
            ending.append(self._webhooks.drain(GRACE))
        await concurrently(ending)
        self._background.cancel()
        if self._webhooks:
            await self._webhooks.stop()
        for project in self._projects:
            await project.stop()
        if self._collections:
            self._collections.stop()
        self._process.stop()
        if self._tracing:
            await self._tracing.stop(self._reactor)

    async def state(self) -> DaemonState:
        """Return whether requests can be answered, having asked the databases."""
        checking = [project.check() for project in self._projects]
        if self._webhooks:
            checking.append(self._webhooks.check())
        await concurrently(checking)
        return self.known()

    def known(self) -> DaemonState:
        """Return whether requests can be answered, as far as is known without asking the databases."""
        projects = tuple(project.state() for project in self._projects)
        webhooks = self._webhooks.state() if self._webhooks else None
        return DaemonState(projects, self._starting, self._draining, webhooks=webhooks)

    async def snapshot(self) -> Snapshot:
        """Take the metrics of requests, projects, webhooks and the process."""
        in_flight = float(self._site.in_flight) if self._site else 0.0
        own: Snapshot = {"dataapi_requests_in_flight": {(): in_flight}}
        webhooks = await self._webhooks.snapshot() if self._webhooks else {}
        projects = [project.snapshot() for project in self._projects]
        return merge([self._requests.snapshot(), own, *projects, webhooks, self._process.snapshot()])

    async def catalogs(self) -> Mapping[str, Any]:
        """Return the catalog of each project that has one."""
        found = {project.ref: await project.catalog() for project in self._projects}
        return {ref: catalog for ref, catalog in found.items() if catalog is not None}

    async def reload(self, settings: Settings | None = None) -> Reloaded:
        """Go on with other settings, if there are, and read every project's catalog again."""
        failures = {} if settings is None else await self.configure(settings)
        reloading = [(project, Deferred.fromCoroutine(project.reload())) for project in self._projects]
        generations: dict[str, int] = {}
        for project, loaded in reloading:
            try:
                generations[project.ref] = await loaded
            except CancelledError:
                raise
            except DatabaseUnavailable as error:
                # Unlike clients, operators learn where it is and why.
                failures[project.ref] = project.state().reason or error.message
            except (ApiError, ReloadError) as error:
                failures[project.ref] = str(error)
            except Exception:
                _log.failure("the catalog of {project} was not reloaded", project=project.ref)
                failures[project.ref] = "internal error; the log says more"
        return Reloaded(generations, failures)

    async def configure(self, settings: Settings) -> dict[str, str]:
        """Go on with other settings; return why projects keep their old ones.

        What needs no other settings is left alone.
        """
        failures: dict[str, str] = {}
        # Not before the start is over, which makes the site.
        await self._changing.run(lambda: Deferred.fromCoroutine(self._configure(settings, failures)))
        return failures

    async def _configure(self, settings: Settings, failures: dict[str, str]) -> None:
        """Replace each project whose settings changed; ``failures`` gets why others keep their old ones.

        What the old part of a project has begun to answer, it answers.
        """
        unchanged = {project.settings: project for project in self._projects}
        parts = [unchanged.get(project) or self._assembly.project(project) for project in settings.projects]
        await concurrently(part.start() for part in parts if part not in self._projects)
        by_ref = {project.ref: project for project in self._projects}
        for place, part in enumerate(parts):
            old = by_ref.get(part.ref)
            if old is None or old is part or old.settings.settings_error is not None:
                continue
            if not part.state().ready:
                failures[part.ref] = f"the new settings are not used: {part.state().reason}"
                parts[place] = old
                await part.stop()
        gone = [project for project in self._projects if project not in parts]
        self._projects = parts
        self._assembly.configure(settings, self._site, parts, self._requests)
        for project in gone:
            self._background.spawn(self._end(project))
        if self._webhooks:
            await self._webhooks.configure(settings)

    async def _end(self, project: ServedProject) -> None:
        """Stop a project that was replaced, once its requests are answered."""
        try:
            await project.drain()
            if project.settings.settings_error is None:
                await deferLater(self._reactor, GRACE)
        finally:
            await project.stop()
