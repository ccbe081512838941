"""What one process does: its projects, and the site that answers for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.logger import Logger

from dataapi.errors import ApiError
from dataapi.metrics import RequestFigures, Snapshot, merge
from dataapi.service.acceptor import Acceptor
from dataapi.service.garbage import Garbage
from dataapi.service.listening import Descriptor, accept
from dataapi.service.state import ProjectState, Reloaded, State, WebhooksState

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

    async def check(self) -> None:
        """Find out at once whether the database answers, for ``state`` to tell."""

    def state(self) -> ProjectState:
        """Tell whether requests can be answered."""

    def snapshot(self) -> Snapshot:
        """Take its figures."""


class Beside(Protocol):
    """Webhooks while the daemon runs, which the APIs do not need."""

    async def start(self) -> None:
        """Begin, or find that the database is away."""

    async def drain(self, seconds: float) -> None:
        """Deliver nothing more; returns when no attempt is under way, or after ``seconds``."""

    async def stop(self) -> None:
        """Close every connection."""

    async def check(self) -> None:
        """Find out at once whether the database answers, for ``state`` to tell."""

    def state(self) -> WebhooksState:
        """Tell how they stand."""

    async def snapshot(self) -> Snapshot:
        """Take their figures."""


class DrainableSite(Protocol):
    """The factory of the public sockets."""

    in_flight: int

    def drain(self, seconds: float) -> Deferred[None]:
        """Close idle connections; fires when no request is in flight, or after ``seconds``."""


class Serving:
    """Answers requests in this process.

    :param make_site: makes the factory of the sockets; gets what counts requests.
    :param webhooks: started and stopped together with the projects.
    :param garbage: started once everything is there that stays.
    """

    def __init__(
        self,
        reactor: Any,
        parts: Sequence[Part],
        sockets: Sequence[Descriptor],
        make_site: Callable[[RequestFigures], DrainableSite],
        webhooks: Beside | None = None,
        garbage: Garbage | None = None,
    ) -> None:
        self._garbage = garbage
        self._reactor = reactor
        self._webhooks = webhooks
        self._parts = parts
        self._sockets = sockets
        self._requests = RequestFigures()
        self._site = make_site(self._requests)
        self._accepting: list[Acceptor] = []
        self._starting = True
        self._draining = False

    async def start(self) -> None:
        """Start every project and webhooks, then accept requests."""
        starting = [Deferred.fromCoroutine(part.start()) for part in self._parts]
        if self._webhooks:
            starting.append(Deferred.fromCoroutine(self._webhooks.start()))
        await gatherResults(starting)
        if self._garbage:
            self._garbage.start()
        self._accepting = [accept(self._reactor, bound, self._site) for bound in self._sockets]
        self._starting = False

    async def stop(self) -> None:
        """Accept no more, finish what is in flight (for ``GRACE`` seconds), then stop the projects."""
        self._draining = True
        for accepting in self._accepting:
            accepting.stop()
        ending = [self._site.drain(GRACE)]
        if self._webhooks:
            ending.append(Deferred.fromCoroutine(self._webhooks.drain(GRACE)))
        await gatherResults(ending)
        if self._webhooks:
            await self._webhooks.stop()
        for part in self._parts:
            await part.stop()
        if self._garbage:
            self._garbage.stop()

    async def state(self) -> State:
        """Tell whether requests can be answered, having asked the databases."""
        checking = [part.check() for part in self._parts]
        if self._webhooks:
            checking.append(self._webhooks.check())
        await gatherResults([Deferred.fromCoroutine(each) for each in checking])
        return self.known()

    def known(self) -> State:
        """Tell whether requests can be answered, as far as is known without asking anybody."""
        projects = tuple(part.state() for part in self._parts)
        webhooks = self._webhooks.state() if self._webhooks else None
        return State(projects, self._starting, self._draining, webhooks=webhooks)

    async def snapshot(self) -> Snapshot:
        """Take the figures of requests, projects and webhooks."""
        in_flight: Snapshot = {"dataapi_requests_in_flight": {(): float(self._site.in_flight)}}
        webhooks = await self._webhooks.snapshot() if self._webhooks else {}
        projects = [part.snapshot() for part in self._parts]
        return merge([self._requests.snapshot(), in_flight, *projects, webhooks])

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
