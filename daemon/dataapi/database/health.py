"""When a pool gives up connections: unused ones, old ones, and those whose server does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet import task
from twisted.logger import Logger

from dataapi.concurrency.tasks import concurrently
from dataapi.database.address import server_key
from dataapi.database.connection import Connection, ConnectionDied, ServerSilent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence

    from dataapi.concurrency.tasks import Background
    from dataapi.database.session import Session, SessionOptions

_SHORTEST_WAIT, _LONGEST_WAIT = 0.02, 60.0
_LOOKS = 10
"""How often one looks within the shorter of the two times."""


class Ageing:
    """Closes the connections of a pool that are unused for long, but for one, and replaces old ones.

    Old ones go one at a time, so that there are others meanwhile.

    :param sessions: all of the pool's connections, ``idle`` those of them that are free.
    :param discard: closes a free connection, ``replace`` an old one as soon as there is another.
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
        """Look after the connections until it is cancelled."""
        limits = [limit for limit in (self._options.idle_time, self._options.lifetime) if limit is not None]
        if not limits:
            return
        wait = min(max(min(limits) / _LOOKS, _SHORTEST_WAIT), _LONGEST_WAIT)
        while True:
            await task.deferLater(self._clock, wait)
            self.look()

    def look(self) -> None:
        """Give up connections that are unused or old by now."""
        now = self._clock.seconds()
        self._unused = {session: self._since(session, now) for session in self._sessions}
        for session in self._unneeded(now):
            if len(self._sessions) > 1:
                self._discard(session)
        oldest = min(self._sessions, key=lambda session: session.opened, default=None)
        lifetime = self._options.lifetime
        if oldest is not None and lifetime is not None and now - oldest.opened >= lifetime:
            self._replace(oldest)

    def _since(self, session: Session, now: float) -> tuple[int, float]:
        """Return how often a connection was used, and since when it was seen not to be used again."""
        seen = self._unused.get(session)
        return seen if seen is not None and seen[0] == session.uses else (session.uses, now)

    def _unneeded(self, now: float) -> list[Session]:
        limit = self._options.idle_time
        if limit is None:
            return []
        return [session for session in self._idle if now - self._unused[session][1] >= limit]


CHECK_INTERVAL = 10.0
"""Seconds after which a connection that has not answered anything is asked whether it still does."""

WITHIN = 10.0
"""Seconds that it may take to answer."""

READY_WITHIN = 2.0
"""Seconds that a database which is ready may take to answer."""


class Liveness:
    """Replaces the connections of a pool whose server does not answer.

    Messages are not timed for it: a server that answers is alive, so that only quiet connections are asked.

    :param sessions: all of the pool's connections, ``idle`` those of them that are free.
    :param release: takes a connection back, ``discard`` closes it and lets another take its place.
    :ivar silent: whether the database did not answer when it was asked last.
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
        """Look after the connections until it is cancelled."""
        while True:
            await task.deferLater(self._reactor, CHECK_INTERVAL)
            await self.look()

    async def look(self) -> None:
        """Ask those that have answered nothing since the last look, and replace those that still do not."""
        quiet = [one for one in self._sessions if self._seen.get(one) == one.connection.answers]
        if any(one in self._seen and one not in quiet for one in self._sessions):
            # Connections in use are not asked, so that nothing else would show it.
            self.silent = False
        self._seen = {one: one.connection.answers for one in self._sessions}
        asking: list[Coroutine[Any, Any, object]] = [
            self._probe(one, WITHIN) for one in quiet if one in self._idle
        ]
        if stuck := [one for one in quiet if one.connection.busy]:
            asking.append(self._look_beside(stuck))
        await concurrently(asking)

    async def check(self) -> None:
        """Find out at once whether the database answers, and set ``silent``."""
        if self._idle:
            alive = await self._probe(self._idle[-1], READY_WITHIN)
        elif self._sessions:
            session = next(iter(self._sessions))
            alive = await answers(self._reactor, session.connection.place, READY_WITHIN)
            if alive or session in self._sessions:
                self._found(alive)
        else:
            return
        if not alive:
            for session in tuple(self._idle):
                self._background.spawn(self._probe_quietly(session))

    async def _probe_quietly(self, session: Session) -> None:
        if session in self._idle:
            await self._probe(session, WITHIN)

    async def _probe(self, session: Session, seconds: float) -> bool:
        """Ask a connection that is idle; return whether it answered."""
        self._idle.remove(session)
        alive = await session.connection.answered(seconds)
        if session.connection.lost:
            return False
        if alive:
            self._release(session)
            if self._idle and self._idle[-1] is session:
                # It was asked and not used: those in use go on before it.
                self._idle.insert(0, self._idle.pop())
        else:
            self._replace(session)
        return self._found(alive)

    async def _look_beside(self, stuck: list[Session]) -> None:
        """Give up statements whose server does not answer over another connection either."""
        by_place: dict[tuple[str | None, ...], list[Session]] = {}
        for session in stuck:
            by_place.setdefault(server_key(session.connection.place), []).append(session)
        for sessions in by_place.values():
            alive = await answers(self._reactor, sessions[0].connection.place, WITHIN)
            still = [one for one in sessions if self._seen.get(one) == one.connection.answers]
            waiting = [one for one in still if one.connection.busy]
            # The silence of a server that was left meanwhile says nothing of the one in use.
            if alive or waiting:
                self._found(alive)
            if not alive:
                for session in waiting:
                    self._replace(session)

    def _replace(self, session: Session) -> None:
        self._log.warn("a database connection is replaced: its server does not answer")
        self._discard(session)

    def _found(self, alive: bool) -> bool:
        self.silent = not alive
        return alive


async def answers(reactor: Any, place: dict[str, str], seconds: float) -> bool:
    """Return whether the server at a place answers, be it by refusing the connection."""
    connection = Connection(reactor)
    try:
        await connection.open(place, seconds)
    except ServerSilent:
        return False
    except ConnectionDied:
        return True
    else:
        return await connection.answered(seconds)
    finally:
        connection.close()
