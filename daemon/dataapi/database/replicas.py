"""Reads on replicas: which server runs a message, and when the primary runs it after all.

A read is safe to repeat, so that whatever a replica cannot do is done elsewhere before a client learns of it.
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

LOOK_INTERVAL = 0.5
"""Seconds between two looks at where the servers are; a short limit of the lag takes more of them."""
_LOOKS = 4

# It raises by casting a position to an integer.  Under a stricter isolation level the snapshot of what
# follows may be older than the position.
_REPLAYED = Statement(
    "select case when not pg_catalog.pg_is_in_recovery() or "
    "(pg_catalog.pg_last_wal_replay_lsn() >= $1"
    " and pg_catalog.current_setting('transaction_isolation') = 'read committed')"
    " then 0 else coalesce(pg_catalog.pg_last_wal_replay_lsn()::text, '')::int end",
    ("pg_lsn",),
)
_NOT_REPLAYED = "22P02"
_OF_THE_SERVER = ("0A", "22023", "25", "40", "42", "53", "55", "58", "XX")
"""Beginnings of the SQLSTATEs that may have to do with the server and not with the request.

Among them are conflicts with recovery, what a standby cannot do, and names, roles and privileges that it does
not know yet.  A statement that took too long is not run again.
"""


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """The figures of a replica.

    :ivar obstacle: why it gets no reads, None while it does.
    :ivar lag: seconds that it is behind the primary, None where that is not known.
    :ivar reads: how many it answered, ``repeated`` how many it did not, so that others did.
    """

    server: str
    obstacle: str | None
    lag: float | None
    reads: int
    repeated: int
    pool: PoolFigures

    @property
    def available(self) -> bool:
        """Whether it gets reads."""
        return self.obstacle is None


class Replica:
    """One of the servers that ``db-read-uri`` lists.

    :ivar server: its host and port.
    :ivar pool: the connections to it.
    :ivar watch: knows its position.
    """

    _log = Logger()

    def __init__(self, server: str, pool: Pool, watch: ServerWatch, succession: Succession) -> None:
        self.server = server
        self.pool = pool
        self.watch = watch
        self.lag: float | None = None
        self.reads = 0
        self.repeated = 0
        self._succession = succession
        self._obstacle: str | None = "it has not been asked yet"
        self._logged: str | None = None

    def judge(self, progress: PrimaryProgress, max_lag: float | None, *, only_standby: bool) -> None:
        """Decide whether the server is current, by the last looks at it and at the primary."""
        state = self.watch.state
        self.lag = None if state is None else progress.lag(state.position)
        if state is None:
            self._obstacle = self.watch.trouble
        elif only_standby and not state.standby:
            self._obstacle = "it is no standby"
        elif max_lag is not None and (self.lag is None or self.lag > max_lag):
            behind = "it is not known how far" if self.lag is None else f"{self.lag:.1f} s"
            self._obstacle = f"it is behind by more than db-read-max-lag: {behind}"
        else:
            self._obstacle = None
        self._report()

    @property
    def obstacle(self) -> str | None:
        """Why it gets no reads, None while it does.

        Once a newer primary was seen, a server that is not known to follow it may lack transactions that it
        has acknowledged since.
        """
        state = self.watch.state
        if self._obstacle is None and state is not None and not self._succession.follows(state.lineage):
            return f"it is not known to follow the primary: it was seen on timeline {state.lineage.timeline}"
        if self._obstacle is None and not self.pool.available:
            return f"there is no connection to it: {self.pool.trouble or 'none was made yet'}"
        return self._obstacle

    def reaches(self, timeline: int) -> bool:
        """Return whether the server is known to have come to a timeline, which others may have seen first."""
        return self.watch.state is not None and self.watch.state.lineage.timeline >= timeline

    def _report(self) -> None:
        """Log a change of the obstacle; a change only of the lag, or of its wording, is no news."""
        obstacle = self.obstacle
        before, self._logged = self._logged, obstacle and obstacle.partition(":")[0]
        if self._logged == before:
            return
        if obstacle is None:
            self._log.info("replica {server} gets reads", server=self.server)
        else:
            self._log.warn("replica {server} gets no reads: {reason}", server=self.server, reason=obstacle)

    def figures(self) -> ReplicaFigures:
        """Return the figures of the replica."""
        return ReplicaFigures(
            self.server, self.obstacle, self.lag, self.reads, self.repeated, self.pool.figures()
        )


class Replicas:
    """Runs messages on the primary, and those that only read on replicas.

    :param uri: leads to the replicas; with ``load_balance_hosts=random`` they share the reads, else the first
        one that is available takes them.
    :param primary_uri: leads to the primary, to which they are compared.
    :param max_lag: seconds that a replica may be behind; None is no limit.
    :param make_pool: returns a pool of connections to where a connection string leads.
    :param succession: knows the servers; the connections to the primary share it.
    :ivar fallbacks: how many reads the primary answered because no replica could.
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
        self._only_standby = address.leads_to_standbys(uri)
        self._replicas = [
            Replica(server, make_pool(one), ServerWatch(reactor, one), succession)
            for server, one in address.servers(uri).items()
        ]
        self._progress = PrimaryProgress()
        self._lineage: Lineage | None = None
        self._background = Background()
        self.fallbacks = 0

    async def start(self) -> None:
        """Begin to connect, and find out once which replicas are available."""
        for replica in self._replicas:
            self._background.spawn(replica.pool.start())
            self._background.spawn(replica.pool.watch())
        await self.look()
        self._background.spawn(self._watch())

    async def stop(self) -> None:
        """Let running messages end and close every connection to the replicas."""
        self._background.cancel()
        for watch in self._watches():
            watch.close()
        await concurrently(replica.pool.stop() for replica in self._replicas)

    def _watches(self) -> list[ServerWatch]:
        return [self._primary_watch, *[replica.watch for replica in self._replicas]]

    def resize(self, size: int) -> None:
        """Have so many connections to each replica at most."""
        for replica in self._replicas:
            replica.pool.resize(size)

    def renew(self) -> list[Deferred[None]]:
        """Replace every connection to the replicas; see ``Pool.renew``."""
        return [replica.pool.renew() for replica in self._replicas]

    def figures(self) -> list[ReplicaFigures]:
        """Return the figures of the replicas."""
        return [replica.figures() for replica in self._replicas]

    async def _watch(self) -> None:
        interval = min(LOOK_INTERVAL, (self._max_lag or LOOK_INTERVAL) / _LOOKS)
        while True:
            await task.deferLater(self._reactor, interval)
            await self.look()

    async def look(self) -> None:
        """Find out where all servers are, and judge the replicas by it."""
        await concurrently(watch.look() for watch in self._watches())
        primary = self._primary_watch.state
        if primary is not None:
            self._succession.see(primary.lineage)
        for replica in self._replicas:
            if replica.watch.state is not None:
                self._succession.hear(replica.watch.state.lineage)
            elif replica.watch.silent:
                # Its reads are repeated elsewhere.
                replica.pool.abandon()
        lineage = None if primary is None else primary.lineage
        if self._succession.overtaken(self._lineage) or lineage not in (None, self._lineage):
            # Positions before say nothing of how far one is behind the new primary.
            self._lineage = lineage
            self._progress = PrimaryProgress()
        if not self._progress.known and primary is not None:
            self._progress.see(primary.position, self._reactor.seconds())
        for replica in self._replicas:
            # By where the primary was at the last look: nothing is replayed at once.
            replica.judge(self._progress, self._max_lag, only_standby=self._only_standby)
        if primary is not None:
            self._progress.see(primary.position, self._reactor.seconds())

    def _available(self, message: Message) -> Iterator[Replica]:
        """Give the replicas that may run a message, the one first that is to be asked first."""
        found = list(self._replicas)
        if self._shuffles:
            random.shuffle(found)
        for replica in sorted(found, key=self._burden):
            if replica.obstacle is None and replica.reaches(message.required_position.timeline):
                yield replica

    def _burden(self, replica: Replica) -> int:
        """Return how much a replica has to do, for which others are preferred."""
        figures = replica.pool.figures()
        if self._shuffles or figures.waiting or figures.in_use >= figures.size:
            return figures.in_use + figures.waiting
        return 0

    async def run(self, message: Message) -> Rows:
        """Run a message as ``Pool.run`` does, on a replica where one may and can."""
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
        """Stream rows as ``Pool.stream`` does; what fails behind the first of them is not repeated."""
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
        """Begin a transaction of several messages on the primary."""
        return self._primary.open_transaction(message)


def _guarded(message: Message) -> Message:
    """Return the message as one that fails where the position that it requires is not replayed."""
    if message.required_position == BEGINNING:
        return message
    guard = Bound(_REPLAYED, (message.required_position.lsn,))
    return message._replace(statements=(guard, *message.statements))


def _check_repeatable(replica: Replica, message: Message, error: ApiError) -> None:
    """Raise the error unless another server may do better."""
    behind = message.required_position != BEGINNING and error.code == _NOT_REPLAYED
    if not (behind or isinstance(error, DatabaseUnavailable) or error.code.startswith(_OF_THE_SERVER)):
        raise error
    replica.repeated += 1
