"""Ways for PostgreSQL to be away; each returns what brings it back."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.postgres import Server


def stopped(server: Server) -> Callable[[], None]:
    """Stop it in good order."""
    server.stop("fast")
    return server.start


def crashed(server: Server) -> Callable[[], None]:
    """Stop it in the midst of what it does."""
    server.stop("immediate")
    return server.start


def frozen(server: Server) -> Callable[[], None]:
    """Let it say nothing any more, without closing a connection."""
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
            # A connection ended meanwhile.
            continue
