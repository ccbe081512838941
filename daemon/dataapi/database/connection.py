"""A connection to PostgreSQL, using psycopg's libpq wrapper in pipeline mode.

Differences from psycopg's asynchronous connection:

- Cancelling a message's ``Deferred`` fails it immediately. The statement continues, and the connection is
  ``busy`` until it ends.
- The reactor permanently watches a duplicate of the socket. libpq closes dead sockets, and closing a watched
  socket would confuse the reactor. Adding and removing a reader for each statement would be too slow.
- Only libpq or an error's severity shows that a connection is dead. ``OperationalError`` and SQLSTATEs are
  not reliable, because a statement may report another server's error.
- Several messages may be in progress (see ``express_lane``). Each message ends with its own ``Sync``, so that
  an error does not affect later messages.
"""

from __future__ import annotations

import os
import re
from collections import deque
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, Escaping, ExecStatus, PGconn, TransactionStatus
from twisted.internet import defer
from twisted.internet.interfaces import IReadWriteDescriptor
from twisted.internet.threads import deferToThreadPool
from zope.interface import implementer

from dataapi.database import address, errors
from dataapi.database.polling import Polling
from dataapi.database.steps import rows, steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg.pq import abc
    from twisted.python.failure import Failure

    from dataapi.database.steps import Prepared, Rows, Step

_LINE_END = re.compile(r"\s*\n\s*")
TIMEOUT_EXPIRED = "timeout expired"
"""Reason for failed connections to a server that does not respond, as in libpq."""
_TRACKED = (b"client_encoding", b"session_authorization")
_TRACKED_BY_POOLERS = (b"DateStyle", b"IntervalStyle", b"TimeZone", b"standard_conforming_strings")

# Plain integers, like the statuses of libpq's results, because comparing enum members is slower.
_TUPLES = int(ExecStatus.TUPLES_OK)
_SUCCEEDED = frozenset(map(int, (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)))
_FAILED_STATUS, _SYNCHRONIZED = int(ExecStatus.FATAL_ERROR), int(ExecStatus.PIPELINE_SYNC)
_IDLE = int(TransactionStatus.IDLE)


class ConnectionFailed(Exception):
    """Raised when a connection is lost or cannot be established."""


class ServerUnresponsive(ConnectionFailed):
    """Raised when no server responds within the timeout."""


class ConnectionAltered(Exception):
    """Raised for a message if a function in an earlier message altered the shared connection.

    :ivar done: whether the message took effect.
    """

    def __init__(self, *, done: bool) -> None:
        super().__init__("a previous message altered the connection")
        self.done = done


class SentMessage(NamedTuple):
    """A message in progress.

    :ivar commands: one item for each command, in order: the statement that it prepares, or None.
    :ivar result_index: number of commands up to and including the command whose rows are returned.
    :ivar shared: whether other messages may be in progress.
    """

    commands: list[Prepared | None]
    result_index: int
    shared: bool
    deferred: defer.Deferred[Rows]


class ServerStatus(Enum):
    """Whether a server may be used."""

    ACCEPTED = auto()
    REFUSED = auto()
    UNKNOWN = auto()


class Servers(Protocol):
    """Decides which of a database's servers may be used."""

    def rank(self, server: dict[str, str]) -> int:
        """Return the sort key of a server. Servers with equal keys are tried in the configured order."""

    async def refusal(self, connection: Connection, timeout: float) -> str:
        """Return the reason not to use a new connection, "" if there is none."""

    def status(self, connection: Connection) -> ServerStatus:
        pass

    def observe(self, observer: Callable[[], object]) -> None:
        pass


