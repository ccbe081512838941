"""Reads on replicas, with fallback to the primary.

Reads can be repeated safely. If a replica cannot run a read, another server runs it, and the client does not
notice.
"""

from __future__ import annotations

import random
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from dataapi.concurrency.tasks import Background, concurrently, next_item
from dataapi.database import address
from dataapi.database.message import Bound, Statement
from dataapi.database.positions import BEGINNING, PrimaryProgress
from dataapi.database.server_watch import ServerWatch
from dataapi.http.errors import ApiError, DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from dataapi.database.message import Message
    from dataapi.database.open_transaction import OpenTransaction
    from dataapi.database.pool import Pool, PoolFigures
    from dataapi.database.steps import Rows
    from dataapi.database.succession import Lineage, Succession

POLL_INTERVAL = 0.5
"""Maximum seconds between polls of all servers. A low lag limit requires more frequent polls."""
_POLLS_PER_LIMIT = 4

# This statement fails on a replica that has not replayed the WAL up to the position, because casting the
# position to an integer raises an error. It also fails in a stricter isolation level, because the snapshot of
# the following statements may then be older than the position.
_REPLAYED = Statement(
    "select case when not pg_catalog.pg_is_in_recovery() or "
    "(pg_catalog.pg_last_wal_replay_lsn() >= $1"
    " and pg_catalog.current_setting('transaction_isolation') = 'read committed')"
    " then 0 else coalesce(pg_catalog.pg_last_wal_replay_lsn()::text, '')::int end",
    ("pg_lsn",),
)
_NOT_REPLAYED = "22P02"
_SERVER_ERRORS = ("0A", "22023", "25", "40", "42", "53", "55", "58", "XX")
"""Prefixes of SQLSTATEs that may depend on the server and not on the request.

Examples are conflicts with recovery, features that a standby lacks, and names, roles and privileges that have
not been replicated yet. Statements that timed out are not retried.
"""


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """Statistics of a replica. ``obstacle`` is why the replica receives no reads. ``lag`` is in seconds.

    ``repeated`` is the number of reads that failed on the replica and were repeated on another server.
    """

    server: str
    obstacle: str | None
    lag: float | None
    reads: int
    repeated: int
    pool: PoolFigures

    @property
    def available(self) -> bool:
        return self.obstacle is None


class Replica:
    """One of the servers in ``db-read-uri``. ``server`` is its host and port."""

    _log = Logger()

    def __init__(self, server: str, pool: Pool, watch: ServerWatch, succession: Succession) -> None:
        self.server = server
        self.pool = pool
        self.watch = watch
        self.lag: float | None = None
        self.reads = 0
        self.repeated = 0
        self._succession = succession
        self._obstacle: str | None = "it has not been polled yet"
        self._logged: str | None = None

    def assess(self, progress: PrimaryProgress, max_lag: float | None, *, only_standby: bool) -> None:
        state = self.watch.state
        self.lag = None if state is None else progress.lag(state.position)
        if state is None:
            self._obstacle = self.watch.trouble
        elif only_standby and not state.standby:
            self._obstacle = "it is not a standby"
        elif max_lag is not None and (self.lag is None or self.lag > max_lag):
            lag = "unknown lag" if self.lag is None else f"{self.lag:.1f} s"
            self._obstacle = f"it lags by more than db-read-max-lag: {lag}"
        else:
            self._obstacle = None
        self._log_change()

    @property
    def obstacle(self) -> str | None:
        """Why the replica receives no reads, or None.

        If a newer primary is known, a replica may lack recent transactions unless it is known to follow that
        primary.
        """
        state = self.watch.state
        if self._obstacle is None and state is not None and not self._succession.is_current(state.lineage):
            return f"it is not known to follow the new primary: it is on timeline {state.lineage.timeline}"
        if self._obstacle is None and not self.pool.available:
            return f"there is no connection to it: {self.pool.trouble or 'not connected yet'}"
        return self._obstacle

    def has_reached(self, timeline: int) -> bool:
        return self.watch.state is not None and self.watch.state.lineage.timeline >= timeline

    def _log_change(self) -> None:
        obstacle = self.obstacle
        previous, self._logged = self._logged, obstacle and obstacle.partition(":")[0]
        if self._logged == previous:
            return
        if obstacle is None:
            self._log.info("replica {server} gets reads", server=self.server)
        else:
            self._log.warn("replica {server} gets no reads: {reason}", server=self.server, reason=obstacle)

    def figures(self) -> ReplicaFigures:
        return ReplicaFigures(
            self.server, self.obstacle, self.lag, self.reads, self.repeated, self.pool.figures()
        )


