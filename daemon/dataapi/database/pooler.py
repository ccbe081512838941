"""Whether a pooler stands before PostgreSQL that lends a connection for one transaction at a time.

What is prepared and listened to belongs to a server process there, and the next message may reach another.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from dataapi.database import address
from dataapi.database.connection import Connection, ConnectionDied
from dataapi.database.sql_text import EQUAL
from dataapi.database.steps import COMMITTING, ROLLING_BACK, Prepared, Step

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dataapi.database.steps import Rows

PROCESS = "select pg_catalog.pg_backend_pid()"
"""Asks for the server process that answers."""

_TURNS = (0, 1, 1, 0, 0, 1) * 2
"""Which of two connections asks next.

One of them asks twice in a row, so that a pooler is seen to change processes whether it lends the one that
was given back last or the one that was given back first.
"""


def pooler_advice(*, prepared: bool | None, listening: bool | None) -> str | None:
    """Return a warning for a project behind such a pooler, None when it is set up for one.

    :param prepared, listening: whether it is made to prepare statements, and to listen; None finds out.
    """
    keys = [*(["db-prepared-statements"] if prepared else []), *(["db-channel-enabled"] if listening else [])]
    if not keys:
        return None
    advice = " and ".join(f"{key} = auto" for key in keys)
    return f"db-uri leads to a pooler in transaction mode, which needs {advice}"


async def loses_statements(reactor: Any, uri: str) -> bool:
    """Return whether the URI leads to a pooler in transaction mode that keeps no statements prepared.

    False when it cannot be reached.
    """
    parameters = address.parameters(uri)
    connection = Connection(reactor)
    try:
        await connection.open(parameters, address.connect_timeout(parameters))
        return await lends_processes(connection) and not await keeps_statements(connection)
    except (ConnectionDied, psycopg.Error):
        return False
    finally:
        connection.close()


async def lends_processes(connection: Connection) -> bool:
    """Return whether a pooler lends the connection a process for one transaction at a time.

    Raises ``psycopg.Error`` and ``ConnectionDied``, when another connection cannot be made, too.
    """
    # A pooler makes up process numbers of its own.
    if await _process(connection) == connection.process():
        return False
    other = Connection(connection.reactor)
    try:
        await other.open(connection.place, address.connect_timeout(connection.place))
        return await share_processes(lambda: _process(connection), lambda: _process(other))
    finally:
        other.close()


async def share_processes(one: Callable[[], Awaitable[int]], other: Callable[[], Awaitable[int]]) -> bool:
    """Return whether two open connections were seen to be served by the same process, or one by several.

    :param one, other: ask their connection for its process.
    """
    seen: tuple[set[int], set[int]] = set(), set()
    for turn in _TURNS:
        seen[turn].add(await (one, other)[turn]())
        if any(len(processes) > 1 for processes in seen) or seen[0] == seen[1]:
            return True
    return False


class RunsSteps(Protocol):
    """A connection to ask on."""

    def send(self, steps: Sequence[Step]) -> Awaitable[Rows]:
        """Run steps."""


async def keeps_statements(connection: RunsSteps) -> bool:
    """Return whether a pooler keeps the connection's prepared statements on any server process.

    It does so under a name of its own: where the server has the connection's, a pooler just passed it on.
    False where it is unknown.  Raises ``psycopg.Error`` and ``ConnectionDied`` where that dies.
    """
    name = f"p{token_hex(8)}".encode()
    asked = (
        "select pg_catalog.count(*) from pg_catalog.pg_prepared_statements"
        f" where not from_sql and name {EQUAL} $1"
    ).encode()
    prepared = Prepared(name, asked)
    # The process stays the same until the transaction ends.
    await connection.send([Step(b"begin")])
    try:
        [(passed_on,)] = await connection.send([Step(asked, [name], None, prepared)])
    except psycopg.Error:
        # It takes no such messages, or the database does not answer: text always works.
        await connection.send(ROLLING_BACK)
        return False
    await connection.send([*([prepared.deallocation] if passed_on else []), *COMMITTING])
    return not passed_on


async def _process(connection: Connection) -> int:
    [(process,)] = await connection.query(PROCESS)
    return int(process)
