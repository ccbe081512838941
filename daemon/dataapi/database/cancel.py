"""Cancels statements whose callers have gone, without blocking the reactor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from twisted.internet import defer

from dataapi.database.address import server_key
from dataapi.database.connection import Connection, ConnectionFailed, ServerUnresponsive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twisted.internet.interfaces import IReactorTime

CANCEL_WAITS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds to wait for the statement to end after each cancel request.

A request that arrives before the server has read the statement has no effect, so requests are repeated.
"""

RESPONSE_TIMEOUT = 5.0
"""Seconds to wait for the server's response to a cancel request."""

SHUTDOWN_TIMEOUT = 1.0
"""Seconds to wait for cancel requests when a pool is closed."""

_NO_RESPONSE = "the server does not respond to cancel requests"


class Canceller(Protocol):
    """Cancels the statement that runs on a connection."""

    async def cancel(self, connection: Connection) -> None:
        """Request cancellation. Return when the request can no longer affect a later statement.

        :raises ConnectionFailed: if the outcome of the request is unknown.
        """

    async def terminate(self, connection: Connection) -> None:
        pass

    def close(self) -> None:
        pass


async def end_statement(canceller: Canceller, connection: Connection, clock: IReactorTime) -> bool:
    """Repeat cancel requests until the running statement ends.

    :return: False if it did not end, and its process was terminated instead.
    :raises ConnectionFailed: if the outcome of a request is unknown.
    """
    for wait in CANCEL_WAITS:
        await canceller.cancel(connection)
        try:
            await connection.when_idle().addTimeout(wait, clock)
        except defer.TimeoutError:
            continue
        return True
    await canceller.terminate(connection)
    return False


async def cancel_all(canceller: Canceller, connections: Iterable[Connection], clock: IReactorTime) -> bool:
    """Send one cancel request for each connection, because closing connections does not end statements.

    :return: False if the server did not respond to all requests in time.
    """
    requests = [defer.Deferred.fromCoroutine(canceller.cancel(connection)) for connection in connections]
    try:
        await defer.DeferredList(requests, consumeErrors=True).addTimeout(SHUTDOWN_TIMEOUT, clock)
    except defer.TimeoutError:
        return False
    return True


class ControlConnection:
    """Cancels statements with ``pg_cancel_backend``, over a separate connection to each server.

    Connections through a pooler use ``ProtocolCancel`` instead.
    """

    def __init__(self, reactor: Any) -> None:
        self._through_pooler = ProtocolCancel(reactor)
        self._reactor = reactor
        self._servers: dict[tuple[str | None, ...], _Server] = {}

    async def cancel(self, connection: Connection) -> None:
        if connection.pooled:
            await self._through_pooler.cancel(connection)
        else:
            await self._server(connection).request("select pg_catalog.pg_cancel_backend($1)", connection)

    async def terminate(self, connection: Connection) -> None:
        if connection.pooled:
            await self._through_pooler.terminate(connection)
        else:
            await self._server(connection).request("select pg_catalog.pg_terminate_backend($1)", connection)

    def close(self) -> None:
        for server in self._servers.values():
            server.close()

    # Each server has its own connection, because process IDs are not unique across servers.
    def _server(self, connection: Connection) -> _Server:
        parameters = connection.server
        return self._servers.setdefault(server_key(parameters), _Server(self._reactor, parameters))


class _Server:
    def __init__(self, reactor: Any, parameters: dict[str, str]) -> None:
        self._reactor = reactor
        self._parameters = parameters
        self._lock = defer.DeferredLock()
        self._control: Connection | None = None
        self._failures = 0

    async def request(self, text: str, connection: Connection) -> None:
        """Run a query that cancels or terminates the statement on a connection.

        :raises ConnectionFailed: if there is no response. Queued requests then also fail, instead of each
            waiting for a timeout.
        """
        failures = self._failures
        await self._lock.acquire()
        try:
            if self._failures != failures:
                raise ConnectionFailed(_NO_RESPONSE)
            # The statement may have ended in the meantime.
            if connection.busy:
                await self._send(text, connection.backend_pid())
        finally:
            self._lock.release()

    def close(self) -> None:
        if self._control is not None:
            self._control.close()

    async def _send(self, text: str, pid: int) -> None:
        """Send the request. If the connection was dead, repeat the request on a new connection."""
        is_reused = self._control is not None and not self._control.lost
        try:
            try:
                await self._send_once(text, pid)
            except ServerUnresponsive:
                raise
            except ConnectionFailed:
                if not is_reused:
                    raise
                await self._send_once(text, pid)
        except ConnectionFailed:
            self._failures += 1
            raise

    async def _send_once(self, text: str, pid: int) -> None:
        if self._control is None or self._control.lost:
            control = Connection(self._reactor)
            await control.open(self._parameters, RESPONSE_TIMEOUT)
            self._control = control
        try:
            await self._control.query(text, (pid,)).addTimeout(RESPONSE_TIMEOUT, self._reactor)
        except defer.TimeoutError:
            self.close()
            raise ServerUnresponsive(_NO_RESPONSE) from None
        except psycopg.Error as error:
            self.close()
            raise ConnectionFailed(str(error).strip()) from error
        except defer.CancelledError:
            self.close()
            raise


class ProtocolCancel:
    """Cancels statements with libpq's cancel request. Poolers forward it.

    Poolers report fake process IDs, so ``pg_cancel_backend`` would cancel nothing or the wrong statement.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    async def cancel(self, connection: Connection) -> None:
        if not connection.busy:
            return
        try:
            accepted = await connection.cancel().addTimeout(RESPONSE_TIMEOUT, self._reactor)
        except defer.TimeoutError:
            raise ServerUnresponsive(_NO_RESPONSE) from None
        except psycopg.Error as error:
            raise ConnectionFailed(str(error).strip()) from error
        if not accepted:
            raise ConnectionFailed(_NO_RESPONSE)

    async def terminate(self, connection: Connection) -> None:
        """Do nothing, because no request can terminate the server process behind a pooler."""

    def close(self) -> None:
        pass
