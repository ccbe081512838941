"""Failover: another server was made the primary, while the one in use says nothing and closes no connection.

Silence alone is no reason to leave a server; that another one accepts writes is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg2
from twisted.internet import defer, task
from twisted.logger import Logger

from dataapi.database import address
from dataapi.database.connection import Connection, ConnectionDied

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = 1.0
"""Seconds between two questions to the primary."""

WITHIN = 1.0
"""Seconds after which a server is silent that has not answered; the others are asked then."""


class FailoverWatch:
    """Asks the primary now and then whether it lives, over a connection of its own.

    It asks nobody where the connection string lists a single host.

    :param uri: a libpq connection string that leads to the primary.
    :param give_up: called with the place of a silent server when another one has become the primary.
    """

    _log = Logger()

    def __init__(self, reactor: Any, uri: str, give_up: Callable[[dict[str, str]], None]) -> None:
        self._reactor = reactor
        self._parameters = address.parameters(uri)
        self._give_up = give_up
        self._connection: Connection | None = None

    async def watch(self) -> None:
        """Look after the primary until it is cancelled."""
        if not address.lists_several(self._parameters):
            return
        try:
            while True:
                await self.look()
                await task.deferLater(self._reactor, EVERY)
        finally:
            if self._connection is not None:
                self._connection.close()

    async def look(self) -> None:
        """Find out whether the primary answers, and if it does not, whether another one has its place."""
        primary = self._connection
        if primary is None or primary.lost:
            limit = address.connect_timeout(self._parameters)
            self._connection = await self._connected(self._parameters, limit)
        elif primary.busy or not await primary.answered(WITHIN):
            await self._replace(primary)

    async def _replace(self, silent: Connection) -> None:
        others = address.without(self._parameters, silent.place)
        successor = await self._connected(others, WITHIN)
        if successor is None:
            return
        self._log.warn(
            "another server is the primary now; the one before, {server}, is given up: it does not answer",
            server=":".join(filter(None, address.server_key(silent.place))),
        )
        silent.close()
        self._connection = successor
        self._parameters = address.tried_last(self._parameters, silent.place)
        self._give_up(silent.place)

    async def _connected(self, parameters: dict[str, str], limit: float) -> Connection | None:
        connection = Connection(self._reactor)
        try:
            await connection.open(parameters, limit)
        except (ConnectionDied, psycopg2.Error):
            return None
        except defer.CancelledError:
            connection.close()
            raise
        return connection
