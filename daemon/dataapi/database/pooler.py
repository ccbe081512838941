"""Whether a pooler stands before PostgreSQL that lends a connection for one transaction at a time.

What is prepared and listened to belongs to a server process there, and the next message may reach another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg2

from dataapi.database import address
from dataapi.database.connection import Connection, ConnectionDied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PROCESS = "select pg_catalog.pg_backend_pid()"
"""Asks for the server process that answers."""

_ROUNDS = 3


def pooler_advice(*, prepared: bool, listening: bool) -> str | None:
    """Return what to say of a project that such a pooler stands before, None when it is set up for one.

    :param prepared, listening: whether it is configured to prepare statements, and to listen.
    """
    keys = [*(["db-prepared-statements"] if prepared else []), *(["db-channel-enabled"] if listening else [])]
    if not keys:
        return None
    wanted = " and ".join(f"{key} = no" for key in keys)
    return f"db-uri leads to a pooler in transaction mode, which needs {wanted}"


async def pools_transactions(reactor: Any, uri: str) -> bool:
    """Tell whether the URI leads to a pooler in transaction mode; False when it leads nowhere."""
    parameters = address.parameters(uri)
    timeout = address.connect_timeout(parameters)
    one, other = Connection(reactor), Connection(reactor)
    try:
        await one.open(parameters, timeout)
        if await _process(one) == one.get_backend_pid():
            return False
        await other.open(parameters, timeout)
        return await share_processes(lambda: _process(one), lambda: _process(other))
    except (ConnectionDied, psycopg2.Error):
        return False
    finally:
        one.close()
        other.close()


async def share_processes(one: Callable[[], Awaitable[int]], other: Callable[[], Awaitable[int]]) -> bool:
    """Tell whether two open connections were seen to be served by the same process, or one by several.

    :param one, other: ask their connection for its process.
    """
    ones: set[int] = set()
    others: set[int] = set()
    for _ in range(_ROUNDS):
        ones.add(await one())
        others.add(await other())
    return len(ones) > 1 or len(others) > 1 or ones == others


async def _process(connection: Connection) -> int:
    [(process,)] = await connection.send(PROCESS, ())
    return int(process)
