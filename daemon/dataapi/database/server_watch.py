"""Polls a server over its own connection: role, position and timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from twisted.internet import defer

from dataapi.concurrency.tasks import wait_at_most
from dataapi.database import address
from dataapi.database.connection import Connection, ConnectionFailed, ServerStatus
from dataapi.database.primary_servers import PrimaryServers
from dataapi.database.sql_text import CONCATENATE, MINUS, operator_sql
from dataapi.database.succession import Lineage

if TYPE_CHECKING:
    from dataapi.database.succession import Succession

RESPONSE_TIMEOUT = 1.25
"""Seconds after which a server without a response is considered down."""

_UNRESPONSIVE = "it does not respond"

# Only pg_read_all_stats can see a standby's received timeline. The timeline that other roles see lags by up
# to checkpoint_timeout, and is never ahead.
SERVER_STATE = f"""
select standby, (case when standby then coalesce(pg_catalog.pg_last_wal_replay_lsn(), '0/0')
    else pg_catalog.pg_current_wal_flush_lsn() end {MINUS} '0/0')::bigint, system_identifier,
    case when standby then greatest(
        (select received_tli from pg_catalog.pg_stat_wal_receiver),
        (select min_recovery_end_timeline from pg_catalog.pg_control_recovery()),
        (select timeline_id from pg_catalog.pg_control_checkpoint())
    ) else ('x' {CONCATENATE} pg_catalog.substr(
        pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint end
from pg_catalog.pg_control_system(), lateral (select pg_catalog.pg_is_in_recovery() standby offset 0) role
"""
MAY_SEE_STATISTICS = f"""pg_catalog.pg_has_role('pg_read_all_stats',
    case when pg_catalog.current_setting('server_version_num')::int {operator_sql("<")} 160000
    then 'member' else 'set' end)"""
"""Whether the login role can ``set role pg_read_all_stats``, to see a standby's received timeline."""
SERVER_STATE_SEEN = f"""
select pg_catalog.set_config('role', 'pg_read_all_stats', true) where {MAY_SEE_STATISTICS};{SERVER_STATE}
"""
"""Query like ``SERVER_STATE`` that runs as ``pg_read_all_stats`` if the login role may set that role.

The query sets the role because the login role may not inherit its privileges. The setting is local to the
message, because a pooler may assign the process to another client afterwards.
"""


@dataclass(frozen=True, slots=True)
class ServerState:
    """State of a server: its role, its replayed or written WAL position, and the lineage of that WAL.

    A standby may be further ahead on its lineage than this state shows.
    """

    standby: bool
    position: int
    lineage: Lineage


class ServerWatch:
    """Polls a server's state.

    :param succession: rejects connections to old primaries, None to connect to any server.
    :ivar state: last state, None if the server does not respond.
    :ivar trouble: reason why there is no state, "" otherwise.
    :ivar silent: whether the last query timed out.
    """

    def __init__(self, reactor: Any, uri: str, succession: Succession | None = None) -> None:
        self._reactor = reactor
        self._parameters = address.parameters(uri)
        self._servers = None if succession is None else PrimaryServers(succession)
        self._connection: Connection | None = None
        self._opening: defer.Deferred[None] | None = None
        self.state: ServerState | None = None
        self.trouble = "it has not been polled yet"
        self.silent = False

    async def poll(self) -> None:
        connection = await self._connect()
        if connection is None:
            self.state = None
            return
        try:
            [row] = await connection.query(SERVER_STATE_SEEN).addTimeout(RESPONSE_TIMEOUT, self._reactor)
        except (ConnectionFailed, psycopg.Error) as error:
            self._lose(str(error).strip())
        except defer.TimeoutError:
            self._lose(_UNRESPONSIVE)
            self.silent = True
        else:
            self.silent = False
            standby, position, system, timeline = row
            self.state, self.trouble = ServerState(standby, position, Lineage(system, timeline)), ""

    def _lose(self, trouble: str) -> None:
        self.state, self.trouble = None, trouble
        self.close()

    async def _connect(self) -> Connection | None:
        """Return a connection, or None after a timeout. Connecting then continues in the background."""
        connection = self._connection
        if connection is None or connection.lost or self._is_refused(connection):
            self._drop()
            if self._opening is None or self._opening.called:
                self.trouble = _UNRESPONSIVE
                self._opening = defer.Deferred.fromCoroutine(self._open())
            await wait_at_most(RESPONSE_TIMEOUT, self._opening, self._reactor)
        return self._connection

    def _is_refused(self, connection: Connection) -> bool:
        return self._servers is not None and self._servers.status(connection) is ServerStatus.REFUSED

    async def _open(self) -> None:
        connection = Connection(self._reactor, self._servers)
        try:
            await connection.open(self._parameters, RESPONSE_TIMEOUT)
        except ConnectionFailed as error:
            self.trouble = str(error)
        except defer.CancelledError:
            connection.close()
            raise
        else:
            self._connection = connection

    def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
