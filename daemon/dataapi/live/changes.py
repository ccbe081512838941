"""Whether the database may have changed, by one cheap look at what its transactions may see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from twisted.logger import Logger

from dataapi.catalog.model import Catalog
from dataapi.database.open_transaction import POSITION
from dataapi.http.errors import ApiError, DatabaseError

Fetch = Callable[..., Awaitable[Sequence[Sequence[Any]]]]

# What a transaction may see changes with each commit of one that wrote, and with nothing else.  The position
# of the write-ahead log changes before a commit can be seen, so that it may stand still when it can.  On a
# standby a commit can be seen once its record was replayed.
_VISIBLE = """
select pg_catalog.concat_ws(' ', pg_catalog.pg_postmaster_start_time(), case
    when exists (select from pg_catalog.pg_foreign_table) then pg_catalog.clock_timestamp()::text
    when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn()::text
    else pg_catalog.pg_current_snapshot()::text end), {position}
"""

_log = Logger(namespace="dataapi.live")


class DatabaseState(NamedTuple):
    """A state of the database.

    :ivar visible: equal for states between which nothing can have changed.
    :ivar position: of the write-ahead log behind all of it, for replicas; "" where there are none.
    """

    visible: object
    position: str = ""


UNKNOWN = DatabaseState(None)
"""The state of a database that was not asked, or did not answer."""


class Changes:
    """Looks at one database.

    :param fetch: runs SQL as the login role.
    :param catalog: returns the current snapshot, None before the first one.
    :param replicated: whether replicas answer reads, so that positions are needed.
    """

    def __init__(self, fetch: Fetch, catalog: Callable[[], Catalog | None], *, replicated: bool) -> None:
        self.catalog = catalog
        self._fetch = fetch
        self._text = _VISIBLE.format(position=f"({POSITION})" if replicated else "''")
        self._refused = False

    async def look(self) -> DatabaseState:
        """Return the state of the database, ``UNKNOWN`` while it does not answer.

        Every state is another one where that may not be asked, and where Citus holds tables on other servers.
        """
        try:
            [(visible, position)] = await self._fetch(self._text)
        except DatabaseError as error:
            if not self._refused:
                _log.warn("live queries are run at each interval: {error}", error=error.message)
            self._refused = True
            return DatabaseState(object())
        except ApiError:
            return UNKNOWN
        catalog = self.catalog()
        if catalog is None:
            return UNKNOWN
        return DatabaseState(object() if catalog.clustered else (catalog.generation, visible), position or "")
