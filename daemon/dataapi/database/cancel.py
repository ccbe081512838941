"""Cancelling statements whose callers are gone, without ever blocking the reactor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from twisted.internet import defer

from dataapi.database.address import server_key
from dataapi.database.connection import Connection, ConnectionDied, ServerSilent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twisted.internet.interfaces import IReactorTime

CANCEL_WAITS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds that a statement gets to end after each cancel request.

A request that comes before the server has read the statement is lost, so it is repeated.
"""

ANSWER_TIMEOUT = 5.0
"""Seconds that the server may take to answer a request to cancel."""

LAST_WAIT = 1.0
"""Seconds for the requests to cancel what still runs when a pool is closed."""

_NO_ANSWER = "requests to cancel are not answered"


class Canceller(Protocol):
    """A way to end the statement that runs on a connection."""

    async def cancel(self, connection: Connection) -> None:
        """Ask to end the statement; returns when the request can hit no later one.

        Raises ``ConnectionDied`` when it is not known what became of the request.
        """

    async def terminate(self, connection: Connection) -> None:
        """End the whole server process of a connection whose statement does not end."""

    def close(self) -> None:
        """Close the canceller's connections."""


async def end_statement(canceller: Canceller, connection: Connection, clock: IReactorTime) -> bool:
    """Ask to end the running statement until it has ended and the request is answered.

    Returns False when it did not end and its process is terminated instead.  Raises ``ConnectionDied``
    when it is not known what became of a request.
    """
    for wait in CANCEL_WAITS:
        await canceller.cancel(connection)
        try:
            await connection.ended().addTimeout(wait, clock)
        except defer.TimeoutError:
            continue
        return True
    await canceller.terminate(connection)
    return False


async def cancelled(canceller: Canceller, connections: Iterable[Connection], clock: IReactorTime) -> bool:
    """Ask once to end statements on connections that are to be closed, which does not end them.

    Returns False when not all requests were answered in time.
    """
    requests = [defer.Deferred.fromCoroutine(canceller.cancel(connection)) for connection in connections]
    try:
        await defer.DeferredList(requests, consumeErrors=True).addTimeout(LAST_WAIT, clock)
    except defer.TimeoutError:
        return False
    return True


class ControlConnection:
    """Ends statements by ``pg_cancel_backend`` over a connection of its own to each server.

    Those of a connection that leads to a pooler it leaves to ``ProtocolCancel``.
    """

    def __init__(self, reactor: Any) -> None:
        self._through_pooler = ProtocolCancel(reactor)
        self._reactor = reactor
        self._servers: dict[tuple[str | None, ...], _Server] = {}

    async def cancel(self, connection: Connection) -> None:
        """Ask the server to end the statement."""
        if connection.pooled:
            await self._through_pooler.cancel(connection)
        else:
            await self._server(connection).ask("select pg_catalog.pg_cancel_backend($1)", connection)

    async def terminate(self, connection: Connection) -> None:
        """Ask the server to end the connection's process."""
        if connection.pooled:
            await self._through_pooler.terminate(connection)
        else:
            await self._server(connection).ask("select pg_catalog.pg_terminate_backend($1)", connection)

    def close(self) -> None:
        """Close the control connections."""
        for server in self._servers.values():
            server.close()

    def _server(self, connection: Connection) -> _Server:
        """Return the server that runs the connection's statement: others have such a process, too."""
        place = connection.place
        return self._servers.setdefault(server_key(place), _Server(self._reactor, place))


class _Server:
    """The control connection to one server, for one request at a time."""

    def __init__(self, reactor: Any, place: dict[str, str]) -> None:
        self._reactor = reactor
        self._place = place
        self._lock = defer.DeferredLock()
        self._control: Connection | None = None
        self._failures = 0

    async def ask(self, text: str, connection: Connection) -> None:
        """Send a request about the statement that runs on a connection.

        Raises ``ConnectionDied`` when it is not answered; so do those that waited for their turn,
        instead of waiting for nothing one after the other.
        """
        failures = self._failures
        await self._lock.acquire()
        try:
            if self._failures != failures:
                raise ConnectionDied(_NO_ANSWER)
            # Meanwhile the statement may have ended by itself.
            if connection.busy:
                await self._send(text, connection.process())
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connection."""
        if self._control is not None:
            self._control.close()

    async def _send(self, text: str, pid: int) -> None:
        """Send the request, once more when the connection turns out to be dead: twice does no harm."""
        used_before = self._control is not None and not self._control.lost
        try:
            try:
                await self._send_once(text, pid)
            except ServerSilent:
                raise
            except ConnectionDied:
                if not used_before:
                    raise
                await self._send_once(text, pid)
        except ConnectionDied:
            self._failures += 1
            raise

    async def _send_once(self, text: str, pid: int) -> None:
        if self._control is None or self._control.lost:
            control = Connection(self._reactor)
            await control.open(self._place, ANSWER_TIMEOUT)
            self._control = control
        try:
            await self._control.query(text, (pid,)).addTimeout(ANSWER_TIMEOUT, self._reactor)
        except defer.TimeoutError:
            self.close()
            raise ServerSilent(_NO_ANSWER) from None
        except psycopg.Error as error:
            self.close()
            raise ConnectionDied(str(error).strip()) from error
        except defer.CancelledError:
            self.close()
            raise


class ProtocolCancel:
    """Ends statements by libpq's own cancel request, which passes through a pooler.

    A pooler shows process numbers of its own making, so ``pg_cancel_backend`` would end nothing, or
    something else.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    async def cancel(self, connection: Connection) -> None:
        """Send the cancel request and wait until the server has taken it."""
        if not connection.busy:
            return
        try:
            taken = await connection.cancel().addTimeout(ANSWER_TIMEOUT, self._reactor)
        except defer.TimeoutError:
            raise ServerSilent(_NO_ANSWER) from None
        except psycopg.Error as error:
            raise ConnectionDied(str(error).strip()) from error
        if not taken:
            raise ConnectionDied(_NO_ANSWER)

    async def terminate(self, connection: Connection) -> None:
        """Do nothing: through a pooler there is nothing stronger than to hang up."""

    def close(self) -> None:
        """Do nothing: every request has a connection of its own."""
