"""PostgreSQL outages; each function returns a function that ends the outage."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.postgres import Server


def stopped(server: Server) -> Callable[[], None]:
    """Shut PostgreSQL down."""
    server.stop("fast")
    return server.start


def crashed(server: Server) -> Callable[[], None]:
    """Stop PostgreSQL without a clean shutdown."""
    server.stop("immediate")
    return server.start


def frozen(server: Server) -> Callable[[], None]:
    """Freeze PostgreSQL without closing its connections."""
    postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    with open(f"/proc/{postmaster}/task/{postmaster}/children") as listed:
        pids = [postmaster, *map(int, listed.read().split())]
    _signal(pids, signal.SIGSTOP)
    return lambda: _signal(pids, signal.SIGCONT)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            # The connection has already ended.
            continue