class Replicas:
    """Runs reads on replicas, and other transactions on the primary.

    :param uri: connection string for the replicas. With ``load_balance_hosts=random``, the replicas share the
        reads. Otherwise, the first available replica gets all reads.
    :param primary_uri: connection string for the primary, to determine the lag of the replicas.
    :param max_lag: maximum lag of a replica in seconds, None for no limit.
    :param make_pool: returns a connection pool for a connection string.
    :param succession: shared with the connections to the primary.
    :ivar fallbacks: number of reads that the primary ran because no replica could.
    """

    def __init__(
        self,
        reactor: Any,
        primary: Pool,
        primary_uri: str,
        uri: str,
        max_lag: float | None,
        make_pool: Callable[[str], Pool],
        succession: Succession,
    ) -> None:
        self._reactor = reactor
        self._primary = primary
        self._succession = succession
        self._primary_watch = ServerWatch(reactor, primary_uri, succession)
        self._max_lag = max_lag
        self._shuffles = address.balances(uri)
        self._only_standby = address.prefers_standbys(uri)
        self._replicas = [
            Replica(server, make_pool(one), ServerWatch(reactor, one), succession)
            for server, one in address.servers(uri).items()
        ]
        self._progress = PrimaryProgress()
        self._lineage: Lineage | None = None
        self._background = Background()
        self.fallbacks = 0

    async def start(self) -> None:
        for replica in self._replicas:
            self._background.spawn(replica.pool.start())
            self._background.spawn(replica.pool.watch())
        await self.poll()
        self._background.spawn(self._watch())

    async def stop(self) -> None:
        self._background.cancel()
        for watch in self._watches():
            watch.close()
        await concurrently(replica.pool.stop() for replica in self._replicas)

    def _watches(self) -> list[ServerWatch]:
        return [self._primary_watch, *[replica.watch for replica in self._replicas]]

    def resize(self, size: int) -> None:
        for replica in self._replicas:
            replica.pool.resize(size)

    def renew(self) -> list[Deferred[None]]:
        return [replica.pool.renew() for replica in self._replicas]

    def figures(self) -> list[ReplicaFigures]:
        return [replica.figures() for replica in self._replicas]

    async def _watch(self) -> None:
        interval = min(POLL_INTERVAL, (self._max_lag or POLL_INTERVAL) / _POLLS_PER_LIMIT)
        while True:
            await task.deferLater(self._reactor, interval)
            await self.poll()

    async def poll(self) -> None:
        await concurrently(watch.poll() for watch in self._watches())
        primary = self._primary_watch.state
        if primary is not None:
            self._succession.add_primary(primary.lineage)
        for replica in self._replicas:
            if replica.watch.state is not None:
                self._succession.add_server(replica.watch.state.lineage)
            elif replica.watch.silent:
                # Reads that are running on the replica will be repeated elsewhere.
                replica.pool.abandon()
        lineage = None if primary is None else primary.lineage
        if self._succession.is_outdated(self._lineage) or lineage not in (None, self._lineage):
            # The old primary's positions cannot be compared with the new primary's.
            self._lineage = lineage
            self._progress = PrimaryProgress()
        if not self._progress.has_data and primary is not None:
            self._progress.record(primary.position, self._reactor.seconds())
        for replica in self._replicas:
            # Compare with the primary's position at the previous poll, because replay takes time.
            replica.assess(self._progress, self._max_lag, only_standby=self._only_standby)
        if primary is not None:
            self._progress.record(primary.position, self._reactor.seconds())

    def _available(self, message: Message) -> Iterator[Replica]:
        replicas = list(self._replicas)
        if self._shuffles:
            random.shuffle(replicas)
        for replica in sorted(replicas, key=self._load):
            if replica.obstacle is None and replica.has_reached(message.required_position.timeline):
                yield replica

    def _load(self, replica: Replica) -> int:
        """Return the sort key of a replica: its load if reads are shared or the replica is busy, else 0."""
        figures = replica.pool.figures()
        if self._shuffles or figures.waiting or figures.in_use >= figures.size:
            return figures.in_use + figures.waiting
        return 0

    async def run(self, message: Message) -> Rows:
        """Run a message on an available replica, or on the primary if there is none. See ``Pool.run``."""
        if not message.by_replica:
            return await self._primary.run(message)
        guarded = _guarded(message)
        for replica in self._available(message):
            try:
                rows = await replica.pool.run(guarded)
            except ApiError as error:
                _check_repeatable(replica, message, error)
            else:
                replica.reads += 1
                return rows
        self.fallbacks += 1
        return await self._primary.run(message)

    async def stream(self, message: Message) -> AsyncGenerator[Rows, None]:
        """Stream rows like ``Pool.stream``. A read that fails after the first batch is not repeated."""
        if message.by_replica:
            guarded = _guarded(message)
            for replica in self._available(message):
                async with aclosing(replica.pool.stream(guarded)) as batches:
                    try:
                        first = await next_item(batches, None)
                    except ApiError as error:
                        _check_repeatable(replica, message, error)
                        continue
                    replica.reads += 1
                    if first is not None:
                        yield first
                    async for rows in batches:
                        yield rows
                    return
            self.fallbacks += 1
        async with aclosing(self._primary.stream(message)) as batches:
            async for rows in batches:
                yield rows

    def open_transaction(self, message: Message) -> AbstractAsyncContextManager[OpenTransaction]:
        return self._primary.open_transaction(message)


def _guarded(message: Message) -> Message:
    if message.required_position == BEGINNING:
        return message
    guard = Bound(_REPLAYED, (message.required_position.lsn,))
    return message._replace(statements=(guard, *message.statements))


def _check_repeatable(replica: Replica, message: Message, error: ApiError) -> None:
    behind = message.required_position != BEGINNING and error.code == _NOT_REPLAYED
    if not (behind or isinstance(error, DatabaseUnavailable) or error.code.startswith(_SERVER_ERRORS)):
        raise error
    replica.repeated += 1
