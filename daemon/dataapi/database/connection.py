"""One connection to PostgreSQL, made by txpostgres, with a statement path of our own.

What differs from txpostgres in that path, and why:

- A statement's ``Deferred`` may be cancelled: it fails at once, the statement goes on, and the
  connection stays ``busy`` until the statement has ended.  txpostgres asks libpq to cancel, which
  blocks the reactor, and it turns every cancelled query into ``CancelledError``.
- The reactor watches a duplicate of the socket all the time.  libpq closes its own when it finds it
  dead, which leaves the reactor's books wrong, and adding and removing a reader around every
  statement costs more than the rest of it.
- A connection is dead when psycopg2 or the severity of an error says so, not by any ``OperationalError``
  and not by the SQLSTATE: a statement may pass on what another server said.
"""

from __future__ import annotations

import os
import re
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg2
from psycopg2.extensions import BYTES, POLL_OK, POLL_WRITE, TRANSACTION_STATUS_IDLE
from twisted.internet import defer
from twisted.internet.interfaces import IReadWriteDescriptor
from twisted.internet.threads import deferToThreadPool
from zope.interface import implementer

from dataapi.database import address, errors, sql_text
from dataapi.database.driver import ConnectionAttempt
from dataapi.database.pipeline import Pipeline
from dataapi.database.succession import PRIMARY_LINEAGE, Lineage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.python.failure import Failure

    from dataapi.database.named import Step
    from dataapi.database.succession import Succession

Rows = list[tuple[Any, ...]]
_JSON_TYPES = (114, 3802)
_LINE_END = re.compile(r"\s*\n\s*")
_SILENCE = "timeout expired"
_OURS = ("client_encoding", "session_authorization")
_POOLERS = ("DateStyle", "IntervalStyle", "TimeZone", "standard_conforming_strings")


class ConnectionDied(Exception):
    """The connection is gone, or could not be made."""


class ServerSilent(ConnectionDied):
    """Nothing was heard of any server within the time limit."""


