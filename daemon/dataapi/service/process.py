"""The process: its projects, site and webhooks, which are started, reloaded and stopped in order."""

from __future__ import annotations

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
"""Seconds after which a computing thread releases the GIL for the reactor (Python's default: 0.005)."""

GRACE = 30.0
"""Maximum time for requests in flight when the daemon stops, in seconds."""


class ServedPart(Protocol):
    """A component of the daemon that uses a database."""

    async def start(self) -> None:
        """Start. An unavailable database is not an error."""

    async def stop(self) -> None: ...

    async def check(self) -> None:
        """Check now whether the database responds. ``state`` returns the result."""


class ServedProject(ServedPart, Protocol):
    """A project of a running daemon."""

    ref: str
    settings: Project

    async def reload(self) -> int:
        """Reload the catalog and return its generation. Raises ``ApiError`` or ``ReloadError``."""

    def state(self) -> ProjectState: ...

    def snapshot(self) -> Snapshot: ...

    async def drain(self) -> None: ...

    async def catalog(self) -> Mapping[str, Any] | None: ...


class ServedWebhooks(ServedPart, Protocol):
    """Webhooks of a running daemon. The APIs do not depend on them."""

    async def configure(self, settings: Settings) -> None: ...

    async def drain(self, seconds: float) -> None:
        """Stop claiming deliveries, and wait at most ``seconds`` for attempts in flight."""

    def state(self) -> WebhooksState | None: ...

    async def snapshot(self) -> Snapshot: ...


class DrainableSite(Protocol):
    """The protocol factory of the public sockets."""

    in_flight: int
    draining: bool

    def drain(self, seconds: float) -> Deferred[None]:
        """Close each connection after its current request. The Deferred fires when all are closed.

        After ``seconds``, the remaining connections are aborted.
        """


class Assembly(Protocol):
    """Creates the components of a process."""

    def project(self, settings: Project) -> ServedProject: ...

    def site(self, projects: Sequence[Any], requests: RequestMetrics) -> DrainableSite: ...

    def configure(
        self, settings: Settings, site: Any, projects: Sequence[Any], requests: RequestMetrics
    ) -> None:
        """Make the site serve these projects with these settings, from the next request on."""


class Process:
    """Serves requests in this process."""

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
        self._acceptors: list[Acceptor] = []
        self._starting = True
        self._draining = False

    async def start(self) -> None:
        await self._changing.acquire()
        sys.setswitchinterval(SWITCH_INTERVAL)
        try:
            await concurrently(project.start() for project in self._projects)
            self._site = site = self._assembly.site(self._projects, self._requests)
            self._acceptors = [accept(self._reactor, bound, site) for bound in self._sockets]
            if self._webhooks:
                await self._webhooks.start()
        finally:
            self._changing.release()
        if self._collections:
            self._collections.start()
        self._process.start()
        self._starting = False

    async def drain(self) -> None:
        self._draining = True
        if self._site:
            self._site.draining = True

    async def stop(self) -> None:
        """Stop accepting, wait up to ``GRACE`` seconds for requests in flight, then stop the projects."""
        self._draining = True
        for acceptor in self._acceptors:
            acceptor.stop()
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
        checking = [project.check() for project in self._projects]
        if self._webhooks:
            checking.append(self._webhooks.check())
        await concurrently(checking)
        return self.known()

    def known(self) -> DaemonState:
        """Return the state as of the last check, without querying the databases."""
        projects = tuple(project.state() for project in self._projects)
        webhooks = self._webhooks.state() if self._webhooks else None
        return DaemonState(projects, self._starting, self._draining, webhooks=webhooks)

    async def snapshot(self) -> Snapshot:
        in_flight = float(self._site.in_flight) if self._site else 0.0
        own: Snapshot = {"dataapi_requests_in_flight": {(): in_flight}}
        webhooks = await self._webhooks.snapshot() if self._webhooks else {}
        projects = [project.snapshot() for project in self._projects]
        return merge([self._requests.snapshot(), own, *projects, webhooks, self._process.snapshot()])

    async def catalogs(self) -> Mapping[str, Any]:
        catalogs = {project.ref: await project.catalog() for project in self._projects}
        return {ref: catalog for ref, catalog in catalogs.items() if catalog is not None}

    async def reload(self, settings: Settings | None = None) -> Reloaded:
        failures = {} if settings is None else await self.configure(settings)
        reloading = [(project, Deferred.fromCoroutine(project.reload())) for project in self._projects]
        generations: dict[str, int] = {}
        for project, loaded in reloading:
            try:
                generations[project.ref] = await loaded
            except CancelledError:
                raise
            except DatabaseUnavailable as error:
                # Operators, unlike clients, may see the host and the reason.
                failures[project.ref] = project.state().reason or error.message
            except (ApiError, ReloadError) as error:
                failures[project.ref] = str(error)
            except Exception:
                _log.failure("the catalog of {project} was not reloaded", project=project.ref)
                failures[project.ref] = "internal error; see the log"
        return Reloaded(generations, failures)

    async def configure(self, settings: Settings) -> dict[str, str]:
        """Apply changed settings. Return the error of each project that keeps its old settings.

        Projects and webhooks with unchanged settings keep running.
        """
        failures: dict[str, str] = {}
        # ``start`` holds this lock until the site has been created.
        await self._changing.run(lambda: Deferred.fromCoroutine(self._configure(settings, failures)))
        return failures

    async def _configure(self, settings: Settings, failures: dict[str, str]) -> None:
        """Replace each project whose settings changed, and record failed replacements in ``failures``.

        A replaced project finishes the requests that it has received.
        """
        unchanged = {project.settings: project for project in self._projects}
        parts = [unchanged.get(project) or self._assembly.project(project) for project in settings.projects]
        await concurrently(part.start() for part in parts if part not in self._projects)
        by_ref = {project.ref: project for project in self._projects}
        for index, part in enumerate(parts):
            old = by_ref.get(part.ref)
            if old is None or old is part or old.settings.settings_error is not None:
                continue
            if not part.state().ready:
                failures[part.ref] = f"the new settings were not applied: {part.state().reason}"
                parts[index] = old
                await part.stop()
        replaced = [project for project in self._projects if project not in parts]
        self._projects = parts
        self._assembly.configure(settings, self._site, parts, self._requests)
        for project in replaced:
            self._background.spawn(self._stop_replaced(project))
        if self._webhooks:
            await self._webhooks.configure(settings)

    async def _stop_replaced(self, project: ServedProject) -> None:
        try:
            await project.drain()
            if project.settings.settings_error is None:
                await deferLater(self._reactor, GRACE)
        finally:
            await project.stop()
