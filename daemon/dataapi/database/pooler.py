"""Detects connection poolers in transaction mode.

Prepared statements and LISTEN belong to a server process, but the next message may get another process.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from dataapi.database import address
from dataapi.database.connection import Connection, ConnectionFailed
from dataapi.database.sql_text import EQUAL
from dataapi.database.steps import COMMITTING, ROLLING_BACK, Prepared, Step

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dataapi.database.steps import Rows

PROCESS = "select pg_catalog.pg_backend_pid()"

_TURNS = (0, 1, 1, 0, 0, 1) * 2
"""Order in which two connections send their queries.

Alternating and consecutive queries detect poolers that reuse the most recently used process, and poolers that
reuse the least recently used process.
"""


def pooler_advice(*, prepared: bool | None, listening: bool | None) -> str | None:
    """Return a warning for a project behind a pooler in transaction mode, or None if no setting is wrong.

    ``prepared`` is ``db-prepared-statements``, ``listening`` is ``db-channel-enabled``. None means ``auto``.
    """
    keys = [*(["db-prepared-statements"] if prepared else []), *(["db-channel-enabled"] if listening else [])]
    if not keys:
        return None
    advice = " and ".join(f"{key} = auto" for key in keys)
    return f"db-uri connects to a pooler in transaction mode: set {advice}"


async def loses_statements(reactor: Any, uri: str) -> bool:
    """Whether the URI connects to a pooler in transaction mode without support for prepared statements.

    False if the database cannot be reached.
    """
    parameters = address.parameters(uri)
    connection = Connection(reactor)
    try:
        await connection.open(parameters, address.connect_timeout(parameters))
        return await is_transaction_pooled(connection) and not await supports_prepared(connection)
    except (ConnectionFailed, psycopg.Error):
        return False
    finally:
        connection.close()


async def is_transaction_pooled(connection: Connection) -> bool:
    """Whether a pooler assigns a server process per transaction.

    :raises psycopg.Error: if a query fails.
    :raises ConnectionFailed: if the connection is lost, or a second connection cannot be opened.
    """
    # Poolers report fake process IDs.
    if await _process(connection) == connection.backend_pid():
        return False
    other = Connection(connection.reactor)
    try:
        await other.open(connection.server, address.connect_timeout(connection.server))
        return await share_processes(lambda: _process(connection), lambda: _process(other))
    finally:
        other.close()


async def share_processes(one: Callable[[], Awaitable[int]], other: Callable[[], Awaitable[int]]) -> bool:
    """Whether two open connections use the same server process, or one connection uses several processes.

    Each argument returns the current process ID of one connection.
    """
    seen: tuple[set[int], set[int]] = set(), set()
    for turn in _TURNS:
        seen[turn].add(await (one, other)[turn]())
        if any(len(processes) > 1 for processes in seen) or seen[0] == seen[1]:
            return True
    return False


class StepRunner(Protocol):
    """A connection that sends protocol messages (``Step``) and returns the result."""

    def send(self, steps: Sequence[Step]) -> Awaitable[Rows]:
        pass


async def supports_prepared(connection: StepRunner) -> bool:
    """Whether a pooler makes the connection's prepared statements available on any server process.

    Such a pooler renames prepared statements, so the server process has no statement with the name that this
    function prepares. Return False if the pooler rejects prepared statements.

    :raises psycopg.Error: if the connection fails.
    :raises ConnectionFailed: if the connection is lost.
    """
    name = f"p{token_hex(8)}".encode()
    query = (
        "select pg_catalog.count(*) from pg_catalog.pg_prepared_statements"
        f" where not from_sql and name {EQUAL} $1"
    ).encode()
    prepared = Prepared(name, query)
    # A pooler does not switch to another server process within a transaction.
    await connection.send([Step(b"begin")])
    try:
        [(is_forwarded,)] = await connection.send([Step(query, [name], None, prepared)])
    except psycopg.Error:
        # The pooler rejects protocol-level prepared statements. Simple queries always work.
        await connection.send(ROLLING_BACK)
        return False
    await connection.send([*([prepared.deallocation] if is_forwarded else []), *COMMITTING])
    return not is_forwarded


async def _process(connection: Connection) -> int:
    [(process,)] = await connection.query(PROCESS)
    return int(process)
