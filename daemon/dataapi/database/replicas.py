"""Reads on replicas: which server runs a message, and when the primary runs it after all.

A read is safe to repeat, so that whatever a replica cannot do is done elsewhere before a client learns of it.
"""

from __future__ import annotations

import random
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg2
from twisted.internet import defer, task
from twisted.logger import Logger

from dataapi.concurrency.tasks import Background
from dataapi.database import address
from dataapi.database.connection import Connection, ConnectionDied
from dataapi.database.message import Bound, Statement
from dataapi.database.positions import PrimaryProgress
from dataapi.http.errors import ApiError, DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from dataapi.database.connection import Rows
    from dataapi.database.message import Message
    from dataapi.database.pool import Pool, PoolFigures
    from dataapi.database.session import OpenTransaction

_LOOK_EVERY = 1.0
"""Seconds between two looks at where the servers are; a short limit of the lag takes more of them."""
_LOOKS = 4
_ANSWERS_WITHIN = 2.0
"""Seconds after which a replica that does not answer gets no reads."""

_WHERE = """
select pg_catalog.pg_is_in_recovery(), (case when pg_catalog.pg_is_in_recovery()
    then coalesce(pg_catalog.pg_last_wal_replay_lsn(), '0/0')
    else pg_catalog.pg_current_wal_flush_lsn() end - '0/0')::bigint
"""
"""Asks whether a server is a standby, and for the position that it has replayed or written."""

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
    """What a replica is doing.

    :ivar lag: seconds that it is behind the primary, None where that is not known.
    :ivar usable: whether it gets reads.
    :ivar reads: how many it answered, ``repeated`` how many it did not, so that others did.
    """

    server: str
    usable: bool
    lag: float | None
    reads: int
    repeated: int
    pool: PoolFigures


