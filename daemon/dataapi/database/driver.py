"""What is borrowed from the insides of txpostgres and psycopg2: connecting, and libpq's own functions.

Those of libpq are called by ``ctypes``, in the very library that psycopg2 brings.  psycopg's C module brings
another one, which cannot take over a connection that txpostgres made; where it was tried it was as fast as
psycopg2.  What saves time is to send several messages together, see ``quick_reads``.

Nothing else uses names of theirs that are not public; ``tests/unit/database/test_driver.py`` says which one
has moved.
"""

from __future__ import annotations

import ctypes
from typing import Any

import psycopg2
from psycopg2 import _psycopg
from psycopg2.extensions import POLL_OK, POLL_READ, POLL_WRITE
from twisted.internet.defer import Deferred
from txpostgres import txpostgres

JSON_TYPES = (114, 3802)
"""The numbers of ``json`` and ``jsonb``, which are not decoded."""

_ERROR_BYTES = 256

# A library finds the names of those that it was linked with.
_libpq = ctypes.CDLL(_psycopg.__file__)
# These do not block, so they keep the interpreter: giving it up costs more than most of them take.
_quick = ctypes.PyDLL(_psycopg.__file__)
_libpq.PQgetCancel.argtypes = [ctypes.c_void_p]
_libpq.PQgetCancel.restype = ctypes.c_void_p
_libpq.PQcancel.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
_libpq.PQcancel.restype = ctypes.c_int
_libpq.PQfreeCancel.argtypes = [ctypes.c_void_p]
_libpq.PQfreeCancel.restype = None


class ConnectionAttempt(txpostgres.Connection):  # type: ignore[misc]  # txpostgres is untyped
    """One attempt to connect without blocking, by txpostgres.

    While libpq connects, its socket may change or be found dead; libpq is asked all the same, as it alone
    knows why, and whether it tries another way.

    :param parameters: libpq's, of one place; raises ``psycopg2.Error`` for what it refuses at once.
    """

    _pollingD: Any  # noqa: N815 - txpostgres's name

    def __init__(self, reactor: Any, parameters: dict[str, str]) -> None:
        super().__init__(reactor)
        self._connection = psycopg2.connect(**parameters, async_=True)  # type: ignore[call-overload]

    def made(self) -> Deferred[Any]:
        """Return a Deferred that fires with psycopg2's connection, or fails with ``psycopg2.Error``.

        Cancelling it gives up, where txpostgres would ask the server to cancel, which blocks.
        """
        made: Deferred[Any] = Deferred(lambda _: self.give_up())
        self.poll().addCallback(lambda _: self._connection).addBoth(
            lambda outcome: None if made.called else made.callback(outcome)
        )
        return made

    # The connection's own would watch the socket after libpq has connected, too.
    doRead = txpostgres._PollingMixin.doRead  # noqa: N815
    doWrite = txpostgres._PollingMixin.doWrite  # noqa: N815
    connectionLost = txpostgres._PollingMixin.connectionLost  # noqa: N815

    def give_up(self, error: Exception | None = None) -> None:
        """Close the socket; with an error ``made`` fails with it."""
        polling, self._pollingD = self._pollingD, None
        self.reactor.removeReader(self)
        self.reactor.removeWriter(self)
        self._connection.close()
        if error is not None and polling is not None:
            polling.errback(error)


class CancelRequest:
    """libpq's request to end what runs on a connection, which may be closed meanwhile.

    It is called past psycopg2, which holds the interpreter while it waits for the answer.

    :param connection: psycopg2's, open.
    """

    def __init__(self, connection: Any) -> None:
        self._cancel = _libpq.PQgetCancel(connection.pgconn_ptr)

    def send(self) -> str:
        """Send it, once, and wait until the server has taken it; return why it has not, "" when it has.

        This blocks without a limit.
        """
        reason = ctypes.create_string_buffer(_ERROR_BYTES)
        taken = _libpq.PQcancel(self._cancel, reason, _ERROR_BYTES)
        _libpq.PQfreeCancel(self._cancel)
        return "" if taken else reason.value.decode("utf-8", "replace").strip()


