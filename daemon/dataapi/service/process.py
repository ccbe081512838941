"""One process, assembled from its projects, the site and webhooks, and started and stopped in order."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from dataapi.http.errors import ApiError
from dataapi.service.project import ProjectPart
from dataapi.service.sockets import Acceptor, Descriptor, accept
from dataapi.settings import Settings
from dataapi.telemetry.logs import LineObserver, request_observer
from dataapi.telemetry.metrics import RequestMetrics, Snapshot, merge
from dataapi.telemetry.readiness import ProjectState, Reloaded, State, WebhooksState
from dataapi.webhooks.management.errors import ErrorCode, ManagementError

if TYPE_CHECKING:
    from dataapi.http.messages import Reply, Request
    from dataapi.service.webhooks import WebhooksPart

_log = Logger(namespace="dataapi.service")
OLDEST = 2
"""The generation of long-lived objects; its collections are full ones."""
MANY = 2
"""Collections of the generation before, each of which adds thousands of objects, until a full one."""
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

    async def reload(self) -> int:
        """Read the catalog again and return its generation."""

    def state(self) -> ProjectState:
        """Return whether requests can be answered."""

    def snapshot(self) -> Snapshot:
        """Take its metrics."""


class ServedWebhooks(Served, Protocol):
    """Webhooks while the daemon runs; the APIs do not depend on them."""

    async def drain(self, seconds: float) -> None:
        """Deliver nothing more; returns when no attempt is under way, or after ``seconds``."""

    def state(self) -> WebhooksState:
        """Return whether they work."""

    async def snapshot(self) -> Snapshot:
        """Take their metrics."""


class DrainableSite(Protocol):
    """The factory of the public sockets."""

    in_flight: int

    def drain(self, seconds: float) -> Deferred[None]:
        """Close idle connections; fires when no request is in flight, or after ``seconds``."""


class Serving:
    """Answers requests in this process.

    :param make_site: makes the factory of the sockets from the request metrics.
    :param webhooks: started and stopped together with the projects.
    :param collections: started once everything that stays is loaded.
    """

    def __init__(
        self,
        reactor: Any,
        projects: Sequence[ServedProject],
        sockets: Sequence[Descriptor],
        make_site: Callable[[RequestMetrics], DrainableSite],
        webhooks: ServedWebhooks | None = None,
        collections: ShortCollections | None = None,
    ) -> None:
        self._collections = collections
        self._reactor = reactor
        self._webhooks = webhooks
        self._projects = projects
        self._sockets = sockets
        self._requests = RequestMetrics()
        self._make_site = make_site
        self._site: DrainableSite | None = None
        self._accepting: list[Acceptor] = []
        self._starting = True
        self._draining = False

    async def start(self) -> None:
        """Start every project, then accept requests, and start webhooks, which the APIs do not need."""
        gc.disable()  # nearly all that a start loads stays
        try:
            await gatherResults([Deferred.fromCoroutine(project.start()) for project in self._projects])
            self._site = site = self._make_site(self._requests)
            self._accepting = [accept(self._reactor, bound, site) for bound in self._sockets]
            if self._webhooks:
                await self._webhooks.start()
        finally:
            gc.enable()
        if self._collections:
            self._collections.start()
        self._starting = False

    async def stop(self) -> None:
        """Accept no more, finish what is in flight (for ``GRACE`` seconds), then stop the projects."""
        self._draining = True
        for accepting in self._accepting:
            accepting.stop()
        ending = [self._site.drain(GRACE)] if self._site else []
        if self._webhooks:
            ending.append(Deferred.fromCoroutine(self._webhooks.drain(GRACE)))
        await gatherResults(ending)
        if self._webhooks:
            await self._webhooks.stop()
        for project in self._projects:
            await project.stop()
        if self._collections:
            self._collections.stop()

    async def state(self) -> State:
        """Return whether requests can be answered, having asked the databases."""
        checking = [project.check() for project in self._projects]
        if self._webhooks:
            checking.append(self._webhooks.check())
        await gatherResults([Deferred.fromCoroutine(each) for each in checking])
        return self.known()

    def known(self) -> State:
        """Return whether requests can be answered, as far as is known without asking the databases."""
        projects = tuple(project.state() for project in self._projects)
        webhooks = self._webhooks.state() if self._webhooks else None
        return State(projects, self._starting, self._draining, webhooks=webhooks)

    async def snapshot(self) -> Snapshot:
        """Take the metrics of requests, projects and webhooks."""
        in_flight = float(self._site.in_flight) if self._site else 0.0
        own: Snapshot = {"dataapi_requests_in_flight": {(): in_flight}}
        webhooks = await self._webhooks.snapshot() if self._webhooks else {}
        projects = [project.snapshot() for project in self._projects]
        return merge([self._requests.snapshot(), own, *projects, webhooks])

    async def reload(self) -> Reloaded:
        """Read every project's catalog again, all at the same time."""
        reloading = {project.ref: Deferred.fromCoroutine(project.reload()) for project in self._projects}
        generations: dict[str, int] = {}
        failures: dict[str, str] = {}
        for ref, loaded in reloading.items():
            try:
                generations[ref] = await loaded
            except CancelledError:
                raise
            except ApiError as error:
                failures[ref] = error.message
            except Exception:
                _log.failure("the catalog of {project} was not reloaded", project=ref)
                failures[ref] = "internal error; the log says more"
        return Reloaded(generations, failures)


