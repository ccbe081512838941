"""Assembles the HTTP interface: the routes of every area, and the site that serves them."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from klein import Klein

from dataapi.web import graphql, management, rest
from dataapi.web.backend import Backend, Backends, Management
from dataapi.web.front import Front, Observe
from dataapi.web.routing import Routes
from dataapi.web.site import ApiSite


def make_app(webhooks: Management | None = None) -> Klein:
    """Return an application with the routes of every area."""
    app = Klein()
    graphql.declare(app)
    rest.declare(app)
    if webhooks is not None:
        management.declare(app, webhooks)
    return app


def make_site(
    backends: Sequence[Backend],
    reactor: Any,
    observe: Observe,
    *,
    webhooks: Management | None = None,
    now: Callable[[], float] = time.time,
    ids: Callable[[], str] | None = None,
    max_bodies: int = sys.maxsize,
    max_connections: int = sys.maxsize,
) -> ApiSite:
    """Return the factory of the public sockets.

    :param observe: is told of every request that was answered; logs and metrics hang here.
    :param webhooks: answers the management API; without it its paths lead nowhere.
    :param now: Unix seconds, for the ``Date`` header.
    :param ids: makes the id of a request that brings none; by default unique to this process.
    :param max_bodies: bytes that the bodies of all requests may hold together.
    :param max_connections: connections on which requests are answered.
    """
    routes = Routes(make_app(webhooks))
    front = Front(routes, Backends(backends), observe, time.perf_counter, ids or _counted_ids())
    return ApiSite(front, reactor, now, max_bodies=max_bodies, max_connections=max_connections)


def _counted_ids() -> Callable[[], str]:
    """Count on from a random start: unique without asking the system for randomness each time."""
    process = os.urandom(6).hex()
    numbers = itertools.count(1)
    return lambda: f"{process}-{next(numbers):x}"
