"""PgBouncer before the tests' cluster, where the machine has it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.ports import free_port
from support.postgres import unprivileged_user

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database, Server

_FOUND = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_START_LIMIT = 10.0


@contextmanager
def pooled(server: Server, database: Database, mode: str, *further: str) -> Iterator[Database]:
    """Give the database with a ``uri`` that leads through PgBouncer; skips the test where there is none.

    :param mode: ``session`` or ``transaction``.
    :param further: lines of its configuration.
    """
    if _FOUND is None:
        pytest.skip("needs pgbouncer")
    port = free_port()
    settings = server.folder / f"pgbouncer-{port}.ini"
    settings.write_text(
        f"""
        [databases]
        {database.name} = host=127.0.0.1 port={server.port} user=authenticator
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
        [_FOUND, "--quiet", str(settings)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        user=unprivileged_user(),
    )  # fmt: skip
    try:
        _await_listening(port)
        yield replace(database, uri=f"postgresql://authenticator@127.0.0.1:{port}/{database.name}")
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
