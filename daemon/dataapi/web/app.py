"""Assembles the HTTP interface: the routes of every area, and the site that serves them."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from klein import Klein

from dataapi.web import graphql, rest
from dataapi.web.backend import Backend, Backends
from dataapi.web.front import Front, Observe
from dataapi.web.routing import Routes
from dataapi.web.site import ApiSite


def make_app() -> Klein:
    """Return an application with the routes of every area."""
    app = Klein()
    graphql.declare(app)
    rest.declare(app)
    return app


def make_site(
    backends: Sequence[Backend],
    reactor: Any,
    observe: Observe,
    *,
    now: Callable[[], float] = time.time,
    ids: Callable[[], str] | None = None,
) -> ApiSite:
    """Return the factory of the public sockets.

    :param observe: is told of every request that was answered; logs and metrics hang here.
    :param now: Unix seconds, for the ``Date`` header.
    :param ids: makes the id of a request that brings none; by default unique to this process.
    """
    front = Front(Routes(make_app()), Backends(backends), observe, time.perf_counter, ids or _counted_ids())
    return ApiSite(front, reactor, now)


def _counted_ids() -> Callable[[], str]:
    """Count on from a random start: unique without asking the system for randomness each time."""
    process = os.urandom(6).hex()
    numbers = itertools.count(1)
    return lambda: f"{process}-{next(numbers):x}"