@implementer(IReadWriteDescriptor)
class Connection:
    """A connection that sends messages in order. ``json`` and ``jsonb`` values are returned as ``bytes``.

    :param servers: decides which servers may be used, None if all may.
    :ivar on_lost: called once when the connection is lost, but not after ``close``.
    :ivar on_notify: called with the channel and payload of each notification.
    :ivar responses: number of messages that the server has responded to.
    :ivar server: libpq's parameters for this server, without ``target_session_attrs``.
    :ivar pooled: whether the connection goes through a pooler, which reports fake process IDs.
    :ivar altered: whether a function has changed the encoding or the login role, see ``clean``.
    :ivar in_progress: sent messages without a complete response, including those whose callers have gone.
    :ivar on_message_end: called after each message, None for no call.
    """

    def __init__(self, reactor: Any, servers: Servers | None = None) -> None:
        self.reactor = reactor
        self._servers = servers
        self.on_lost: Callable[[], None] | None = None
        self.on_notify: Callable[[str, str], None] | None = None
        self.lost = False
        self.responses = 0
        self.server: dict[str, str] = {}
        self.pooled = False
        self._polling: Polling | None = None
        self._pgconn: abc.PGconn = None  # type: ignore[assignment]  # until one is made
        self._descriptor = -1
        self._initial_values: tuple[bytes | None, ...] = ()
        self._tracked_names: tuple[bytes, ...] = _TRACKED
        self.altered = False
        self.on_message_end: Callable[[], None] | None = None
        self.in_progress: deque[SentMessage] = deque()
        # State of the first message in progress: number of commands that have succeeded, result, and error.
        self._done = 0
        self._last_result: Any = None
        self._error: psycopg.Error | None = None
        self._idle_waiters: list[defer.Deferred[None]] = []

    async def open(self, params: dict[str, str], timeout: float) -> None:
        """Connect to the first available server.

        :param timeout: timeout in seconds for resolving names, and for each server.
        :raises ConnectionFailed: with the reason for each server, or if the server is too old.
        """
        problems = []
        for target in await self._targets(params, timeout):
            problem = target.problem or await self._connect_to(target.parameters, timeout)
            if not problem:
                self._opened()
                if self._servers is None:
                    return
                problem = await self._servers.refusal(self, timeout)
                if not problem:
                    return
                self.in_progress.clear()
                self._disconnect()
            if self.lost:
                raise ConnectionFailed(problem)
            problems.append(problem)
            if address.refused_by_server(problem):
                break
        self.close()
        timed_out = all(problem.endswith(TIMEOUT_EXPIRED) for problem in problems)
        raise (ServerUnresponsive if timed_out else ConnectionFailed)("; ".join(dict.fromkeys(problems)))

    async def _targets(self, params: dict[str, str], timeout: float) -> list[address.ConnectionTarget]:
        find = partial(address.targets, params, address.resolve_host, rank=self._rank)
        if not address.has_host_names(params):
            return find()
        resolving = deferToThreadPool(self.reactor, self.reactor.getThreadPool(), find)
        try:
            return await resolving.addTimeout(timeout, self.reactor)
        except defer.TimeoutError:
            self.close()
            raise ConnectionFailed(
                f"could not resolve the host {params['host']}: {TIMEOUT_EXPIRED}"
            ) from None

    def _rank(self, server: dict[str, str]) -> int:
        return 0 if self._servers is None else self._servers.rank(server)

    async def _connect_to(self, parameters: dict[str, str], timeout: float) -> str:
        self.server = {name: value for name, value in parameters.items() if name != address.SESSION_ATTRS}
        try:
            pgconn = self._pgconn = PGconn.connect_start(make_conninfo(**parameters).encode())
            if pgconn.status != ConnStatus.BAD:
                polling = self._polling = Polling(self.reactor, lambda: pgconn.socket, pgconn.connect_poll)
                if await polling.done().addTimeout(timeout, self.reactor):
                    return ""
            reason = pgconn.error_message.decode("utf-8", "replace")
        except psycopg.Error as error:
            return str(error)
        except defer.TimeoutError:
            prefix = address.failure_prefix(pgconn.host.decode(), pgconn.port.decode())
            pgconn.finish()
            return prefix + TIMEOUT_EXPIRED
        finally:
            self._polling = None
        pgconn.finish()
        return _LINE_END.sub(" ", reason.strip())

    def _opened(self) -> None:
        pgconn = self._pgconn
        if refusal := errors.version_refusal(pgconn.server_version):
            self.close()
            raise ConnectionFailed(refusal)
        pgconn.nonblocking = 1
        pgconn.enter_pipeline_mode()
        self._descriptor = os.dup(pgconn.socket)
        self.reactor.addReader(self)
        self._initial_values = tuple(map(pgconn.parameter_status, self._tracked_names))

    def mark_pooled(self) -> None:
        self.pooled = True
        self._tracked_names = _TRACKED + _TRACKED_BY_POOLERS
        self._initial_values = tuple(map(self._pgconn.parameter_status, self._tracked_names))

    @property
    def busy(self) -> bool:
        return bool(self.in_progress)

    @property
    def in_transaction(self) -> bool:
        return not self.busy and not self.lost and self._pgconn.transaction_status != _IDLE

    @property
    def clean(self) -> bool:
        """Whether the connection is outside of any transaction and ready for another message.

        The connection is not clean if a function has changed the client encoding, the session authorization
        or, behind a pooler, a setting that the pooler tracks.
        """
        return (
            not self.in_progress
            and not self.lost
            and not self.altered
            and self._pgconn.transaction_status == _IDLE
        )

    def send(
        self, steps: Sequence[Step], ending: Sequence[Step] = (), *, shared: bool = False
    ) -> defer.Deferred[Rows]:
        """Send a message and return a Deferred with the rows of the last of ``steps``.

        The Deferred fails with ``psycopg.Error``, ``ConnectionFailed`` or, if shared, ``ConnectionAltered``.
        If the Deferred is cancelled, the statement continues.

        :param ending: final steps of the message. Their rows are discarded.
        :param shared: whether other messages may be in progress.
        """
        if self.in_progress and not shared:
            raise RuntimeError("a message is already in progress on this connection")
        pgconn = self._pgconn
        commands: list[Prepared | None] = []
        try:
            for text, values, types, prepared in (*steps, *ending):
                if prepared is None:
                    pgconn.send_query_params(text, values, types)
                else:
                    if not prepared.ready:
                        pgconn.send_prepare(prepared.name, text)
                        prepared.ready = True
                        commands.append(prepared)
                    if values is None:
                        continue
                    pgconn.send_query_prepared(prepared.name, values)
                commands.append(None)
            pgconn.pipeline_sync()
            unsent = pgconn.flush()
        except Exception as error:
            # Close the connection. Otherwise, the next message would follow a partially sent message.
            self._lose(error)
            if not isinstance(error, psycopg.Error):
                raise
            raise ConnectionFailed(str(error).strip()) from error
        if unsent:
            self.reactor.addWriter(self)
        deferred: defer.Deferred[Rows] = defer.Deferred()
        self.in_progress.append(SentMessage(commands, len(commands) - len(ending), shared, deferred))
        return deferred

    def query(self, text: str, values: Sequence[object] = ()) -> defer.Deferred[Rows]:
        """Send the daemon's own SQL. Return a Deferred with the rows of its last statement."""
        return self.send(steps_of(text, values))

    def literal(self, value: str) -> str:
        return Escaping(self._pgconn).escape_literal(value.encode()).decode()

    def cancel(self) -> defer.Deferred[bool]:
        """Send libpq's cancel request. The Deferred fires with True if the server has received the request.

        The request also works through a pooler, but may cancel a later statement.
        """
        request = self._pgconn.cancel_conn()
        request.start()
        return Polling(self.reactor, lambda: request.socket, request.poll).done()

    async def is_alive(self, seconds: float) -> bool:
        try:
            await self.query("select 1").addTimeout(seconds, self.reactor)
        except psycopg.Error:
            return True
        except (ConnectionFailed, defer.TimeoutError):
            return False
        return True

    def when_idle(self) -> defer.Deferred[None]:
        """Return a Deferred that fires when no statement is running or the connection is lost."""
        idle: defer.Deferred[None] = defer.Deferred()
        if not self.busy:
            idle.callback(None)
        else:
            self._idle_waiters.append(idle)
        return idle

    def close(self) -> None:
        """Close the connection. A running statement's Deferred fails, and ``on_lost`` is not called."""
        self.on_lost = None
        self._lose(psycopg.InterfaceError("connection closed"))

    def backend_pid(self) -> int:
        return self._pgconn.backend_pid

    def fileno(self) -> int:
        """Return the descriptor that the reactor watches: a duplicate of libpq's socket."""
        return self._descriptor

    def logPrefix(self) -> str:  # noqa: N802 - Twisted's name
        return "connection"

    def doRead(self) -> None:  # noqa: N802 - Twisted's name
        pgconn = self._pgconn
        try:
            pgconn.consume_input()
            while self.in_progress and not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    if pgconn.status == ConnStatus.BAD:
                        raise psycopg.OperationalError(pgconn.error_message.decode("utf-8", "replace"))
                    continue
                status, message = result.status, self.in_progress[0]
                if status in _SUCCEEDED:
                    self._done += 1
                    if self._done == message.result_index:
                        self._last_result = result if status == _TUPLES else None
                    pgconn.get_result()  # the None that ends a command's results; does not block
                elif status == _SYNCHRONIZED:
                    self._finish(self._error)
                elif status == _FAILED_STATUS and self._error is None:
                    self._record_error(error_from_result(result))
            while not self.lost and (notification := pgconn.notifies()) is not None:
                # A function may run LISTEN on any connection. Discard the notifications.
                if self.on_notify is not None:
                    self.on_notify(notification.relname.decode(), notification.extra.decode())
        except psycopg.Error as error:
            self._lose(error)

    def doWrite(self) -> None:  # noqa: N802 - Twisted's name
        try:
            if not self._pgconn.flush():
                self.reactor.removeWriter(self)
        except psycopg.Error as error:
            self._lose(error)

    def connectionLost(self, reason: Failure) -> None:  # noqa: N802 - Twisted's name
        self.doRead()  # libpq may report the reason
        self._lose(psycopg.OperationalError(reason.getErrorMessage()))

    def _record_error(self, error: psycopg.Error) -> None:
        """Record the error of a command. The remaining commands are neither executed nor prepared."""
        self._error = error
        for prepared in self.in_progress[0].commands[self._done :]:
            if prepared is not None:
                prepared.ready = False
        if errors.ends_connection(error):
            self._lose(error)

    def _finish(self, error: Exception | None) -> None:
        self.responses += 1
        message = self.in_progress.popleft()
        deferred, was_altered = message.deferred, self.altered
        last_result, self._last_result, self._error, self._done = self._last_result, None, None, 0
        if not self.lost:
            values = tuple(map(self._pgconn.parameter_status, self._tracked_names))
            self.altered = values != self._initial_values
        if not deferred.called:
            if was_altered and message.shared and not self.lost:
                deferred.errback(ConnectionAltered(done=error is None))
            elif error is not None:
                deferred.errback(error)
            elif self.altered and self._pgconn.parameter_status(_TRACKED[0]) != self._initial_values[0]:
                deferred.errback(errors.encoding_changed())
            else:
                try:
                    result_rows = [] if last_result is None else rows(last_result)
                except UnicodeDecodeError:  # the encoding was changed and restored
                    deferred.errback(errors.encoding_changed())
                except Exception as problem:
                    # psycopg cannot parse a value. The connection itself is fine.
                    deferred.errback(problem)
                else:
                    deferred.callback(result_rows)
        if self.on_message_end is not None:
            self.on_message_end()
        if self._idle_waiters and not self.in_progress:
            waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                if not waiter.called:
                    waiter.callback(None)

    def _disconnect(self) -> None:
        if self._descriptor != -1:
            self.reactor.removeReader(self)
            self.reactor.removeWriter(self)
            os.close(self._descriptor)
            self._descriptor = -1
        if self._pgconn is not None:
            self._pgconn.finish()

    def _lose(self, error: Exception) -> None:
        if self.lost:
            return
        # Disconnect before ``lost`` is set, because the reactor calls ``fileno`` again.
        self._disconnect()
        self.lost = True
        if self._polling is not None:
            self._polling.fail(error)
        on_lost, self.on_lost = self.on_lost, None
        while self.in_progress:
            failure = ConnectionFailed(str(error).strip())
            failure.__cause__ = error
            self._finish(failure)
        if on_lost is not None:
            on_lost()
