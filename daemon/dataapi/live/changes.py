"""Detects whether the database may have changed, with one cheap query.

The query does not detect results that change without a commit. ``untracked.sql`` lists the tables, views and
functions that may return such results.
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

# A snapshot changes when a transaction that wrote something commits, and at no other time. The position of
# the write-ahead log is unsuitable: it advances before a commit becomes visible. On a standby, a commit
# becomes visible when its record is replayed.
_VISIBLE = """
select pg_catalog.concat_ws(' ', pg_catalog.pg_postmaster_start_time(), case
    when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn()::text
    else pg_catalog.pg_current_snapshot()::text end), {position}
"""

_UNTRACKED = files("dataapi.live").joinpath("untracked.sql").read_text(encoding="utf-8")
_NOW = re.compile(r"""[.("' ](?:now|today|tomorrow|yesterday)(?:$|[&,)"' ])""")

_log = Logger(namespace="dataapi.live")


def depends_on_time(request: Request) -> bool:
    text = f"{unquote_plus(request.query)} {request.body.decode('utf-8', 'replace')}"
    return _NOW.search(text) is not None


class DatabaseState(NamedTuple):
    """A state of the database. If ``visible`` values are equal, nothing has changed.

    ``position`` is the WAL position that a replica must have replayed to show the state, or "" without
    replicas.
    """

    visible: object
    position: str = ""


UNKNOWN = DatabaseState(None)


class Changes:
    """Checks one database for changes.

    :param replicated: whether replicas serve reads, so that states need a WAL position.
    :ivar untracked: names of tables, views and functions whose results can change without a commit.
    """

    def __init__(self, fetch: Fetch, catalog: Callable[[], Catalog | None], *, replicated: bool) -> None:
        self.catalog = catalog
        self._fetch = fetch
        self._text = _VISIBLE.format(position=f"({POSITION})" if replicated else "''")
        self._refused = False
        self._generation = 0
        self.untracked: frozenset[str] = frozenset()

    async def check(self) -> DatabaseState:
        """Return the state of the database, or ``UNKNOWN`` if it does not respond.

        If the login role may not run the check, or Citus distributes the tables, no two states are equal.
        """
        try:
            [(visible, position)] = await self._fetch(self._text)
            catalog = self.catalog()
            if catalog is not None and catalog.generation != self._generation:
                self.untracked = frozenset([name for (name,) in await self._fetch(_UNTRACKED)])
                self._generation = catalog.generation
        except DatabaseError as error:
            if not self._refused:
                _log.warn(
                    "cannot check for changes, so live queries run at every interval: {error}",
                    error=error.message,
                )
            self._refused = True
            return DatabaseState(object())
        except ApiError:
            return UNKNOWN
        if catalog is None:
            return UNKNOWN
        return DatabaseState(object() if catalog.clustered else (catalog.generation, visible), position or "")
