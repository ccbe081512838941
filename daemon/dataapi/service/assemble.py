"""The service tree, assembled in one readable place: what is made, of what, and for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dataapi.logs import LineObserver
from dataapi.metrics import RequestFigures
from dataapi.requestlog import request_observer
from dataapi.service.garbage import Garbage
from dataapi.service.listening import Descriptor
from dataapi.service.project import ProjectPart
from dataapi.service.root import Front
from dataapi.service.serving import DrainableSite, Serving
from dataapi.service.webhooks import WebhooksPart
from dataapi.service.workers import Workers
from dataapi.settings import Settings
from dataapi.web.app import make_site


def serving(
    reactor: Any, settings: Settings, sockets: Sequence[Descriptor], observer: LineObserver
) -> Serving:
    """Make what works in this process: pools, catalogs, gates and engines behind one site, and webhooks."""
    projects = [ProjectPart(reactor, project) for project in settings.projects]
    backends = [project.backend for project in projects]
    webhooks = WebhooksPart(reactor, settings)

    def site(figures: RequestFigures) -> DrainableSite:
        observe = request_observer(figures, settings.log_level, observer.put)
        made = make_site(
            backends,
            reactor,
            observe,
            webhooks=webhooks.api,
            max_bodies=settings.max_bodies,
            max_connections=settings.max_connections,
        )
        made.noisy = False
        return made

    return Serving(reactor, projects, sockets, site, webhooks, Garbage(reactor))


def front(
    reactor: Any,
    settings: Settings,
    sockets: Sequence[Descriptor],
    observer: LineObserver,
    environ: Mapping[str, str],
) -> Front:
    """Make what answers the public sockets: this process, or workers that each do what it would."""
    if settings.workers == 1:
        return serving(reactor, settings, sockets, observer)
    return Workers(reactor, settings, sockets, observer.write, environ)
