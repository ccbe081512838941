"""The pool: connections that heal, a queue with a limit, and no way for an identity to stay behind.

A message runs under its caller's role in a transaction of its own (see ``steps.Composer``).
A connection returns to the pool only when it is outside of any transaction, nothing runs on it, and no
cancel request is on its way to it; else it is closed.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from time import perf_counter
from typing import TYPE_CHECKING, Any

import psycopg
from twisted.internet import defer
from twisted.logger import Logger

from dataapi.concurrency.tasks import Background
from dataapi.concurrency.timers import RECONNECT_BACKOFF, Backoff
from dataapi.concurrency.wait_queue import Slots, WaitQueue
from dataapi.database import address, errors
from dataapi.database.cancel import ANSWER_TIMEOUT, Canceller, ControlConnection, cancelled, end_statement
from dataapi.database.connection import ConnectionDied, ServerStatus
from dataapi.database.connector import Connector
from dataapi.database.health import Ageing, Liveness
from dataapi.database.open_transaction import FIRST_FETCH, next_fetch
from dataapi.database.session import Session, SessionOptions, StartUp
from dataapi.http.errors import ApiError
from dataapi.http.messages import QueueWait, ignore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from dataapi.database.connection import Servers
    from dataapi.database.message import Message
    from dataapi.database.open_transaction import OpenTransaction
    from dataapi.database.steps import Rows
    from dataapi.http.messages import Fact


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """The figures of a pool.

    :ivar size: the maximum number of connections it may have.
    :ivar open: connections it has; ``idle`` of them are free and ``in_use`` are not.
    :ivar waiting: messages and streams that wait for a connection now.
    :ivar timeouts: messages and streams that waited until the time was over, since the start.
    :ivar connects: connections made, since the start.
    :ivar cancels: statements given up by their callers, since the start.
    """

    size: int
    open: int
    idle: int
    in_use: int
    waiting: int
    timeouts: int
    connects: int
    cancels: int


_token = partial(token_hex, 8)

BATCH = 65_536
"""Bytes of a stream's batch, about as many as Twisted buffers for a slow reader before it pauses."""


FETCHED_WITHIN = 30.0
"""Seconds that a statement of the daemon's own may take, unless its caller sets another limit."""


@dataclass(frozen=True, slots=True)
class TimedPool:
    """A pool whose own SQL has a time limit.

    :ivar seconds: see ``Pool.fetch``.
    """

    pool: Pool
    seconds: float

    async def fetch(self, text: str, values: Sequence[object] = ()) -> Rows:
        """Run the daemon's own SQL; see ``Pool.fetch``."""
        return await self.pool.fetch(text, values, within=self.seconds)


