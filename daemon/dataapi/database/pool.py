"""The connection pool.

Each message runs under its caller's role in its own transaction (see ``steps.Composer``). A connection only
returns to the pool if it is outside of any transaction, runs nothing, and no cancel request for it is
pending. Otherwise it is closed, so that no identity is carried over to the next caller.
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
from dataapi.database.cancel import RESPONSE_TIMEOUT, Canceller, ControlConnection, cancel_all, end_statement
from dataapi.database.connection import ConnectionFailed, ServerStatus
from dataapi.database.connector import Connector
from dataapi.database.express_lane import ExpressLane, LaneFigures
from dataapi.database.health import Ageing, Liveness
from dataapi.database.open_transaction import FIRST_FETCH, next_fetch
from dataapi.database.session import NeedsOwnConnection, Session, SessionOptions, StartUp
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
    """Numbers of connections (``size`` is the maximum), and of messages and streams that wait for them.

    Totals: waits that timed out, connections established, and statements abandoned by their callers.
    """

    size: int
    open: int
    idle: int
    in_use: int
    waiting: int
    timeouts: int
    connects: int
    cancels: int
    lane: LaneFigures


_token = partial(token_hex, 8)

BATCH = 65_536
"""Approximate size of a stream's batch, in bytes. Twisted buffers this amount before it pauses a producer."""


FETCH_TIMEOUT = 30.0
"""Default timeout for the daemon's own statements, in seconds."""


@dataclass(frozen=True, slots=True)
class TimedPool:
    """A pool with a timeout for the daemon's own SQL, in seconds (see ``Pool.fetch``)."""

    pool: Pool
    seconds: float

    async def fetch(self, text: str, values: Sequence[object] = ()) -> Rows:
        return await self.pool.fetch(text, values, timeout=self.seconds)


