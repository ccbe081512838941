"""Keeps connections off servers that another one has succeeded as the primary."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import psycopg
from twisted.internet import defer

from dataapi.database import address
from dataapi.database.connection import SILENCE, Connection, ConnectionDied, ServerStatus
from dataapi.database.succession import PRIMARY_LINEAGE, Lineage, Succession

if TYPE_CHECKING:
    from collections.abc import Callable


class PrimaryServers:
    """The ``Servers`` of a database with several servers, of which one is the primary."""

    def __init__(self, succession: Succession) -> None:
        self._succession = succession
        self._lineages: WeakKeyDictionary[Connection, Lineage] = WeakKeyDictionary()

    def rank(self, place: dict[str, str]) -> int:
        """Return the sort key of a server. Servers with equal keys are tried in the configured order."""
        return self._succession.rank(address.server_key(place))

    async def refusal(self, connection: Connection, timeout: float) -> str:
        """Return why a connection must not be used, "" if it may be."""
        place, succession = connection.place, self._succession
        where = address.failure_prefix(place.get("host"), place.get("port", ""))
        try:
            found = await connection.query(PRIMARY_LINEAGE).addTimeout(timeout, connection.reactor)
        except psycopg.Error:
            found = []  # not every relative of PostgreSQL has timelines
        except defer.TimeoutError:
            return where + SILENCE
        except ConnectionDied as error:
            return str(error)
        if not found:
            return ""
        lineage = self._lineages[connection] = Lineage(*found[0])
        if not succession.overtaken(lineage):
            succession.see(lineage)
            return ""
        succession.try_last(address.server_key(place))
        return (
            f"{where}it is an old primary, on timeline {lineage.timeline}:"
            f" another server was promoted to timeline {succession.newest(lineage)}"
        )

    def status(self, connection: Connection) -> ServerStatus:
        """Return the status of a connection's server. That of a standby is unknown."""
        lineage = self._lineages.get(connection)
        if lineage is None:
            return ServerStatus.UNKNOWN
        return ServerStatus.REFUSED if self._succession.overtaken(lineage) else ServerStatus.ACCEPTED

    def observe(self, observer: Callable[[], object]) -> None:
        """Call the observer when another server becomes the primary."""
        self._succession.observe(observer)
