"""Failover: detects that another server has become the primary.

An unresponsive primary is only abandoned if another server accepts writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from twisted.internet import defer, task
from twisted.logger import Logger

from dataapi.concurrency.tasks import concurrently
from dataapi.database import address
from dataapi.database.connection import Connection, ConnectionFailed, ServerStatus
from dataapi.database.primary_servers import PrimaryServers

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.succession import Succession

PROBE_INTERVAL = 1.0
"""Seconds between checks of the primary."""

PROBE_TIMEOUT = 1.0
"""Seconds to wait for the primary before the other servers are checked."""

RIVAL_INTERVAL = 5.0
"""Seconds between checks for another primary while the current one responds.

After a failover, an old primary also responds unless it was fenced.
"""


class FailoverWatch:
    """Monitors the primary over its own connection.

    The watch does nothing if the connection string lists a single host.

    :param uri: libpq connection string that selects the primary.
    :param on_failover: called with the unresponsive server when another server has become the primary.
    """

    _log = Logger()

    def __init__(
        self, reactor: Any, uri: str, succession: Succession, on_failover: Callable[[dict[str, str]], None]
    ) -> None:
        self._reactor = reactor
        self._uri = uri
        self._parameters = address.parameters(uri)
        self._succession = succession
        self._servers = PrimaryServers(succession)
        self._on_failover = on_failover
        self._connection: Connection | None = None
        self._rivals_checked_at = reactor.seconds()
        succession.observe(self._leave_old_primary)

    async def begin(self) -> None:
        """Check all servers before any server is used, because an old primary may be listed first."""
        if address.has_several_hosts(self._parameters):
            await concurrently(self._record_server(uri) for uri in address.servers(self._uri).values())

    async def _record_server(self, uri: str) -> None:
        connection = await self._connect(address.parameters(uri), PROBE_TIMEOUT)
        if connection is not None:
            connection.close()

    async def watch(self) -> None:
        if not address.has_several_hosts(self._parameters):
            return
        try:
            while True:
                await self.check()
                await task.deferLater(self._reactor, PROBE_INTERVAL)
        finally:
            if self._connection is not None:
                self._connection.close()

    async def check(self) -> None:
        primary = self._connection
        if primary is None or primary.lost:
            timeout = address.connect_timeout(self._parameters)
            self._connection = await self._connect(self._parameters, timeout)
        elif primary.busy or not await primary.is_alive(PROBE_TIMEOUT):
            await self._replace(primary)
        elif self._reactor.seconds() - self._rivals_checked_at >= RIVAL_INTERVAL:
            self._rivals_checked_at = self._reactor.seconds()
            await self._check_for_rival(primary)

    async def _replace(self, unresponsive: Connection) -> None:
        successor = await self._connect_elsewhere(unresponsive)
        if successor is None:
            return
        if not unresponsive.lost:
            self._log.warn(
                "another server is the primary now; {server} does not respond and is no longer used",
                server=_name(unresponsive),
            )
            unresponsive.close()
        self._connection = successor
        self._succession.deprioritize(address.server_key(unresponsive.server))
        self._on_failover(unresponsive.server)

    async def _check_for_rival(self, primary: Connection) -> None:
        rival = await self._connect_elsewhere(primary)
        if rival is None:
            return
        if primary.lost:
            self._connection = rival
        else:
            # PostgreSQL-compatible servers without timelines may have several primaries.
            rival.close()

    def _leave_old_primary(self) -> None:
        primary = self._connection
        if primary is not None and self._servers.status(primary) is ServerStatus.REFUSED:
            self._log.warn(
                "another server was promoted; the old primary, {server}, is no longer used:"
                " its further writes will be lost, so stop it (fencing)",
                server=_name(primary),
            )
            self._succession.deprioritize(address.server_key(primary.server))
            primary.close()

    async def _connect_elsewhere(self, primary: Connection) -> Connection | None:
        return await self._connect(address.without_server(self._parameters, primary.server), PROBE_TIMEOUT)

    async def _connect(self, parameters: dict[str, str], timeout: float) -> Connection | None:
        connection = Connection(self._reactor, self._servers)
        try:
            await connection.open(parameters, timeout)
        except (ConnectionFailed, psycopg.Error):
            return None
        except defer.CancelledError:
            connection.close()
            raise
        return connection


def _name(connection: Connection) -> str:
    return ":".join(filter(None, address.server_key(connection.server)))
