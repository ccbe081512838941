"""Closes the connections of a pool that are unused, old or unresponsive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet import task
from twisted.logger import Logger

from dataapi.concurrency.tasks import concurrently
from dataapi.database.address import server_key
from dataapi.database.connection import Connection, ConnectionFailed, ServerUnresponsive

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence

    from dataapi.concurrency.tasks import Background
    from dataapi.database.session import Session, SessionOptions

_SHORTEST_WAIT, _LONGEST_WAIT = 0.02, 60.0
_CHECKS_PER_LIMIT = 10
"""Number of checks within the idle timeout or the lifetime, whichever is shorter."""


class Ageing:
    """Closes a pool's connections that have been unused for too long, except one, and replaces old ones.

    Old connections are replaced one at a time, so that others remain available.

    :param replace: closes an old connection when another connection is available.
    """

    def __init__(
        self,
        clock: Any,
        options: SessionOptions,
        sessions: Collection[Session],
        idle: Sequence[Session],
        discard: Callable[[Session], None],
        replace: Callable[[Session], None],
    ) -> None:
        self._clock = clock
        self._options = options
        self._sessions = sessions
        self._idle = idle
        self._discard = discard
        self._replace = replace
        self._unused: dict[Session, tuple[int, float]] = {}

    async def watch(self) -> None:
        limits = [limit for limit in (self._options.idle_time, self._options.lifetime) if limit is not None]
        if not limits:
            return
        wait = min(max(min(limits) / _CHECKS_PER_LIMIT, _SHORTEST_WAIT), _LONGEST_WAIT)
        while True:
            await task.deferLater(self._clock, wait)
            self.check()

    def check(self) -> None:
        now = self._clock.seconds()
        self._unused = {session: self._since(session, now) for session in self._sessions}
        for session in self._expired_idle(now):
            if len(self._sessions) > 1:
                self._discard(session)
        oldest = min(self._sessions, key=lambda session: session.opened, default=None)
        lifetime = self._options.lifetime
        if oldest is not None and lifetime is not None and now - oldest.opened >= lifetime:
            self._replace(oldest)

    def _since(self, session: Session, now: float) -> tuple[int, float]:
        """Return the number of uses of a connection, and the time when that number was first seen."""
        previous = self._unused.get(session)
        return previous if previous is not None and previous[0] == session.uses else (session.uses, now)

    def _expired_idle(self, now: float) -> list[Session]:
        limit = self._options.idle_time
        if limit is None:
            return []
        return [session for session in self._idle if now - self._unused[session][1] >= limit]


CHECK_INTERVAL = 10.0
"""Seconds without a response after which a connection is probed."""

PROBE_TIMEOUT = 10.0
"""Seconds to wait for the response to a probe."""

READY_TIMEOUT = 2.0
"""Seconds within which the database must respond to count as ready."""


class Liveness:
    """Replaces unresponsive connections of a pool.

    Messages have no timeout that would detect an unresponsive server. Only connections without recent
    responses are probed.

    :param discard: closes a connection, to make room for a new one.
    :ivar silent: whether the database failed to respond to the last probe.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        background: Background,
        sessions: Collection[Session],
        idle: list[Session],
        release: Callable[[Session], None],
        discard: Callable[[Session], None],
    ) -> None:
        self._reactor = reactor
        self._background = background
        self._sessions = sessions
        self._idle = idle
        self._release = release
        self._discard = discard
        self._seen: dict[Session, int] = {}
        self.silent = False

    async def watch(self) -> None:
        while True:
            await task.deferLater(self._reactor, CHECK_INTERVAL)
            await self.probe_quiet()

    async def probe_quiet(self) -> None:
        """Probe connections without responses since the last call, and replace the unresponsive ones."""
        quiet = [
            session for session in self._sessions if self._seen.get(session) == session.connection.responses
        ]
        if any(session in self._seen and session not in quiet for session in self._sessions):
            # Connections in use are not probed, so only their responses show that the database is back.
            self.silent = False
        self._seen = {session: session.connection.responses for session in self._sessions}
        probes: list[Coroutine[Any, Any, object]] = [
            self._probe(session, PROBE_TIMEOUT) for session in quiet if session in self._idle
        ]
        if stuck := [session for session in quiet if session.connection.busy]:
            probes.append(self._probe_separately(stuck))
        await concurrently(probes)

    async def check(self) -> None:
        """Check now whether the database responds, and set ``silent``."""
        if self._idle:
            alive = await self._probe(self._idle[-1], READY_TIMEOUT)
        elif self._sessions:
            session = next(iter(self._sessions))
            alive = await responds(self._reactor, session.connection.server, READY_TIMEOUT)
            if alive or session in self._sessions:
                self._record(alive)
        else:
            return
        if not alive:
            for session in tuple(self._idle):
                self._background.spawn(self._probe_quietly(session))

    async def _probe_quietly(self, session: Session) -> None:
        if session in self._idle:
            await self._probe(session, PROBE_TIMEOUT)

    async def _probe(self, session: Session, seconds: float) -> bool:
        self._idle.remove(session)
        alive = await session.connection.is_alive(seconds)
        if session.connection.lost:
            return False
        if alive:
            self._release(session)
            if self._idle and self._idle[-1] is session:
                # ``_release`` has appended the session, so the pool would use it first.
                self._idle.insert(0, self._idle.pop())
        else:
            self._replace(session)
        return self._record(alive)

    async def _probe_separately(self, stuck: list[Session]) -> None:
        by_server: dict[tuple[str | None, ...], list[Session]] = {}
        for session in stuck:
            by_server.setdefault(server_key(session.connection.server), []).append(session)
        for sessions in by_server.values():
            alive = await responds(self._reactor, sessions[0].connection.server, PROBE_TIMEOUT)
            unchanged = [
                session for session in sessions if self._seen.get(session) == session.connection.responses
            ]
            waiting = [session for session in unchanged if session.connection.busy]
            # A server that is no longer used does not affect ``silent``.
            if alive or waiting:
                self._record(alive)
            if not alive:
                for session in waiting:
                    self._replace(session)

    def _replace(self, session: Session) -> None:
        self._log.warn("replacing a database connection, because its server does not respond")
        self._discard(session)

    def _record(self, alive: bool) -> bool:
        self.silent = not alive
        return alive


async def responds(reactor: Any, server: dict[str, str], seconds: float) -> bool:
    connection = Connection(reactor)
    try:
        await connection.open(server, seconds)
    except ServerUnresponsive:
        return False
    except ConnectionFailed:
        return True
    else:
        return await connection.is_alive(seconds)
    finally:
        connection.close()
