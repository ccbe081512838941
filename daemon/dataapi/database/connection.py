"""One connection to PostgreSQL, by psycopg's public interface to libpq in its pipeline mode.

How it differs from psycopg's own asynchronous connection, and why:

- A message's ``Deferred`` may be cancelled: it fails at once, the statement goes on, and the connection stays
  ``busy`` until the statement has ended.
- The reactor watches a duplicate of the socket all the time.  libpq closes its own when it finds it
  dead, which leaves the reactor's books wrong, and adding and removing a reader around every
  statement costs more than the rest of it.
- A connection is dead when libpq or the severity of an error says so, not by any ``OperationalError``
  and not by the SQLSTATE: a statement may pass on what another server said.
- One message is under way at a time.  Several would share the fate of the one that is cancelled.
"""

from __future__ import annotations

import os
import re
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

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
SILENCE = "timeout expired"
"""Why there is no connection to a server that does not answer."""
_OURS = (b"client_encoding", b"session_authorization")
_POOLERS = (b"DateStyle", b"IntervalStyle", b"TimeZone", b"standard_conforming_strings")

# Plain integers, as libpq's results have them: members of enumerations take longer to compare.
_TUPLES = int(ExecStatus.TUPLES_OK)
_DONE = frozenset(map(int, (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)))
_REFUSED, _SYNCHRONIZED = int(ExecStatus.FATAL_ERROR), int(ExecStatus.PIPELINE_SYNC)
_IDLE = int(TransactionStatus.IDLE)


class ConnectionDied(Exception):
    """The connection is gone, or could not be made."""


class ServerSilent(ConnectionDied):
    """Nothing was heard of any server within the time limit."""


class ServerStatus(Enum):
    """Whether a server may be used: it may, it may not any more, or nothing is known of it."""

    ACCEPTED = auto()
    REFUSED = auto()
    UNKNOWN = auto()


class Servers(Protocol):
    """Decides which of a database's servers may be used."""

    def rank(self, place: dict[str, str]) -> int:
        """Return the sort key of a server. Servers with equal keys are tried in the configured order."""

    async def refusal(self, connection: Connection, timeout: float) -> str:
        """Return why a new connection must not be used, "" if it may be."""

    def status(self, connection: Connection) -> ServerStatus:
        """Return the status of a connection's server."""

    def observe(self, observer: Callable[[], object]) -> None:
        """Call the observer when servers that were accepted are refused."""