class _Watched:
    """A server that is asked now and then where it is, over a connection of its own.

    :ivar is_standby: whether it cannot be written to.
    :ivar position: what it has replayed or written, None while it does not answer.
    """

    def __init__(self, reactor: Any, uri: str) -> None:
        self._reactor = reactor
        self._parameters = address.parameters(uri)
        self._connection: Connection | None = None
        self.is_standby = False
        self.position: int | None = None

    async def look(self) -> None:
        """Find out where the server is."""
        asked = defer.Deferred.fromCoroutine(self._ask())
        try:
            self.is_standby, self.position = await asked.addTimeout(_ANSWERS_WITHIN, self._reactor)
        except (ConnectionDied, psycopg2.Error, defer.TimeoutError):
            self.position = None
            self.close()

    async def _ask(self) -> tuple[bool, int]:
        if self._connection is None or self._connection.lost:
            self._connection = Connection(self._reactor)
            await self._connection.open(self._parameters, _ANSWERS_WITHIN)
        [(is_standby, position)] = await self._connection.send(_WHERE, ())
        return is_standby, position

    def close(self) -> None:
        """Close the connection; the next look opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Replica:
    """One of the servers that ``db-read-uri`` lists.

    :ivar server: its host and port.
    :ivar pool: the connections to it.
    :ivar usable: whether it gets reads.
    """

    _log = Logger()

    def __init__(self, server: str, pool: Pool, watched: _Watched) -> None:
        self.server = server
        self.pool = pool
        self.watched = watched
        self.lag: float | None = None
        self.usable = False
        self.reads = 0
        self.repeated = 0

    def judge(self, progress: PrimaryProgress, max_lag: float | None, *, only_standby: bool) -> None:
        """Decide whether the server gets reads, by what was seen of it and of the primary."""
        position, was_usable = self.watched.position, self.usable
        self.lag = None if position is None else progress.lag(position)
        current = max_lag is None or (self.lag is not None and self.lag <= max_lag)
        suitable = self.watched.is_standby or not only_standby
        self.usable = position is not None and current and suitable
        if self.usable is not was_usable:
            self._log.info(
                "{server} gets reads: {usable}; lag {lag}",
                server=self.server,
                usable=self.usable,
                lag=self.lag,
            )

    def figures(self) -> ReplicaFigures:
        """Return what the replica is doing."""
        usable = self.usable and self.pool.available
        return ReplicaFigures(self.server, usable, self.lag, self.reads, self.repeated, self.pool.figures())


class Replicas:
    """Runs messages on the primary, and those that only read on replicas.

    :param uri: leads to the replicas; with ``load_balance_hosts=random`` they share the reads, else the first
        one that is usable takes them.
    :param primary_uri: leads to the primary, to which they are compared.
    :param max_lag: seconds that a replica may be behind; None is no limit.
    :param make_pool: returns a pool of connections to where a connection string leads.
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
    ) -> None:
        self._reactor = reactor
        self._primary = primary
        self._watched = _Watched(reactor, primary_uri)
        self._max_lag = max_lag
        self._shuffles = address.balances(uri)
        self._only_standby = address.leads_to_standbys(uri)
        self._replicas = [
            Replica(server, make_pool(one), _Watched(reactor, one))
            for server, one in address.servers(uri).items()
        ]
        self._progress = PrimaryProgress()
        self._background = Background()
        self.fallbacks = 0

    async def start(self) -> None:
        """Begin to connect, and find out once which replicas are usable."""
        for replica in self._replicas:
            self._background.spawn(replica.pool.start())
            self._background.spawn(replica.pool.watch())
        await self.look()
        self._background.spawn(self._watch())

    async def stop(self) -> None:
        """Let running messages end and close every connection to the replicas."""
        self._background.cancel()
        for watched in (self._watched, *[replica.watched for replica in self._replicas]):
            watched.close()
        await defer.gatherResults(
            [defer.Deferred.fromCoroutine(replica.pool.stop()) for replica in self._replicas]
        )

    def renew(self) -> None:
        """Open every connection to the replicas anew."""
        for replica in self._replicas:
            replica.pool.renew()

    def figures(self) -> list[ReplicaFigures]:
        """Return what the replicas are doing."""
        return [replica.figures() for replica in self._replicas]

    async def _watch(self) -> None:
        every = min(_LOOK_EVERY, (self._max_lag or _LOOK_EVERY) / _LOOKS)
        while True:
            await task.deferLater(self._reactor, every)
            await self.look()

    async def look(self) -> None:
        """Find out where all servers are, and judge the replicas by it."""
        everybody = [self._watched, *[replica.watched for replica in self._replicas]]
        await defer.gatherResults([defer.Deferred.fromCoroutine(each.look()) for each in everybody])
        if not self._progress.known and self._watched.position is not None:
            self._progress.see(self._watched.position, self._reactor.seconds())
        for replica in self._replicas:
            # By where the primary was at the last look: nothing is replayed at once.
            replica.judge(self._progress, self._max_lag, only_standby=self._only_standby)
        if self._watched.position is not None:
            self._progress.see(self._watched.position, self._reactor.seconds())

    def _usable(self) -> list[Replica]:
        found = [replica for replica in self._replicas if replica.usable and replica.pool.available]
        if self._shuffles and len(found) > 1:
            random.shuffle(found)
        return found

    async def run(self, message: Message) -> Rows:
        """Run a message as ``Pool.run`` does, on a replica where one may and can."""
        if message.replayed is None:
            return await self._primary.run(message)
        guarded = _guarded(message)
        for replica in self._usable():
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
        if message.replayed is not None:
            guarded = _guarded(message)
            for replica in self._usable():
                async with aclosing(replica.pool.stream(guarded)) as batches:
                    try:
                        first = await anext(batches, None)
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
    if not message.replayed:
        return message
    return replace(message, statements=(Bound(_REPLAYED, (message.replayed,)), *message.statements))


def _check_repeatable(replica: Replica, message: Message, error: ApiError) -> None:
    """Raise the error unless another server may do better."""
    behind = bool(message.replayed) and error.code == _NOT_REPLAYED
    if not (behind or isinstance(error, DatabaseUnavailable) or error.code.startswith(_OF_THE_SERVER)):
        raise error
    replica.repeated += 1
    message.facts.sqlstate = ""
