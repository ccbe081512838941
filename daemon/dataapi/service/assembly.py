"""Assembles a process: its projects, the site that answers for them, and webhooks, which are loaded late."""

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
from dataapi.webhooks.management.errors import ErrorCode, ManagementError

if TYPE_CHECKING:
    from dataapi.http.messages import Reply, Request
    from dataapi.service.webhooks import WebhooksPart
    from dataapi.web.server.site import ApiSite


OFF = "Webhooks are off: the configuration has no section [webhooks]"


class LazyWebhooks:
    """Webhooks that are imported once the APIs answer, if the configuration turns them on.

    Its imports and the event catalogue take a third as long as all the rest of a start.

    :param retries: whether this process tries to make the schema again after a refusal; others wait for it.
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
    def on(self) -> bool:
        """Whether the configuration turns them on."""
        return self._settings.webhooks is not None

    @property
    def portal_origins(self) -> tuple[str, ...]:
        """The origins whose pages may frame the page for customers."""
        return self._settings.webhooks.portal_origins if self._settings.webhooks is not None else ()

    async def start(self) -> None:
        """Begin, or find that the database is unavailable."""
        if not self.on:
            return
        make = await deferToThread(_webhooks_part)
        if self.on:  # they may have been turned off meanwhile
            self._part = part = make(
                self._reactor, self._settings, self._tracing, self._part, retries=self._retries
            )
            await part.start()

    async def configure(self, settings: Settings) -> None:
        """Go on with other settings; attempts under way end by the old ones."""
        before, self._settings = self._settings, settings
        if _of_webhooks(before) != _of_webhooks(settings):
            if self._part is not None:
                self._background.spawn(_end_webhooks(self._part))
            if not self.on:
                self._part = None
            await self.start()

    async def drain(self, seconds: float) -> None:
        """Deliver nothing more; returns when no attempt is under way, or after ``seconds``."""
        if self._part:
            await self._part.drain(seconds)

    async def stop(self) -> None:
        """Close every connection."""
        self._background.cancel()
        if self._part:
            await self._part.stop()

    async def check(self) -> None:
        """Ask the database at once whether it answers; ``state`` has the result."""
        if self._part:
            await self._part.check()

    def state(self) -> WebhooksState | None:
        """Return whether they work, None if they are off."""
        if not self.on:
            return None
        return self._part.state() if self._part else WebhooksState(False, False, "webhooks are starting")

    async def snapshot(self) -> Snapshot:
        """Take their metrics."""
        return await self._part.snapshot() if self._part else {}

    async def answer(self, request: Request, path: str, places: Mapping[str, str]) -> Reply:
        """Answer a request to the management API; raises ``ApiError``, 503 before the start, 404 if off."""
        if not self.on:
            raise ManagementError(ErrorCode.NOT_FOUND, OFF)
        if self._part is None:
            raise ManagementError(
                ErrorCode.UNAVAILABLE, "Webhooks are starting", headers=(("Retry-After", "1"),)
            )
        return await self._part.api.answer(request, path, places)


def _of_webhooks(settings: Settings) -> tuple[object, ...] | None:
    """Return what webhooks are made from, None if they are off."""
    if settings.webhooks is None:
        return None
    first = settings.projects[0]
    how = (first.db_prepared_statements, first.db_channel_enabled)
    return settings.webhooks, first.db_uri, *how, first.db_pool_max_idletime, first.db_pool_max_lifetime


async def _end_webhooks(part: WebhooksPart) -> None:
    """Let attempts under way end, and close every connection."""
    try:
        await part.drain(GRACE)
    finally:
        await part.stop()


def _webhooks_part() -> type[WebhooksPart]:
    from dataapi.service.webhooks import WebhooksPart  # noqa: PLC0415 - see ``LazyWebhooks``

    return WebhooksPart


class ProcessAssembly:
    """Makes the parts of a process that serves a configuration.

    :param webhooks: answers the management API.
    :param reconfigure: asks for settings to be read again.
    """

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
        """Make the part of a project; it knows of the same servers what an earlier one knew."""
        where = settings.ref, settings.db_uri, settings.db_read_uri
        before = self._successions.get(where)
        part = ProjectPart(self._reactor, settings, self._reconfigure, self._vitals, before and before.copy())
        self._successions[where] = part.succession
        return part

    def site(self, projects: Sequence[ProjectPart], requests: RequestMetrics) -> ApiSite:
        """Make the factory of the public sockets."""
        from dataapi.web.app import make_site  # noqa: PLC0415 - imported by the projects' start

        alone = self._settings.workers == 1
        site = make_site((), self._reactor, webhooks=self._webhooks, receivers=alone)
        self.configure(self._settings, site, projects, requests)
        return site

    def configure(
        self, settings: Settings, site: ApiSite, projects: Sequence[ProjectPart], requests: RequestMetrics
    ) -> None:
        """Have the site serve these projects by these settings."""
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
    """Assemble what runs in this process: the projects, webhooks, and the site that answers for both.

    :param reconfigure: asks for settings to be read again.
    :param vitals: of a worker, which learns from its parent of the others.
    :param number: of a worker; the first one tries again what webhooks were refused.
    """
    tracing = tracing_of(os.environ)
    webhooks = LazyWebhooks(reactor, settings, tracing, retries=number == 1)
    vitals = vitals or Vitals()
    vitals.webhooks = webhooks.state
    assembly = ProcessAssembly(reactor, settings, observer, webhooks, reconfigure, tracing, vitals)
    collections = ShortCollections(reactor)
    return Process(reactor, settings.projects, sockets, assembly, webhooks, collections, tracing)
