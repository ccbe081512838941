"""Failover: another server was made the primary, and the one before is silent, or does not know it.

A server is not left only because it is silent, but because another one accepts writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from twisted.internet import defer, task
from twisted.logger import Logger

from dataapi.concurrency.tasks import concurrently
from dataapi.database import address
from dataapi.database.connection import Connection, ConnectionDied, ServerStatus
from dataapi.database.primary_servers import PrimaryServers

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.succession import Succession

PROBE_INTERVAL = 1.0
"""Seconds between two questions to the primary."""

PROBE_TIMEOUT = 1.0
"""Seconds after which a server is silent that has not answered; the others are asked then."""

RIVAL_INTERVAL = 5.0
"""Seconds between two looks for another primary while this one answers, which may not be fenced."""


class FailoverWatch:
    """Asks the primary now and then whether it lives, over a connection of its own.

    It asks no server where the connection string lists a single host.

    :param uri: a libpq connection string that leads to the primary.
    :param succession: learns of a newer primary.
    :param give_up: called with the place of a silent server when another one has become the primary.
    """

    _log = Logger()

    def __init__(
        self, reactor: Any, uri: str, succession: Succession, give_up: Callable[[dict[str, str]], None]
    ) -> None:
        self._reactor = reactor
        self._uri = uri
        self._parameters = address.parameters(uri)
        self._succession = succession
        self._servers = PrimaryServers(succession)
        self._give_up = give_up
        self._connection: Connection | None = None
        self._looked_for_rivals = reactor.seconds()
        succession.observe(self._leave_overtaken)

    async def begin(self) -> None:
        """Learn which server was promoted last, before any is used: an old primary may be listed first."""
        if address.lists_several(self._parameters):
            await concurrently(self._see(uri) for uri in address.servers(self._uri).values())

    async def _see(self, uri: str) -> None:
        connection = await self._connected(address.parameters(uri), PROBE_TIMEOUT)
        if connection is not None:
            connection.close()

    async def watch(self) -> None:
        """Look after the primary until it is cancelled."""
        if not address.lists_several(self._parameters):
            return
        try:
            while True:
                await self.look()
                await task.deferLater(self._reactor, PROBE_INTERVAL)
        finally:
            if self._connection is not None:
                self._connection.close()

    async def look(self) -> None:
        """Find out whether the primary answers, and whether another one has its place."""
        primary = self._connection
        if primary is None or primary.lost:
            limit = address.connect_timeout(self._parameters)
            self._connection = await self._connected(self._parameters, limit)
        elif primary.busy or not await primary.answered(PROBE_TIMEOUT):
            await self._replace(primary)
        elif self._reactor.seconds() - self._looked_for_rivals >= RIVAL_INTERVAL:
            self._looked_for_rivals = self._reactor.seconds()
            await self._look_for_rival(primary)

    async def _replace(self, silent: Connection) -> None:
        successor = await self._connected_elsewhere(silent)
        if successor is None:
            return
        if not silent.lost:
            self._log.warn(
                "another server is the primary now; {server} does not answer and is given up",
                server=_name(silent),
            )
            silent.close()
        self._connection = successor
        self._succession.try_last(address.server_key(silent.place))
        self._give_up(silent.place)

    async def _look_for_rival(self, primary: Connection) -> None:
        """Find out whether another server was promoted, while this one still accepts writes."""
        rival = await self._connected_elsewhere(primary)
        if rival is None:
            return
        if primary.lost:
            self._connection = rival
        else:
            # Servers without timelines may all be primaries.
            rival.close()

    def _leave_overtaken(self) -> None:
        primary = self._connection
        if primary is not None and self._servers.status(primary) is ServerStatus.REFUSED:
            self._log.warn(
                "another server was promoted; the primary before, {server}, is given up:"
                " what it still accepts is lost, so that it should be stopped (fencing)",
                server=_name(primary),
            )
            self._succession.try_last(address.server_key(primary.place))
            primary.close()

    async def _connected_elsewhere(self, primary: Connection) -> Connection | None:
        """Return a connection to another server that accepts writes, None where there is none."""
        return await self._connected(address.without(self._parameters, primary.place), PROBE_TIMEOUT)

    async def _connected(self, parameters: dict[str, str], limit: float) -> Connection | None:
        connection = Connection(self._reactor, self._servers)
        try:
            await connection.open(parameters, limit)
        except (ConnectionDied, psycopg.Error):
            return None
        except defer.CancelledError:
            connection.close()
            raise
        return connection


def _name(connection: Connection) -> str:
    return ":".join(filter(None, address.server_key(connection.place)))
