"""What is borrowed from the insides of txpostgres and psycopg2: connecting, and libpq's cancel request.

Nothing else uses names of theirs that are not public; ``tests/unit/database/test_driver.py`` says which one
has moved.
"""

from __future__ import annotations

import ctypes
from typing import Any

import psycopg2
from psycopg2 import _psycopg
from twisted.internet.defer import Deferred
from txpostgres import txpostgres

_ERROR_BYTES = 256

# A library finds the names of those that it was linked with.
_libpq = ctypes.CDLL(_psycopg.__file__)
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
