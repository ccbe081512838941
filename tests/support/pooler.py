"""PgBouncer in front of the test cluster, if it is installed.

``PGBOUNCER`` sets the program (default: the installed one).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from dataapi.testing import free_port
from support.postgres import unprivileged_user

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from support.postgres import Database, Server

THROUGH_POOLER = "--through-pgbouncer"
"""pytest's option that puts a pooler in front of PostgreSQL."""

_PROGRAM = os.environ.get("PGBOUNCER") or shutil.which(
    "pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin"
)
_START_LIMIT = 10.0
_SHARED = (
    # Each test has its own database. After the test, pooled connections to this database are useless.
    "server_idle_timeout = 5",
    "default_pool_size = 12",
    "max_client_conn = 1000",
    "server_login_retry = 1",
)
RESETTING = ("server_reset_query = RESET ALL", "server_reset_query_always = 1")
"""Resets session settings that functions changed, before the next client uses the connection."""


@contextmanager
def pooled(
    server: Server, database: Database, mode: str, *further: str, statements: int = 0
) -> Iterator[Database]:
    """Yield the database with a ``uri`` through PgBouncer; skip the test if it is not installed.

    :param mode: ``session`` or ``transaction``.
    :param further: additional configuration lines.
    :param statements: number of prepared statements; the test is skipped if PgBouncer does not support them.
    """
    lines = keeping(statements)
    if statements and not lines:
        pytest.skip("needs pgbouncer 1.21")
    with _running(server, database.name, mode, (*lines, *further)) as (port, _):
        yield replace(database, uri=f"postgresql://authenticator@127.0.0.1:{port}/{database.name}")


@contextmanager
def all_pooled(server: Server, *further: str) -> Iterator[int]:
    """Route every database's ``uri`` through PgBouncer in transaction mode; yield its process."""
    lines = (*_SHARED, *keeping(200), *further)
    with _running(server, "*", "transaction", lines) as (server.pooler, process):
        yield process
    server.pooler = 0


def pooled_if_enabled(config: pytest.Config, server: Server) -> AbstractContextManager[object]:
    """Return a context manager that puts PgBouncer in front of a server if the option is set."""
    return all_pooled(server, *RESETTING) if config.getoption(THROUGH_POOLER) else nullcontext()


def version() -> tuple[int, ...]:
    """Return the version of PgBouncer, such as (1, 25, 2), or () if it is not installed."""
    if _PROGRAM is None:
        return ()
    output = subprocess.run([_PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in output.split()[1].split("."))


def keeping(statements: int) -> tuple[str, ...]:
    """Return the setting for this many prepared statements, or none if PgBouncer does not support it."""
    return (f"max_prepared_statements = {statements}",) if version() >= (1, 21) else ()


@contextmanager
def _running(server: Server, names: str, mode: str, further: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Run PgBouncer for these databases; yield its port and its process."""
    if _PROGRAM is None:
        pytest.skip("needs pgbouncer")
    port = free_port()
    settings = server.folder / f"pgbouncer-{port}.ini"
    settings.write_text(
        f"""
        [databases]
        {names} = host=127.0.0.1 port={server.port} user=authenticator
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = {port}
        unix_socket_dir =
        auth_type = any
        pool_mode = {mode}
        """.replace("\n        ", "\n")
        + "\n".join(further),
        "utf-8",
    )
    server.own(settings)
    process = subprocess.Popen(
        [_PROGRAM, "--quiet", str(settings)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        user=unprivileged_user(),
    )  # fmt: skip
    try:
        _await_listening(port)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def _await_listening(port: int) -> None:
    limit = time.monotonic() + _START_LIMIT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.02)
        else:
            return
