"""Whether the database may have changed: one cheap query about what its transactions may see.

It does not notice data that changes without a transaction. ``untracked.sql`` lists such data.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from twisted.logger import Logger

from dataapi.catalog.model import Catalog
from dataapi.database.open_transaction import POSITION
from dataapi.http.errors import ApiError, DatabaseError
from dataapi.http.messages import Request

Fetch = Callable[..., Awaitable[Sequence[Sequence[Any]]]]

# What a transaction may see changes with each commit of one that wrote, and with nothing else.  The position
# of the write-ahead log changes before a commit can be seen, so that it may stand still when it can.  On a
# standby a commit can be seen once its record was replayed.
_VISIBLE = """
select pg_catalog.concat_ws(' ', pg_catalog.pg_postmaster_start_time(), case
    when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn()::text
    else pg_catalog.pg_current_snapshot()::text end), {position}
"""

_UNTRACKED = files("dataapi.live").joinpath("untracked.sql").read_text(encoding="utf-8")
_NOW = re.compile(r"""[.("' ](?:now|today|tomorrow|yesterday)(?:$|[&,)"' ])""")

_log = Logger(namespace="dataapi.live")


def depends_on_time(request: Request) -> bool:
    """Return whether a request compares something with the current time."""
    text = f"{unquote_plus(request.query)} {request.body.decode('utf-8', 'replace')}"
    return _NOW.search(text) is not None


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
    :ivar untracked: names of tables, views and functions whose data changes without a transaction.
    """

    def __init__(self, fetch: Fetch, catalog: Callable[[], Catalog | None], *, replicated: bool) -> None:
        self.catalog = catalog
        self._fetch = fetch
        self._text = _VISIBLE.format(position=f"({POSITION})" if replicated else "''")
        self._refused = False
        self._generation = 0
        self.untracked: frozenset[str] = frozenset()

    async def look(self) -> DatabaseState:
        """Return the state of the database, ``UNKNOWN`` while it does not answer.

        Every state is another one where that may not be asked, and where Citus holds tables on other servers.
        """
        try:
            [(visible, position)] = await self._fetch(self._text)
            catalog = self.catalog()
            if catalog is not None and catalog.generation != self._generation:
                self.untracked = frozenset([name for (name,) in await self._fetch(_UNTRACKED)])
                self._generation = catalog.generation
        except DatabaseError as error:
            if not self._refused:
                _log.warn("live queries are run at each interval: {error}", error=error.message)
            self._refused = True
            return DatabaseState(object())
        except ApiError:
            return UNKNOWN
        if catalog is None:
            return UNKNOWN
        return DatabaseState(object() if catalog.clustered else (catalog.generation, visible), position or "")
