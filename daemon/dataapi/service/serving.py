"""What one process does: its projects, and the site that answers for them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.logger import Logger

from dataapi.errors import ApiError
from dataapi.metrics import RequestFigures, Snapshot, merge
from dataapi.service.acceptor import Acceptor
from dataapi.service.listening import Descriptor, accept
from dataapi.service.state import ProjectState, Reloaded, State

_log = Logger(namespace="dataapi.service")
GRACE = 30.0
"""Seconds that requests in flight may take once the daemon stops."""


class Part(Protocol):
    """A project while the daemon runs."""

    ref: str

    async def start(self) -> None:
        """Connect and load the first catalog, or find that the database is away."""

    async def stop(self) -> None:
        """Let statements end and close every connection."""

    async def reload(self) -> int:
        """Read the catalog again and return its generation."""

    def state(self) -> ProjectState:
        """Tell whether requests can be answered."""

    def snapshot(self) -> Snapshot:
        """Take its figures."""


class DrainableSite(Protocol):
    """The factory of the public sockets."""

    in_flight: int

    def drain(self, seconds: float) -> Deferred[None]:
        """Close idle connections; fires when no request is in flight, or after ``seconds``."""


class Serving:
    """Answers requests in this process.

    :param make_site: makes the factory of the sockets; gets what counts requests.
    """

    def __init__(
        self,
        reactor: Any,
        parts: Sequence[Part],
        sockets: Sequence[Descriptor],
        make_site: Callable[[RequestFigures], DrainableSite],
    ) -> None:
        self._reactor = reactor
        self._parts = parts
        self._sockets = sockets
        self._requests = RequestFigures()
        self._site = make_site(self._requests)
        self._accepting: list[Acceptor] = []
        self._starting = True
        self._draining = False

    async def start(self) -> None:
        """Start every project, then accept requests."""
        await gatherResults([Deferred.fromCoroutine(part.start()) for part in self._parts])
        # What was made until now stays; left to the collector, walking it again and again would
        # hold up requests for tens of milliseconds on a large schema.
        gc.collect()
        gc.freeze()
        self._accepting = [accept(self._reactor, bound, self._site) for bound in self._sockets]
        self._starting = False

    async def stop(self) -> None:
        """Accept no more, finish the requests in flight (for ``GRACE`` seconds), then stop the projects."""
        self._draining = True
        for accepting in self._accepting:
            accepting.stop()
        await self._site.drain(GRACE)
        for part in self._parts:
            await part.stop()

    async def state(self) -> State:
        """Tell whether requests can be answered."""
        return State(tuple(part.state() for part in self._parts), self._starting, self._draining)

    async def snapshot(self) -> Snapshot:
        """Take the figures of requests and projects."""
        in_flight: Snapshot = {"dataapi_requests_in_flight": {(): float(self._site.in_flight)}}
        return merge([self._requests.snapshot(), in_flight, *(part.snapshot() for part in self._parts)])

    async def reload(self) -> Reloaded:
        """Read every project's catalog again, all at the same time."""
        reloading = {part.ref: Deferred.fromCoroutine(part.reload()) for part in self._parts}
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