@implementer(IReadWriteDescriptor)
class Connection:
    """A connection that runs one message at a time; ``json`` and ``jsonb`` come back as ``bytes``.

    :param servers: refuses servers; None if any may be used.
    :ivar on_lost: called once when the connection is gone, unless ``close`` was asked for.
    :ivar on_notify: called with channel and payload of each ``NOTIFY``.
    :ivar lost: whether the connection is gone.
    :ivar answers: how many statements the server has answered.
    :ivar place: libpq's parameters that lead to this server, whatever it has become.
    :ivar pooled: whether it leads to a pooler, whose process numbers are made up; see ``behind_pooler``.
    :ivar busy: whether a message is under way, perhaps one whose caller is gone.
    """

    def __init__(self, reactor: Any, servers: Servers | None = None) -> None:
        self.reactor = reactor
        self._servers = servers
        self.on_lost: Callable[[], None] | None = None
        self.on_notify: Callable[[str, str], None] | None = None
        self.lost = False
        self.answers = 0
        self.place: dict[str, str] = {}
        self.pooled = False
        self._polling: Polling | None = None
        self._pgconn: abc.PGconn = None  # type: ignore[assignment]  # until one is made
        self._descriptor = -1
        self._reported: tuple[bytes | None, ...] = ()
        self._watched: tuple[bytes, ...] = _OURS
        self.busy = False
        self._commands: list[Prepared | None] = []
        self._done = 0
        self._answering = 0
        self._answer: Any = None
        self._error: psycopg.Error | None = None
        self._result: defer.Deferred[Rows] | None = None
        self._ended: list[defer.Deferred[None]] = []

    async def open(self, params: dict[str, str], timeout: float) -> None:
        """Connect with libpq's parameters, to the first place that can be had.

        Raises ``ConnectionDied``, with the reason of each place, when none can be, and when the server
        is too old.

        :param timeout: seconds for looking up names, and for each place.
        """
        problems = []
        for place in await self._places(params, timeout):
            problem = place.problem or await self._try(place.parameters, timeout)
            if not problem:
                self._opened()
                if self._servers is None:
                    return
                problem = await self._servers.refusal(self, timeout)
                if not problem:
                    return
                self.busy = False
                self._disconnect()
            if self.lost:
                raise ConnectionDied(problem)
            problems.append(problem)
            if address.refused_by_server(problem):
                break
        self.close()
        silent = all(problem.endswith(SILENCE) for problem in problems)
        raise (ServerSilent if silent else ConnectionDied)("; ".join(dict.fromkeys(problems)))

    async def _places(self, params: dict[str, str], timeout: float) -> list[address.Place]:
        find = partial(address.places, params, address.look_up, rank=self._rank)
        if not address.has_names(params):
            return find()
        found = deferToThreadPool(self.reactor, self.reactor.getThreadPool(), find)
        try:
            return await found.addTimeout(timeout, self.reactor)
        except defer.TimeoutError:
            self.close()
            raise ConnectionDied(f"could not look up the host {params['host']}: {SILENCE}") from None

    def _rank(self, place: dict[str, str]) -> int:
        return 0 if self._servers is None else self._servers.rank(place)

    async def _try(self, parameters: dict[str, str], timeout: float) -> str:
        """Try one place and return why there is no connection to it, "" when there is."""
        self.place = {name: value for name, value in parameters.items() if name != address.ATTRIBUTES}
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
            where = address.failure_prefix(pgconn.host.decode(), pgconn.port.decode())
            pgconn.finish()
            return where + SILENCE
        finally:
            self._polling = None
        pgconn.finish()
        return _LINE_END.sub(" ", reason.strip())

    def _opened(self) -> None:
        """Watch the connection from now on; raises ``ConnectionDied`` when the server is too old."""
        pgconn = self._pgconn
        if refusal := errors.version_refusal(pgconn.server_version):
            self.close()
            raise ConnectionDied(refusal)
        pgconn.nonblocking = 1
        pgconn.enter_pipeline_mode()
        self._descriptor = os.dup(pgconn.socket)
        self.reactor.addReader(self)
        self._reported = tuple(map(pgconn.parameter_status, self._watched))

    def behind_pooler(self) -> None:
        """Note that it leads to a pooler."""
        self.pooled = True
        self._watched = _OURS + _POOLERS
        self._reported = tuple(map(self._pgconn.parameter_status, self._watched))

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction was left open, or failed."""
        return not self.busy and not self.lost and self._pgconn.transaction_status != _IDLE

    @property
    def clean(self) -> bool:
        """Whether the connection is outside of any transaction and ready for the next message.

        It is not when a function has changed the encoding in which the server would read that message, or
        the login role; nor, behind a pooler, a setting that this restores for its client.
        """
        return (
            not self.busy
            and not self.lost
            and self._pgconn.transaction_status == _IDLE
            and tuple(map(self._pgconn.parameter_status, self._watched)) == self._reported
        )

    def send(self, steps: Sequence[Step], ending: Sequence[Step] = ()) -> defer.Deferred[Rows]:
        """Send a message; fires with the last step's rows.

        The Deferred fails with ``psycopg.Error`` or ``ConnectionDied``; cancelled, it fails at once
        while the statement goes on.

        :param ending: steps that end the message, whose rows are not returned.
        """
        if self.busy:
            raise RuntimeError("A message is under way on this connection.")
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
            # The part that has been sent would become part of the next one.
            self._lose(error)
            if not isinstance(error, psycopg.Error):
                raise
            raise ConnectionDied(str(error).strip()) from error
        if unsent:
            self.reactor.addWriter(self)
        self.busy = True
        self._commands, self._done, self._answering = commands, 0, len(commands) - len(ending)
        result = self._result = defer.Deferred(self._abandon)
        return result

    def query(self, text: str, values: Sequence[object] = ()) -> defer.Deferred[Rows]:
        """Send SQL of the daemon's own; fires with the rows of its last statement, see ``steps_of``."""
        return self.send(steps_of(text, values))

    def literal(self, value: str) -> str:
        """Return a value as a literal, for commands that take no parameters."""
        return Escaping(self._pgconn).escape_literal(value.encode()).decode()

    def cancel(self) -> defer.Deferred[bool]:
        """Ask by libpq's cancel request to end the statement; fires with whether the server has taken it.

        It passes through a pooler, and may hit whatever runs when it arrives.
        """
        request = self._pgconn.cancel_conn()
        request.start()
        return Polling(self.reactor, lambda: request.socket, request.poll).done()

    async def answered(self, seconds: float) -> bool:
        """Ask the server for a sign of life; return whether it gave one within so many seconds."""
        try:
            await self.query("select 1").addTimeout(seconds, self.reactor)
        except psycopg.Error:
            return True
        except (ConnectionDied, defer.TimeoutError):
            return False
        return True

    def ended(self) -> defer.Deferred[None]:
        """Return a Deferred that fires when no statement runs any more, or the connection is gone."""
        ended: defer.Deferred[None] = defer.Deferred()
        if not self.busy:
            ended.callback(None)
        else:
            self._ended.append(ended)
        return ended

    def close(self) -> None:
        """Close the socket; a running statement's Deferred fails, ``on_lost`` is not called."""
        self.on_lost = None
        self._lose(psycopg.InterfaceError("connection closed"))

    def process(self) -> int:
        """Return the number of the server process, as the server or a pooler reported it."""
        return self._pgconn.backend_pid

    def fileno(self) -> int:
        """Return the descriptor that the reactor watches: a duplicate of libpq's socket."""
        return self._descriptor

    def logPrefix(self) -> str:  # noqa: N802 - Twisted's name
        """Name the connection in Twisted's log."""
        return "connection"

    def doRead(self) -> None:  # noqa: N802 - Twisted's name
        """Read the input, and finish the message when all of it is answered."""
        pgconn = self._pgconn
        try:
            pgconn.consume_input()
            while self.busy and not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    if pgconn.status == ConnStatus.BAD:
                        raise psycopg.OperationalError(pgconn.error_message.decode("utf-8", "replace"))
                    continue
                status = result.status
                if status in _DONE:
                    self._done += 1
                    if self._done == self._answering:
                        self._answer = result if status == _TUPLES else None
                elif status == _SYNCHRONIZED:
                    self._finish(self._error)
                elif status == _REFUSED and self._error is None:
                    self._refused(error_from_result(result))
            while not self.lost and (notification := pgconn.notifies()) is not None:
                # A function may listen; nothing reads its notifications.
                if self.on_notify is not None:
                    self.on_notify(notification.relname.decode(), notification.extra.decode())
        except psycopg.Error as error:
            self._lose(error)

    def doWrite(self) -> None:  # noqa: N802 - Twisted's name
        """Go on with sending the message."""
        try:
            if not self._pgconn.flush():
                self.reactor.removeWriter(self)
        except psycopg.Error as error:
            self._lose(error)

    def connectionLost(self, reason: Failure) -> None:  # noqa: N802 - Twisted's name
        """Lose the connection, as the reactor found the socket dead; libpq may know why."""
        self.doRead()
        self._lose(psycopg.OperationalError(reason.getErrorMessage()))

    def _abandon(self, _result: defer.Deferred[Rows]) -> None:
        self._result = None

    def _refused(self, error: psycopg.Error) -> None:
        """Keep the error of a step: those after it are not run, nor prepared."""
        self._error = error
        for prepared in self._commands[self._done :]:
            if prepared is not None:
                prepared.ready = False
        if errors.ends_connection(error):
            self._lose(error)

    def _finish(self, error: Exception | None) -> None:
        self.answers += 1
        self.busy = False
        answer, self._answer, self._error = self._answer, None, None
        result, self._result = self._result, None
        if result is not None:
            if error is not None:
                result.errback(error)
            elif self._pgconn.parameter_status(_OURS[0]) != self._reported[0]:
                result.errback(errors.other_encoding())
            else:
                try:
                    found = [] if answer is None else rows(answer)
                except UnicodeDecodeError:  # of an encoding that was set for a while
                    result.errback(errors.other_encoding())
                except Exception as problem:
                    # A value that psycopg cannot read: the connection itself is fine.
                    result.errback(problem)
                else:
                    result.callback(found)
        if self._ended:
            ended, self._ended = self._ended, []
            for waiting in ended:
                if not waiting.called:
                    waiting.callback(None)

    def _disconnect(self) -> None:
        """Close the socket."""
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
        # Before ``lost`` is set: the reactor asks for the descriptor once more.
        self._disconnect()
        self.lost = True
        if self._polling is not None:
            self._polling.give_up(error)
        on_lost, self.on_lost = self.on_lost, None
        died = ConnectionDied(str(error).strip())
        died.__cause__ = error
        self._finish(died)
        if on_lost is not None:
            on_lost()