class LateWebhooks:
    """Webhooks that are imported once the APIs answer.

    Its imports and the event catalogue take a third as long as all the rest of a start.
    """

    def __init__(self, reactor: Any, settings: Settings) -> None:
        self._reactor = reactor
        self._settings = settings
        self._part: WebhooksPart | None = None

    async def start(self) -> None:
        """Begin, or find that the database is unavailable."""
        make = await deferToThread(_webhooks_part)
        self._part = part = make(self._reactor, self._settings)
        await part.start()

    async def drain(self, seconds: float) -> None:
        """Deliver nothing more; returns when no attempt is under way, or after ``seconds``."""
        if self._part:
            await self._part.drain(seconds)

    async def stop(self) -> None:
        """Close every connection."""
        if self._part:
            await self._part.stop()

    async def check(self) -> None:
        """Ask the database at once whether it answers; ``state`` has the result."""
        if self._part:
            await self._part.check()

    def state(self) -> WebhooksState:
        """Return whether they work."""
        return self._part.state() if self._part else WebhooksState(False, False, "webhooks are starting")

    async def snapshot(self) -> Snapshot:
        """Take their metrics."""
        return await self._part.snapshot() if self._part else {}

    async def answer(self, request: Request, path: str, places: Mapping[str, str]) -> Reply:
        """Answer a request to the management API; raises ``ApiError``, 503 before the start."""
        if self._part is None:
            raise ManagementError(
                ErrorCode.UNAVAILABLE, "Webhooks are starting", headers=(("Retry-After", "1"),)
            )
        return await self._part.api.answer(request, path, places)


def _webhooks_part() -> type[WebhooksPart]:
    from dataapi.service.webhooks import WebhooksPart  # noqa: PLC0415 - see ``LateWebhooks``

    return WebhooksPart


class ShortCollections:
    """Keeps garbage collections short, however much the process holds.

    A full collection looks at everything that has lived for a while: with full caches and a large schema for
    a tenth of a second, during which no request is answered.  So what one leaves is frozen, and the next one
    looks only at newer objects.  Frozen objects are still freed when their last reference goes, as those of
    requests and caches are, because they have no cycles.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._counted = 0

    def start(self) -> None:
        """Collect and freeze all objects, now and from now on."""
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._count)

    def stop(self) -> None:
        """Leave everything to Python's collector again."""
        if self._count in gc.callbacks:
            gc.callbacks.remove(self._count)

    def _count(self, phase: str, info: dict[str, int]) -> None:
        """Count a collection, which may happen anywhere and in any thread."""
        if phase == "stop" and info["generation"] == OLDEST - 1:
            self._counted += 1
            if self._counted == MANY:
                self._reactor.callFromThread(self._freeze)

    def _freeze(self) -> None:
        self._counted = 0
        if self._count in gc.callbacks:
            gc.collect()
            gc.freeze()


def assemble(
    reactor: Any, settings: Settings, sockets: Sequence[Descriptor], observer: LineObserver
) -> Serving:
    """Assemble what runs in this process: the projects, webhooks, and the site that answers for both."""
    projects = [ProjectPart(reactor, project) for project in settings.projects]
    webhooks = LateWebhooks(reactor, settings)

    def site(metrics: RequestMetrics) -> DrainableSite:
        from dataapi.web.app import make_site  # noqa: PLC0415 - imported by the projects' start

        observe = request_observer(metrics, settings.log_level, observer.put)
        made = make_site(
            [project.apis.backend for project in projects if project.apis is not None],
            reactor,
            observe,
            webhooks=webhooks,
            max_bodies=settings.max_bodies,
            max_connections=settings.max_connections,
        )
        made.noisy = False
        return made

    return Serving(reactor, projects, sockets, site, webhooks, ShortCollections(reactor))