class Pool:
    """Connections to one database.

    :param uri: a libpq connection string, whose ``connect_timeout`` (seconds, 10 when it has none) limits
        each attempt; raises ``psycopg.ProgrammingError`` when it is none.
    :param size: the maximum number of connections, besides one that only carries cancel requests.
    :param acquisition_timeout: seconds that a message waits for a connection.
    :param options: how each connection is used.
    :param anonymous_role: the role for which a missing privilege is 401 and not 403.
    :param backoff: how long to wait between attempts to reconnect.
    :param token: gives random letters and digits, which set a connection's statements apart from all others.
    :ivar on_pooler: called when connections begin to lead to a pooler.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        uri: str,
        *,
        size: int = 10,
        acquisition_timeout: float = 10.0,
        options: SessionOptions = SessionOptions(),  # noqa: B008 - it is frozen
        anonymous_role: str = "anon",
        backoff: Backoff = RECONNECT_BACKOFF,
        token: Callable[[], str] = _token,
    ) -> None:
        self._reactor = reactor
        self._servers: Servers | None = None
        self._size = size
        self._anonymous_role = anonymous_role
        self._queue: WaitQueue[Session] = WaitQueue(reactor, acquisition_timeout, errors.timed_out)
        # An open transaction waits for its client, so that half of the connections are left to messages.
        self._slot_queue = WaitQueue[None](reactor, acquisition_timeout, errors.timed_out)
        self._slots = Slots(max(1, size // 2), self._slot_queue)
        self._canceller: Canceller = ControlConnection(reactor)
        self._sessions: set[Session] = set()
        self._idle: list[Session] = []
        self._outdated: set[Session] = set()
        self._renewals: list[defer.Deferred[None]] = []
        self._handing_over = False
        self._background = Background()
        self._start_up = StartUp()
        self._connector = Connector(
            reactor, uri, self._background,
            lambda: Session(reactor, options, token(), self._start_up, self._servers),
            opened=self._opened, failed=self._none_opened, grow=self._grow, backoff=backoff,
        )  # fmt: skip
        self._liveness = Liveness(
            reactor, self._background, self._sessions, self._idle, self._release, self._discard
        )
        self._ageing = Ageing(reactor, options, self._sessions, self._idle, self._discard, self._replace)
        self.on_pooler: Callable[[], None] | None = None
        self._stopped = True
        self._drained: defer.Deferred[None] | None = None
        self._cancels = 0

    async def start(self) -> None:
        """Try to connect once; when that fails, go on trying in the background."""
        self._stopped = False
        first_attempt = self._connector.start()
        self._grow()
        await first_attempt

    async def stop(self, grace: float = 5.0) -> None:
        """Refuse new messages, let running ones finish for ``grace`` seconds, then cancel and close."""
        self._stopped = True
        self._connector.stop()
        self._end_renewals()
        self._queue.fail_all(self._unavailable)
        self._slot_queue.fail_all(self._unavailable)
        while self._idle:
            self._discard(self._idle[-1])
        if self._sessions:
            self._drained = defer.Deferred()
            try:
                await self._drained.addTimeout(grace, self._reactor)
            except defer.TimeoutError:
                running = [session.connection for session in self._sessions]
                if not await cancelled(self._canceller, running, self._reactor):
                    self._log.warn("statements were still running when the pool was closed")
        self._background.cancel()
        for session in list(self._sessions):
            self._discard(session)
        self._canceller.close()

    def resize(self, size: int) -> None:
        """Have at most so many connections; those beyond that are closed as soon as they are free."""
        self._size = size
        while self._idle and len(self._sessions) > size:
            self._discard(self._idle[-1])
        self._outdated.update(tuple(self._sessions)[size:])
        self._grow()

    def renew(self) -> defer.Deferred[None]:
        """Replace every connection, those in use as soon as they are free.

        What ``alter database`` and ``alter role`` set for a session holds for those that begin afterwards.
        The present connections serve until there is a new one.

        :return: fires when messages get new connections, or none could be made.
        """
        self._start_up.forget()
        self._outdated = set(self._sessions)
        renewed: defer.Deferred[None] = defer.Deferred()
        self._renewals.append(renewed)
        if self._stopped or not self._sessions:
            self._end_renewals()
        else:
            self._connector.restart()
            self._grow()
        return renewed

    def _end_renewals(self) -> None:
        """Use outdated connections no more."""
        renewals, self._renewals = self._renewals, []
        for session in [one for one in self._idle if one in self._outdated]:
            self._discard(session)
        for renewed in renewals:
            renewed.callback(None)

    def follow(self, servers: Servers) -> None:
        """Use only the servers that may be used; to be called before the start."""
        self._servers = servers
        servers.observe(partial(self._leave_refused, servers))

    def abandon(self) -> None:
        """Close every connection, and refuse what waits for one: the server does not answer."""
        for session in tuple(self._sessions):
            self._discard(session)
        self._queue.fail_all(self._unavailable)
        self._slot_queue.fail_all(self._unavailable)

    def give_up(self, place: dict[str, str]) -> None:
        """Close every connection to a server at once."""
        key = address.server_key(place)
        self._leave(lambda session: address.server_key(session.connection.place) == key)

    def _leave_refused(self, servers: Servers) -> None:
        """Close connections to refused servers, and replace those to servers of which nothing is known."""
        status = {session: servers.status(session.connection) for session in self._sessions}
        for session in [one for one, known in status.items() if known is ServerStatus.UNKNOWN]:
            if session in self._idle:
                self._discard(session)
            else:
                self._outdated.add(session)
        self._leave(lambda session: status.get(session) is ServerStatus.REFUSED)

    def _leave(self, chosen: Callable[[Session], bool]) -> None:
        self._start_up.forget()
        self._connector.restart()
        for session in filter(chosen, tuple(self._sessions)):
            self._discard(session)
        self._grow()

    @property
    def available(self) -> bool:
        """Whether there is a connection to the database now, and no reason to think that it is dead."""
        return bool(self._sessions) and not self._liveness.silent

    async def watch(self) -> None:
        """Replace connections that are old or whose server does not answer, until it is cancelled."""
        self._background.spawn(self._ageing.watch())
        await self._liveness.watch()

    async def check(self) -> None:
        """Find out at once whether the database answers, and set ``available`` and ``trouble``."""
        await self._liveness.check()

    @property
    def trouble(self) -> str | None:
        """Why the last attempt to connect failed, or that the database does not answer; None when neither."""
        return self._connector.trouble or ("it does not answer" if self._liveness.silent else None)

    @property
    def pooled(self) -> bool:
        """Whether there are connections that lead to a pooler."""
        return any(session.connection.pooled for session in self._sessions)

    def figures(self) -> PoolFigures:
        """Return the figures of the pool, for metrics."""
        count, idle = len(self._sessions), len(self._idle)
        return PoolFigures(
            size=self._size, open=count, idle=idle, in_use=count - idle,
            waiting=len(self._queue.waiting) + len(self._slot_queue.waiting),
            timeouts=self._queue.timeouts + self._slot_queue.timeouts,
            connects=self._connector.connects, cancels=self._cancels,
        )  # fmt: skip

    async def run(self, message: Message) -> Rows:
        """Run a message under its role in one round trip and return the last statement's rows.

        Cancelled, it fails at once and the server is asked to end the statement.  Raises
        ``DatabaseError`` for what PostgreSQL refuses, ``DatabaseUnavailable`` when there is no
        connection or it died, and ``ApiError`` for values that PostgreSQL cannot hold.
        """
        session = self._idle.pop() if self._idle else await self._wait(message.context.report)
        try:
            return await session.run(message, anonymous=message.role == self._anonymous_role)
        except ApiError as error:
            raise await session.explained(error, message) from error.__cause__
        finally:
            self._release(session)

    async def fetch(
        self, text: str, values: Sequence[object] = (), *, within: float = FETCHED_WITHIN
    ) -> Rows:
        """Run the daemon's own SQL as the login role and return the last statement's rows.

        Statements separated by ``;`` are one transaction.  ``$1`` … are values of any Python type
        that psycopg knows; write ``$1::type`` where PostgreSQL cannot infer it.  Raises like ``run``.

        :param within: seconds after which the statement and its connection are given up, because the
            connection may be one that nothing answers any more although a proxy keeps it open.
        """
        session = self._idle.pop() if self._idle else await self._wait()
        try:
            fetching = defer.Deferred.fromCoroutine(session.fetch(text, values))
            return await fetching.addTimeout(within, self._reactor)
        except defer.TimeoutError:
            self._background.spawn(self._liveness.check())
            raise errors.silent(within) from None
        except psycopg.Error as error:
            raise errors.refused(error, anonymous=False) from error
        except ConnectionDied as error:
            raise errors.died(error.__cause__) from error
        finally:
            self._release(session)

    def within(self, seconds: float) -> TimedPool:
        """Return what runs the daemon's own SQL with this limit."""
        return TimedPool(self, seconds)

    async def stream(self, message: Message, batch: int = BATCH) -> AsyncGenerator[Rows, None]:
        """Run a message that only reads, and give its last statement's rows in batches of ``batch`` bytes.

        The next batch is fetched when it is asked for.  A caller that does not read to the end closes the
        generator, which closes the connection.  Raises like ``run``.
        """
        async with self._transaction(message) as transaction:
            rows, requested = await transaction.open_cursor(message), FIRST_FETCH
            while len(rows) == requested:
                requested = next_fetch(requested, sum(len(row[0] or "") for row in rows), batch)
                yield rows
                rows = await transaction.fetch(requested)
            await transaction.end()
        # The connection serves others already.
        if rows:
            yield rows

    @asynccontextmanager
    async def open_transaction(self, message: Message) -> AsyncGenerator[OpenTransaction, None]:
        """Begin a transaction of several messages with this one, for the block to continue and to end.

        An error in the block rolls it back.  Raises like ``run``.
        """
        async with self._transaction(message) as transaction:
            await transaction.begin(message)
            yield transaction

    @asynccontextmanager
    async def _transaction(self, message: Message) -> AsyncGenerator[OpenTransaction, None]:
        report, began = message.context.report, perf_counter()
        try:
            await self._slots.acquire(message.caller)
        finally:
            report(QueueWait(began, perf_counter()))
        try:
            session = self._idle.pop() if self._idle else await self._wait(report)
            transaction = session.transaction(message.context, anonymous=message.role == self._anonymous_role)
            try:
                yield transaction
            except ApiError as error:
                await transaction.roll_back()
                raise await session.explained(error, message) from error.__cause__
            finally:
                transaction.report_rest()
                self._release(session)
        finally:
            self._slots.release(message.caller)

    async def _wait(self, report: Callable[[Fact], None] = ignore) -> Session:
        """Wait for a free connection, and report how long."""
        if self._stopped or (self._connector.failing and not self._sessions):
            raise self._unavailable()
        began = perf_counter()
        place = self._queue.join()
        self._grow()
        try:
            return await place
        finally:
            report(QueueWait(began, perf_counter()))

    def _release(self, session: Session) -> None:
        if session.connection.lost:
            return
        clean = session.clean
        outdated = session in self._outdated and not self._renewals
        if self._stopped or (clean and outdated):
            self._discard(session)
        elif clean:
            self._idle.append(session)
            if self._queue.waiting:
                self._hand_over()
        else:
            self._background.spawn(self._settle(session))

    def _hand_over(self) -> None:
        """Give free connections to those that wait; a loop, as a message may fail and return at once."""
        if self._handing_over:
            return
        self._handing_over = True
        try:
            while self._idle and self._queue.waiting:
                self._queue.serve(self._idle.pop())
        finally:
            self._handing_over = False

    async def _settle(self, session: Session) -> None:
        """Bring a connection into a known state after its caller is gone, or close it."""
        try:
            if session.connection.busy:
                self._cancels += 1
                session.cancelling = True
                ended = await end_statement(self._canceller, session.connection, self._reactor)
                session.cancelling = not ended
            settling = defer.Deferred.fromCoroutine(session.settle())
            await settling.addTimeout(ANSWER_TIMEOUT, self._reactor)
        except (ConnectionDied, psycopg.Error, defer.TimeoutError) as error:
            self._log.info("closing a database connection in an unknown state: {error}", error=error)
        finally:
            if session.clean:
                self._release(session)
            elif not session.connection.lost:
                self._discard(session)

    def _grow(self) -> None:
        """Have as many connections as are asked for, at least one."""
        if not self._stopped:
            in_use = len(self._sessions) - len(self._idle)
            number = min(self._size, max(1, in_use + len(self._queue.waiting)))
            if self._renewals:
                number = max(number, len(self._sessions) + 1)
            self._connector.open(number, len(self._sessions))

    def _opened(self, session: Session) -> None:
        self._liveness.silent = False
        session.connection.on_lost = lambda: self._discard(session)
        first_pooled = session.connection.pooled and not self.pooled
        self._sessions.add(session)
        if self._renewals:
            self._end_renewals()
        if first_pooled and self.on_pooler is not None:
            self.on_pooler()
        self._release(session)

    def _none_opened(self) -> None:
        """Answer those that wait when there is no connection at all."""
        if self._renewals:
            self._end_renewals()
        if not self._sessions:
            self._queue.fail_all(self._unavailable)

    def _replace(self, session: Session) -> None:
        """Close a connection as soon as it is free and there is another one, for which there must be room."""
        if len(self._sessions) == 1 < self._size:
            self._connector.open(2, present=1)
        elif session in self._idle:
            self._discard(session)
        else:
            self._outdated.add(session)

    def _discard(self, session: Session) -> None:
        """Close a connection and let another take its place."""
        session.connection.close()
        self._sessions.discard(session)
        self._outdated.discard(session)
        if session in self._idle:
            self._idle.remove(session)
        if self._drained is not None and not self._sessions:
            drained, self._drained = self._drained, None
            drained.callback(None)
        if self._connector.waiting:
            self._none_opened()
        self._grow()

    def _unavailable(self) -> ApiError:
        return errors.stopped() if self._stopped else errors.unreachable(self._connector.remaining)