def _function(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_quick, name)
    function.argtypes, function.restype = arguments, result
    return function


_pointer, _int, _bytes = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_send_query = _function("PQsendQuery", _int, _pointer, _bytes)
_flush = _function("PQflush", _int, _pointer)
_consume_input = _function("PQconsumeInput", _int, _pointer)
_is_busy = _function("PQisBusy", _int, _pointer)
_error_message = _function("PQerrorMessage", _bytes, _pointer)
_get_result = _function("PQgetResult", _pointer, _pointer)
_status = _function("PQresultStatus", _int, _pointer)
_command = _function("PQcmdStatus", _bytes, _pointer)
_row_count = _function("PQntuples", _int, _pointer)
_columns = _function("PQnfields", _int, _pointer)
_type = _function("PQftype", ctypes.c_uint, _pointer, _int)
_is_null = _function("PQgetisnull", _int, _pointer, _int, _int)
_value = _function("PQgetvalue", _bytes, _pointer, _int, _int)
_clear = _function("PQclear", None, _pointer)
_notification = _function("PQnotifies", _pointer, _pointer)
_free = _function("PQfreemem", None, _pointer)
_set_notice_receiver = _function("PQsetNoticeReceiver", _pointer, _pointer, _pointer, _pointer)
_TUPLES_OK = 2
_RESET = b"RESET"
"""What undoes a transaction's settings before it is committed; it has no rows."""


def ignore_notices(connection: Any) -> None:
    """Drop what the server remarks; psycopg2 would keep it until it is asked next."""
    # A function of libpq that does nothing when it is called as a receiver: its first argument is NULL.
    _set_notice_receiver(connection.pgconn_ptr, ctypes.cast(_status, _pointer), None)


class TransactionAnswers:
    """The answers to a message of several transactions, of which psycopg2 would give the last rows alone.

    It stands in for a cursor that runs: ``poll`` is asked in place of the connection.

    :param connection: psycopg2's, on which nothing runs.
    :param text: each transaction in it ends with ``commit``, and answers with the rows of its last statement.
    """

    description = True

    def __init__(self, connection: Any, text: bytes) -> None:
        self._cursor = connection.cursor()
        self._pointer = connection.pgconn_ptr
        self._answers: list[list[tuple[Any, ...]]] = []
        self._last: int | None = None
        if not _send_query(self._pointer, text):
            raise self._failure()

    def poll(self) -> int:
        """Go on, and return what psycopg2's ``poll`` does; raises ``OperationalError`` when it is lost."""
        pointer = self._pointer
        unsent = _flush(pointer)
        if unsent < 0 or not _consume_input(pointer):
            self._take(None)
            raise self._failure()
        while not _is_busy(pointer):
            result = _get_result(pointer)
            if result is None:
                self._take(None)
                while notification := _notification(pointer):
                    _free(notification)
                return POLL_OK
            if _status(result) == _TUPLES_OK:
                self._take(result)
                continue
            command = _command(result)
            _clear(result)
            if command == b"COMMIT":
                self._answers.append(self._rows())
            if command != _RESET:
                self._take(None)
        return POLL_WRITE if unsent else POLL_READ

    def fetchall(self) -> list[list[tuple[Any, ...]]]:
        """Return the rows of each transaction, up to the first one that failed."""
        return self._answers

    def _take(self, result: int | None) -> None:
        """Keep a result, of which only the last one of each transaction is read."""
        if self._last is not None:
            _clear(self._last)
        self._last = result

    def _rows(self) -> list[tuple[Any, ...]]:
        result = self._last
        if result is None:
            return []
        types = [_type(result, column) for column in range(_columns(result))]
        return [
            tuple([self._value(result, row, column, kind) for column, kind in enumerate(types)])
            for row in range(_row_count(result))
        ]

    def _value(self, result: int, row: int, column: int, kind: int) -> Any:
        value: bytes = _value(result, row, column)
        if kind in JSON_TYPES and value:
            return value
        return None if _is_null(result, row, column) else self._cursor.cast(kind, value.decode())

    def _failure(self) -> psycopg2.OperationalError:
        return psycopg2.OperationalError(_error_message(self._pointer).decode("utf-8", "replace"))
