"""When a pool gives up connections that work: those that nobody needs, and those that are old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet import task

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

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
        """Give up what is unused or old by now."""
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
