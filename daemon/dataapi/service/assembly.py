"""Creates the components of a process: projects, the site, and webhooks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.threads import deferToThread

from dataapi.concurrency.tasks import Background
from dataapi.database.succession import Succession
from dataapi.service.garbage_collection import ShortCollections
from dataapi.service.process import GRACE, Process
from dataapi.service.project import ProjectPart
from dataapi.service.settings_sources import Reconfigure
from dataapi.service.sockets import Descriptor
from dataapi.settings import Project, Settings
from dataapi.telemetry.logs import LineObserver
from dataapi.telemetry.metrics import Snapshot
from dataapi.telemetry.readiness import WebhooksState
from dataapi.telemetry.requests import RequestMetrics, request_observer
from dataapi.telemetry.tracing import Tracing, tracing_of
from dataapi.telemetry.vitals import Vitals

if TYPE_CHECKING:
    from dataapi.http.messages import Reply, Request
    from dataapi.service.webhooks import WebhooksPart
    from dataapi.web.server.site import ApiSite


WEBHOOKS_DISABLED = "Webhooks are off: the configuration has no section [webhooks]"


class LazyWebhooks:
    """Webhooks, imported after the APIs have started if the configuration enables webhooks.

    Importing the code and loading the event catalogue takes a third as long as the rest of startup.

    :param retries: whether to retry creating the schema if the role lacked the privilege. If false, later
        attempts only check whether the schema exists.
    """

    def __init__(
        self, reactor: Any, settings: Settings, tracing: Tracing | None = None, *, retries: bool = True
    ) -> None:
        self._tracing = tracing
        self._retries = retries
        self._reactor = reactor
        self._settings = settings
        self._background = Background()
        self._part: WebhooksPart | None = None

    @property
    def enabled(self) -> bool:
        return self._settings.webhooks is not None

    @property
    def portal_origins(self) -> tuple[str, ...]:
        return self._settings.webhooks.portal_origins if self._settings.webhooks is not None else ()

    async def start(self) -> None:
        if not self.enabled:
            return
        make = await deferToThread(_webhooks_part)
        if self.enabled:  # a reload may have disabled webhooks in the meantime
            self._part = part = make(
                self._reactor, self._settings, self._tracing, self._part, retries=self._retries
            )
            await part.start()

    async def configure(self, settings: Settings) -> None:
        previous, self._settings = self._settings, settings
        if _webhooks_inputs(previous) != _webhooks_inputs(settings):
            if self._part is not None:
                self._background.spawn(_stop_replaced(self._part))
            if not self.enabled:
                self._part = None
            await self.start()

    async def drain(self, seconds: float) -> None:
        if self._part:
            await self._part.drain(seconds)

    async def stop(self) -> None:
        self._background.cancel()
        if self._part:
            await self._part.stop()

    async def check(self) -> None:
        if self._part:
            await self._part.check()

    def state(self) -> WebhooksState | None:
        if not self.enabled:
            return None
        return self._part.state() if self._part else WebhooksState(False, False, "webhooks are starting")

    async def snapshot(self) -> Snapshot:
        return await self._part.snapshot() if self._part else {}

    async def handle(self, request: Request, path: str, parameters: Mapping[str, str]) -> Reply:
        """Handle a request to the management API.

        :raises ApiError: 404 if webhooks are disabled, 503 until they have started.
        """
        from dataapi.webhooks.management.errors import ErrorCode, ManagementError  # noqa: PLC0415 - if enabled

        if not self.enabled:
            raise ManagementError(ErrorCode.NOT_FOUND, WEBHOOKS_DISABLED)
        if self._part is None:
            raise ManagementError(
                ErrorCode.UNAVAILABLE, "Webhooks are starting", headers=(("Retry-After", "1"),)
            )
        return await self._part.api.handle(request, path, parameters)


def _webhooks_inputs(settings: Settings) -> tuple[object, ...] | None:
    """Return all settings that webhooks depend on, or None if webhooks are disabled."""
    if settings.webhooks is None:
        return None
    first = settings.projects[0]
    connection_settings = (first.db_prepared_statements, first.db_channel_enabled)
    return (
        settings.webhooks,
        settings.notify,
        first.db_uri,
        *connection_settings,
        first.db_pool_max_idletime,
        first.db_pool_max_lifetime,
    )


async def _stop_replaced(part: WebhooksPart) -> None:
    try:
        await part.drain(GRACE)
    finally:
        await part.stop()


def _webhooks_part() -> type[WebhooksPart]:
    from dataapi.service.webhooks import WebhooksPart  # noqa: PLC0415 - see ``LazyWebhooks``

    return WebhooksPart


class ProcessAssembly:
    """Creates the components of a process from the configuration."""

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        observer: LineObserver,
        webhooks: LazyWebhooks,
        reconfigure: Reconfigure,
        tracing: Tracing | None,
        vitals: Vitals,
    ) -> None:
        self._tracing = tracing
        self._reactor = reactor
        self._settings = settings
        self._observer = observer
        self._webhooks = webhooks
        self._reconfigure = reconfigure
        self._vitals = vitals
        self._successions: dict[tuple[str | None, ...], Succession] = {}

    def project(self, settings: Project) -> ProjectPart:
        """Create a project. If its servers are unchanged, it remembers which of them was promoted last."""
        servers = settings.ref, settings.db_uri, settings.db_read_uri
        previous = self._successions.get(servers)
        part = ProjectPart(
            self._reactor,
            settings,
            self._reconfigure,
            self._vitals,
            previous and previous.copy(),
            self._settings.mcp_writes if self._settings.mcp else None,
        )
        self._successions[servers] = part.succession
        return part

    def site(self, projects: Sequence[ProjectPart], requests: RequestMetrics) -> ApiSite:
        from dataapi.web.app import make_site  # noqa: PLC0415 - imported by the projects' start

        single_process = self._settings.workers == 1
        site = make_site(
            (), self._reactor, webhooks=self._webhooks, receivers=single_process, settings=self._settings
        )
        self.configure(self._settings, site, projects, requests)
        return site

    def configure(
        self, settings: Settings, site: ApiSite, projects: Sequence[ProjectPart], requests: RequestMetrics
    ) -> None:
        self._observer.configure(settings)
        site.configure(
            [project.apis.backend for project in projects if project.apis is not None],
            request_observer(
                requests,
                settings.log_level,
                self._observer.put,
                subjects=settings.log_subject,
                slow=self._vitals.slow,
                trace=self._tracing.request if self._tracing else None,
            ),
            settings,
        )


def assemble(
    reactor: Any,
    settings: Settings,
    sockets: Sequence[Descriptor],
    observer: LineObserver,
    reconfigure: Reconfigure,
    vitals: Vitals | None = None,
    number: int = 1,
) -> Process:
    """Create the components of this process: projects, webhooks, and the site that serves both.

    :param vitals: receives the state of all workers from the parent. None for a single process.
    :param number: number of a worker. Only worker 1 retries creating the schema of webhooks.
    """
    tracing = tracing_of(os.environ)
    webhooks = LazyWebhooks(reactor, settings, tracing, retries=number == 1)
    vitals = vitals or Vitals()
    vitals.webhooks = webhooks.state
    assembly = ProcessAssembly(reactor, settings, observer, webhooks, reconfigure, tracing, vitals)
    collections = ShortCollections(reactor)
    return Process(reactor, settings.projects, sockets, assembly, webhooks, collections, tracing)