class Pool:
    """Connections to one database.

    :param uri: libpq connection string. ``connect_timeout`` limits each attempt (default: 10 seconds).
    :param size: maximum number of connections, not counting the connection for cancel requests.
    :param acquisition_timeout: seconds that a message waits for a connection.
    :param anonymous_role: role whose missing privileges are reported with 401 instead of 403.
    :param token: returns random letters and digits for unique names of prepared statements.
    :ivar on_pooler: called when connections start to go through a pooler.
    :raises psycopg.ProgrammingError: if ``uri`` is invalid.
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
        # An open transaction keeps its connection while it waits for its client, so such transactions may use
        # only half of the connections.
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
            opened=self._opened, failed=self._connecting_failed, grow=self._grow, backoff=backoff,
        )  # fmt: skip
        self._liveness = Liveness(
            reactor, self._background, self._sessions, self._idle, self._release, self._discard
        )
        self._ageing = Ageing(reactor, options, self._sessions, self._idle, self._discard, self._replace)
        self.on_pooler: Callable[[], None] | None = None
        self._lane: ExpressLane | None = None
        if options.lane != "off":
            self._lane = ExpressLane(
                reactor, size=size, always=options.lane == "always",
                opened=self._sessions, idle=self._idle, outdated=self._outdated, release=self._release,
            )  # fmt: skip
        self._stopped = True
        self._drained: defer.Deferred[None] | None = None
        self._cancels = 0

    async def start(self) -> None:
        """Try to connect once. If that fails, retry in the background."""
        self._stopped = False
        first_attempt = self._connector.start()
        self._grow()
        await first_attempt

    async def stop(self, grace: float = 5.0) -> None:
        """Reject new messages, wait up to ``grace`` seconds for running messages, then cancel them."""
        self._stopped = True
        self._connector.stop()
        if self._lane is not None:
            self._lane.stop()
            self._lane = None
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
                if not await cancel_all(self._canceller, running, self._reactor):
                    self._log.warn("statements were still running when the pool was closed")
        self._background.cancel()
        for session in list(self._sessions):
            self._discard(session)
        self._canceller.close()

    def resize(self, size: int) -> None:
        """Change the maximum number of connections. Surplus connections are closed when they are free."""
        self._size = size
        if self._lane is not None:
            self._lane.resize(size)
        while self._idle and len(self._sessions) > size:
            self._discard(self._idle[-1])
        self._outdated.update(tuple(self._sessions)[size:])
        self._grow()

    def renew(self) -> defer.Deferred[None]:
        """Replace all connections. Connections in use are replaced when they are free.

        New sessions use the current settings of ``alter database`` and ``alter role``. Existing connections
        are used until the first new connection is open.

        :return: Deferred that fires when messages use new connections, or connecting has failed.
        """
        self._start_up.forget()
        self._outdated.update(self._sessions)
        renewed: defer.Deferred[None] = defer.Deferred()
        self._renewals.append(renewed)
        if self._stopped or not self._sessions:
            self._end_renewals()
        else:
            self._connector.restart()
            self._grow()
        return renewed

    def _end_renewals(self) -> None:
        renewals, self._renewals = self._renewals, []
        for session in [session for session in self._idle if session in self._outdated]:
            self._discard(session)
        for renewed in renewals:
            renewed.callback(None)

    def follow(self, servers: Servers) -> None:
        """Connect only to servers that ``servers`` accepts. Call this method before ``start``."""
        self._servers = servers
        servers.observe(partial(self._leave_refused, servers))

    def abandon(self) -> None:
        for session in tuple(self._sessions):
            self._discard(session)
        self._queue.fail_all(self._unavailable)
        self._slot_queue.fail_all(self._unavailable)

    def leave_server(self, server: dict[str, str]) -> None:
        key = address.server_key(server)
        self._leave(lambda session: address.server_key(session.connection.server) == key)

    def _leave_refused(self, servers: Servers) -> None:
        status = {session: servers.status(session.connection) for session in self._sessions}
        for session in [
            session for session, server_status in status.items() if server_status is ServerStatus.UNKNOWN
        ]:
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
        return bool(self._sessions) and not self._liveness.silent

    async def watch(self) -> None:
        self._background.spawn(self._ageing.watch())
        await self._liveness.watch()

    async def check(self) -> None:
        """Check now whether the database responds, and update ``available`` and ``trouble``."""
        await self._liveness.check()

    @property
    def trouble(self) -> str | None:
        return self._connector.trouble or ("it does not respond" if self._liveness.silent else None)

    @property
    def pooled(self) -> bool:
        return any(session.connection.pooled for session in self._sessions)

    def figures(self) -> PoolFigures:
        count, idle = len(self._sessions), len(self._idle)
        return PoolFigures(
            size=self._size, open=count, idle=idle, in_use=count - idle,
            waiting=len(self._queue.waiting) + len(self._slot_queue.waiting),
            timeouts=self._queue.timeouts + self._slot_queue.timeouts,
            connects=self._connector.connects, cancels=self._cancels,
            lane=LaneFigures() if self._lane is None else self._lane.figures(),
        )  # fmt: skip

    async def run(self, message: Message) -> Rows:
        """Run a message under its role in one round trip. Return the rows of the last statement.

        If the call is cancelled, it fails immediately, and the statement is cancelled on the server. In the
        express lane, the statement may still take effect.

        :raises DatabaseError: if PostgreSQL reports an error.
        :raises DatabaseUnavailable: if there is no connection, or it is lost.
        :raises ApiError: if PostgreSQL cannot store a value.
        """
        anonymous = message.role == self._anonymous_role
        if self._lane is not None and self._lane.accepts(message):
            try:
                return await self._lane.run(message, anonymous=anonymous)
            except NeedsOwnConnection:
                pass
        session = self._idle.pop() if self._idle else await self._wait(message.context.report)
        began = perf_counter()
        try:
            rows = await session.run(message, anonymous=anonymous)
            times = message.statements[-1].statement.times
            if times.missing:
                in_use = len(self._sessions) - len(self._idle)
                times.add_own((perf_counter() - began) / max(1, in_use), rows)
            return rows
        except ApiError as error:
            raise await session.explained(error, message) from error.__cause__
        finally:
            self._release(session)

    async def fetch(
        self, text: str, values: Sequence[object] = (), *, timeout: float = FETCH_TIMEOUT
    ) -> Rows:
        """Run the daemon's own SQL as the login role. Return the rows of the last statement.

        Statements separated by ``;`` are one transaction. ``$1`` … are values of any type that psycopg
        supports; use ``$1::type`` if PostgreSQL cannot infer the type. Raises the same errors as ``run``.

        :param timeout: seconds after which the statement and its connection are abandoned. A proxy may keep a
            connection to a dead server open.
        """
        session = self._idle.pop() if self._idle else await self._wait()
        try:
            fetching = defer.Deferred.fromCoroutine(session.fetch(text, values))
            return await fetching.addTimeout(timeout, self._reactor)
        except defer.TimeoutError:
            self._background.spawn(self._liveness.check())
            raise errors.timed_out_query(timeout) from None
        except psycopg.Error as error:
            raise errors.from_postgres(error, anonymous=False) from error
        except ConnectionFailed as error:
            raise errors.connection_lost(error.__cause__) from error
        finally:
            self._release(session)

    def with_timeout(self, seconds: float) -> TimedPool:
        return TimedPool(self, seconds)

    async def stream(self, message: Message, batch: int = BATCH) -> AsyncGenerator[Rows, None]:
        """Run a read-only message. Yield the rows of its last statement in batches of about ``batch`` bytes.

        Each batch is fetched on demand. Closing the generator early closes the connection. Raises the same
        errors as ``run``.
        """
        async with self._transaction(message) as transaction:
            rows, requested = await transaction.open_cursor(message), FIRST_FETCH
            while len(rows) == requested:
                requested = next_fetch(requested, sum(len(row[0] or "") for row in rows), batch)
                yield rows
                rows = await transaction.fetch(requested)
            await transaction.end()
        # The connection is already back in the pool.
        if rows:
            yield rows

    @asynccontextmanager
    async def open_transaction(self, message: Message) -> AsyncGenerator[OpenTransaction, None]:
        """Begin a transaction of several messages with a first message. The caller continues and ends it.

        An exception rolls back the transaction. Raises the same errors as ``run``.
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
        if self._stopped or (self._connector.failing and not self._sessions):
            raise self._unavailable()
        began = perf_counter()
        waiter = self._queue.join()
        self._grow()
        try:
            return await waiter
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
        """Assign free connections to waiting callers, even if a message fails synchronously."""
        if self._handing_over:
            return
        self._handing_over = True
        try:
            while self._idle and self._queue.waiting:
                self._queue.serve(self._idle.pop())
        finally:
            self._handing_over = False

    async def _settle(self, session: Session) -> None:
        """Return the connection to a known state after its caller has gone, or close it."""
        try:
            if session.connection.busy:
                self._cancels += 1
                session.cancelling = True
                ended = await end_statement(self._canceller, session.connection, self._reactor)
                session.cancelling = not ended
            settling = defer.Deferred.fromCoroutine(session.settle())
            await settling.addTimeout(RESPONSE_TIMEOUT, self._reactor)
        except (ConnectionFailed, psycopg.Error, defer.TimeoutError) as error:
            self._log.info("closing a database connection in unknown state: {error}", error=error)
        finally:
            if session.clean:
                self._release(session)
            elif not session.connection.lost:
                self._discard(session)

    def _grow(self) -> None:
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

    def _connecting_failed(self) -> None:
        if self._renewals:
            self._end_renewals()
        if not self._sessions:
            self._queue.fail_all(self._unavailable)

    def _replace(self, session: Session) -> None:
        """Close a connection when it is free and another connection is open."""
        if len(self._sessions) == 1 < self._size:
            self._connector.open(2, present=1)
        elif session in self._idle:
            self._discard(session)
        else:
            self._outdated.add(session)

    def _discard(self, session: Session) -> None:
        session.connection.close()
        self._sessions.discard(session)
        self._outdated.discard(session)
        if session in self._idle:
            self._idle.remove(session)
        if self._drained is not None and not self._sessions:
            drained, self._drained = self._drained, None
            drained.callback(None)
        if self._connector.waiting:
            self._connecting_failed()
        self._grow()

    def _unavailable(self) -> ApiError:
        return errors.stopped() if self._stopped else errors.unreachable(self._connector.remaining)