@implementer(IReadWriteDescriptor)
class Connection:
    """A connection that runs one message at a time; ``json`` and ``jsonb`` come back as ``bytes``.

    :param succession: what is known of the servers; one that another has succeeded is not connected to.
    :ivar on_lost: called once when the connection is gone, unless ``close`` was asked for.
    :ivar on_notify: called with channel and payload of each ``NOTIFY``.
    :ivar lost: whether the connection is gone.
    :ivar answers: how many statements the server has answered.
    :ivar place: libpq's parameters that lead to this server, whatever it has become.
    :ivar lineage: of a server that was no standby when the connection was made, None where it is unknown.
    :ivar pooled: whether it leads to a pooler, whose process numbers are made up; see ``behind_pooler``.
    """

    def __init__(self, reactor: Any, succession: Succession | None = None) -> None:
        self.reactor = reactor
        self._succession = succession
        self.lineage: Lineage | None = None
        self.on_lost: Callable[[], None] | None = None
        self.on_notify: Callable[[str, str], None] | None = None
        self.lost = False
        self.answers = 0
        self.place: dict[str, str] = {}
        self.pooled = False
        self._attempt: ConnectionAttempt | None = None
        self._connection: Any = None
        self._descriptor = -1
        self._status: Callable[[str], str | None]
        self._reported: tuple[str | None, ...] = ()
        self._watched: tuple[str, ...] = _OURS
        self._writing = False
        self._cursor: Any = None
        self._pipeline: Pipeline | None = None
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
                problem = await self._overtaken(timeout)
                if not problem:
                    return
            if self.lost:
                raise ConnectionDied(problem)
            problems.append(problem)
            if address.refused_by_server(problem):
                break
        self.close()
        silent = all(problem.endswith(_SILENCE) for problem in problems)
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
            raise ConnectionDied(f"could not look up the host {params['host']}: {_SILENCE}") from None

    def _rank(self, place: dict[str, str]) -> int:
        return 0 if self._succession is None else self._succession.rank(address.server_key(place))

    async def _try(self, parameters: dict[str, str], timeout: float) -> str:
        """Try one place and return why there is no connection to it, "" when there is."""
        where = ""
        self.place = {name: value for name, value in parameters.items() if name != address.ATTRIBUTES}
        attempt = None
        try:
            attempt = self._attempt = ConnectionAttempt(self.reactor, parameters)
            where = address.failure_prefix(attempt.info.host, attempt.info.port)
            self._connection = await attempt.made().addTimeout(timeout, self.reactor)
        except psycopg2.Error as error:
            if attempt is not None:
                attempt.give_up()
            reason = _LINE_END.sub(" ", str(error).strip())
            # psycopg2 leaves out where it was when it does not block.
            return reason if reason.startswith("connection to ") else f"{where}{reason}"
        except defer.TimeoutError:
            return where + _SILENCE
        finally:
            self._attempt = None
        return ""

    def _opened(self) -> None:
        """Watch the connection from now on; raises ``ConnectionDied`` when the server is too old."""
        if refusal := errors.version_refusal(self._connection.server_version):
            self.close()
            raise ConnectionDied(refusal)
        self._descriptor = os.dup(self._connection.fileno())
        self.reactor.addReader(self)
        for oid in _JSON_TYPES:
            self._connection.string_types[oid] = BYTES
        self._status = self._connection.get_parameter_status
        self._reported = tuple(map(self._status, self._watched))
        if self.on_notify is None:
            # A function may listen; nothing reads what comes then.
            self._connection.notifies = deque(maxlen=0)

    async def _overtaken(self, timeout: float) -> str:
        """Leave a server that another one has succeeded, and return why; "" where there is none."""
        if self._succession is None:
            return ""
        where = address.failure_prefix(self.place.get("host"), self.place.get("port", ""))
        try:
            rows = await self.send(PRIMARY_LINEAGE, ()).addTimeout(timeout, self.reactor)
        except psycopg2.Error:
            rows = []  # not every relative of PostgreSQL has timelines
        except defer.TimeoutError:
            self._cursor = None
            self._disconnect()
            return where + _SILENCE
        except ConnectionDied as error:
            return str(error)
        self.lineage = Lineage(*rows[0]) if rows else None
        if self.lineage is None:
            return ""
        if not self._succession.overtaken(self.lineage):
            self._succession.see(self.lineage)
            return ""
        self._succession.try_last(address.server_key(self.place))
        self._disconnect()
        newest = self._succession.newest(self.lineage)
        return (
            f"{where}it is an old primary, on timeline {self.lineage.timeline}:"
            f" another server was promoted to timeline {newest}"
        )

    def behind_pooler(self) -> None:
        """Note that it leads to a pooler."""
        self.pooled = True
        self._watched = _OURS + _POOLERS
        self._reported = tuple(map(self._status, self._watched))

    @property
    def busy(self) -> bool:
        """Whether a statement runs, perhaps one whose caller is gone."""
        return self._cursor is not None

    @property
    def clean(self) -> bool:
        """Whether the connection is outside of any transaction and ready for the next message.

        It is not when a function has changed the encoding in which the server would read that message, or
        the login role; nor, behind a pooler, a setting that this makes anew for its client.
        """
        return (
            self._cursor is None
            and not self.lost
            and bool(self._connection.get_transaction_status() == TRANSACTION_STATUS_IDLE)
            and tuple(map(self._status, self._watched)) == self._reported
        )

    def send(self, text: str, values: Sequence[object]) -> defer.Deferred[Rows]:
        """Send a message, the values quoted into its ``%s`` places; fires with the last rows.

        The Deferred fails with ``psycopg2.Error`` or ``ConnectionDied``; cancelled, it fails at once
        while the statement goes on.  Raises ``ApiError`` for a value that PostgreSQL cannot hold, and
        ``TypeError`` for one of a type that psycopg2 does not know.
        """
        return self._begin(self._execute, text, values)

    def send_steps(self, steps: Sequence[Step]) -> defer.Deferred[Rows]:
        """Send statements that are prepared by name as one message; the rest is as of ``send``."""
        return self._begin(self._execute_steps, steps)

    def _execute(self, text: str, values: Sequence[object]) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(*sql_text.filled(text, values))
        return cursor

    def _execute_steps(self, steps: Sequence[Step]) -> Pipeline:
        if self._pipeline is None:
            self._pipeline = Pipeline(self._connection)
        self._pipeline.send(steps)
        return self._pipeline

    def _begin(self, execute: Callable[..., Any], *arguments: Any) -> defer.Deferred[Rows]:
        """Begin what gives the cursor of a statement that runs."""
        if self._cursor is not None:
            raise RuntimeError("A statement is running on this connection.")
        try:
            cursor = execute(*arguments)
        except UnicodeEncodeError:
            raise errors.unsendable("a lone surrogate (U+D800 to U+DFFF)") from None
        except ValueError as error:
            if "NUL" not in str(error):
                raise
            raise errors.unsendable("the character NUL (U+0000)") from None
        except psycopg2.ProgrammingError as error:
            raise TypeError(str(error)) from error
        except psycopg2.Error as error:
            self._lose(error)
            raise ConnectionDied(str(error).strip()) from error
        self._cursor = cursor
        result = self._result = defer.Deferred(self._abandon)
        # Often enough the answer is there already, which saves a turn of the reactor.
        self._advance()
        return result

    async def answered(self, seconds: float) -> bool:
        """Ask the server for a sign of life; tell whether it gave one within so many seconds."""
        try:
            await self.send("select 1", ()).addTimeout(seconds, self.reactor)
        except psycopg2.Error:
            return True
        except (ConnectionDied, defer.TimeoutError):
            return False
        return True

    def ended(self) -> defer.Deferred[None]:
        """Return a Deferred that fires when no statement runs any more, or the connection is gone."""
        ended: defer.Deferred[None] = defer.Deferred()
        if self._cursor is None:
            ended.callback(None)
        else:
            self._ended.append(ended)
        return ended

    def close(self) -> None:
        """Close the socket; a running statement's Deferred fails, ``on_lost`` is not called."""
        self.on_lost = None
        self._lose(psycopg2.InterfaceError("connection closed"))

    @property
    def raw(self) -> Any:
        """psycopg2's connection, once this one is open."""
        return self._connection

    def process(self) -> int:
        """Return the number of the server process, as the server or a pooler told it."""
        return int(self._connection.get_backend_pid())

    def fileno(self) -> int:
        """Return what the reactor watches: a duplicate of libpq's socket."""
        return self._descriptor

    def logPrefix(self) -> str:  # noqa: N802 - Twisted's name
        """Name the connection in Twisted's log."""
        return "connection"

    def doRead(self) -> None:  # noqa: N802 - Twisted's name
        """Go on with the statement."""
        self._advance()

    def doWrite(self) -> None:  # noqa: N802 - Twisted's name
        """Go on with sending the statement."""
        self._advance()

    def connectionLost(self, reason: Failure) -> None:  # noqa: N802 - Twisted's name
        """Take note that the reactor found the socket dead."""
        self._lose(psycopg2.OperationalError(reason.getErrorMessage()))

    def _abandon(self, _result: defer.Deferred[Rows]) -> None:
        self._result = None

    def _advance(self) -> None:
        """Let libpq read and write what it can, and finish the statement when it has ended."""
        try:
            state = (self._cursor if isinstance(self._cursor, Pipeline) else self._connection).poll()
        except psycopg2.Error as error:
            if self._connection.closed or errors.ends_connection(error):
                self._lose(error)
            else:
                self._finish(error)
            return
        if state == POLL_WRITE:
            self._writing = True
            self.reactor.addWriter(self)
            return
        if self._writing:
            self._writing = False
            self.reactor.removeWriter(self)
        if state == POLL_OK:
            if self._cursor is not None:
                self._finish(None)
            if self.on_notify is not None:
                self._notify(self.on_notify)

    def _notify(self, observer: Callable[[str, str], None]) -> None:
        while not self.lost and self._connection.notifies:
            notification = self._connection.notifies.pop(0)
            observer(notification.channel, notification.payload)

    def _finish(self, error: Exception | None) -> None:
        self.answers += 1
        cursor, self._cursor = self._cursor, None
        result, self._result = self._result, None
        ended, self._ended = self._ended, []
        if result is not None:
            if error is None:
                try:
                    if self._status("client_encoding") != self._reported[0]:
                        raise errors.other_encoding()
                    rows = cursor.fetchall() if cursor.description else []
                except UnicodeDecodeError:  # one that was set for a while
                    result.errback(errors.other_encoding())
                except Exception as problem:
                    # A value that psycopg2 cannot decode: the connection itself is fine.
                    result.errback(problem)
                else:
                    result.callback(rows)
            else:
                result.errback(error)
        for waiting in ended:
            if not waiting.called:
                waiting.callback(None)

    def _disconnect(self) -> None:
        """Close the socket."""
        if self._connection is not None:
            self.reactor.removeReader(self)
            self.reactor.removeWriter(self)
            self._connection.close()
        if self._descriptor != -1:
            os.close(self._descriptor)
            self._descriptor = -1
        self._writing = False

    def _lose(self, error: Exception) -> None:
        if self.lost:
            return
        # Before ``lost`` is set: the reactor asks for the descriptor once more.
        self._disconnect()
        self.lost = True
        if self._attempt is not None:
            self._attempt.give_up(error)
        on_lost, self.on_lost = self.on_lost, None
        died = ConnectionDied(str(error).strip())
        died.__cause__ = error
        self._finish(died)
        if on_lost is not None:
            on_lost()
