"""Prevents connections to old primaries."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import psycopg
from twisted.internet import defer

from dataapi.database import address
from dataapi.database.connection import TIMEOUT_EXPIRED, Connection, ConnectionFailed, ServerStatus
from dataapi.database.succession import PRIMARY_LINEAGE, Lineage, Succession

if TYPE_CHECKING:
    from collections.abc import Callable


class PrimaryServers:
    """Rejects the old primaries of a database with several servers."""

    def __init__(self, succession: Succession) -> None:
        self._succession = succession
        self._lineages: WeakKeyDictionary[Connection, Lineage] = WeakKeyDictionary()

    def rank(self, server: dict[str, str]) -> int:
        return self._succession.rank(address.server_key(server))

    async def refusal(self, connection: Connection, timeout: float) -> str:
        server, succession = connection.server, self._succession
        prefix = address.failure_prefix(server.get("host"), server.get("port", ""))
        try:
            rows = await connection.query(PRIMARY_LINEAGE).addTimeout(timeout, connection.reactor)
        except psycopg.Error:
            rows = []  # some PostgreSQL-compatible servers have no timelines
        except defer.TimeoutError:
            return prefix + TIMEOUT_EXPIRED
        except ConnectionFailed as error:
            return str(error)
        if not rows:
            return ""
        lineage = self._lineages[connection] = Lineage(*rows[0])
        if not succession.is_outdated(lineage):
            succession.add_primary(lineage)
            return ""
        succession.deprioritize(address.server_key(server))
        return (
            f"{prefix}it is an old primary, on timeline {lineage.timeline}:"
            f" another server was promoted to timeline {succession.newest(lineage)}"
        )

    def status(self, connection: Connection) -> ServerStatus:
        lineage = self._lineages.get(connection)
        if lineage is None:
            return ServerStatus.UNKNOWN
        return ServerStatus.REFUSED if self._succession.is_outdated(lineage) else ServerStatus.ACCEPTED

    def observe(self, observer: Callable[[], object]) -> None:
        self._succession.observe(observer)
