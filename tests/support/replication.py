"""A primary and its standbys, each a separate cluster."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.daemon import wait_for
from support.outages import frozen
from support.postgres import Database, Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_REPLICATING = {"wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on",
                "wal_keep_size": "64MB"}  # fmt: skip


class Pair:
    """A primary with its standby, created and removed by ``running_pair``.

    :ivar others: additional standbys of the primary.
    """

    def __init__(self, others: int = 0) -> None:
        self.primary = Server(settings=_REPLICATING)
        self.standby = Server(settings=_REPLICATING)
        self.others = [Server(settings=_REPLICATING) for _ in range(others)]
        self._gone: set[Server] = set()

    def create(self) -> None:
        """Create and start all servers; skip the test if ``pg_basebackup`` is missing."""
        if not self.primary.has_program("pg_basebackup"):
            pytest.skip("this PostgreSQL lacks pg_basebackup")
        self.primary.create()
        for standby in self.standbys:
            standby.follow(self.primary)

    @property
    def standbys(self) -> list[Server]:
        return [self.standby, *self.others]

    def remove(self) -> None:
        for server in (self.primary, *self.standbys):
            if server in self._gone:
                (server.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
            server.remove()

    def kill_primary(self) -> None:
        """Stop the primary as a power failure would."""
        pids = _processes(self.primary)
        self._gone.add(self.primary)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(_runs(pid) for pid in pids), "the primary's end")

    def acknowledge_together(self, database: Database) -> None:
        """Make commits of a database wait for the standby to write them."""
        self.primary.admin.execute("alter system set synchronous_standby_names = '*'")
        self.primary.admin.execute("select pg_reload_conf()")
        database.execute(f"alter database {database.name} set synchronous_commit = 'on'")
        waits = "select 1 from pg_stat_replication where sync_state = 'sync'"
        wait_for(lambda: self.primary.admin.execute(waits), "the synchronous standby")

    @contextmanager
    def frozen_primary(self) -> Iterator[None]:
        """Freeze the primary during the block without closing its connections."""
        comes_back = frozen(self.primary)
        try:
            yield
        finally:
            comes_back()

    def uri(self, name: str, attributes: str = "") -> str:
        """Return the URI of a database on both servers, the primary first.

        :param attributes: value of ``target_session_attrs``.
        """
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (self.primary, self.standby))
        options = f"?target_session_attrs={attributes}" if attributes else ""
        return f"postgresql://authenticator@{hosts}/{name}{options}"

    def read_uri(self, name: str, balance: str = "random") -> str:
        """Return the URI of a database on the standbys."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.standbys)
        return f"postgresql://authenticator@{hosts}/{name}?load_balance_hosts={balance}"

    def has_followed(self, database: Database) -> bool:
        """Whether the standbys have replayed all changes of the primary."""
        [(position,)] = database.execute("select pg_current_wal_insert_lsn()")
        there = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
        return all(one.admin.execute(there, (position,))[0][0] for one in self.standbys)

    def follow(self, database: Database) -> None:
        """Wait until the standbys have replayed all changes of the primary."""
        wait_for(lambda: self.has_followed(database), "the standby")


@contextmanager
def running_pair(others: int = 0) -> Iterator[Pair]:
    """Run a primary with one or more standbys."""
    pair = Pair(others)
    try:
        pair.create()
        yield pair
    finally:
        pair.remove()


def _processes(server: Server) -> list[int]:
    pidfile: Path = server.folder / "data" / "postmaster.pid"
    postmaster = int(pidfile.read_text().split()[0])
    with open(f"/proc/{postmaster}/task/{postmaster}/children") as listed:
        return [postmaster, *map(int, listed.read().split())]


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
