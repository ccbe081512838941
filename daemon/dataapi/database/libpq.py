"""libpq's cancel request, called past psycopg2, which holds the interpreter while it waits for the answer."""

from __future__ import annotations

import ctypes
from typing import Any

from psycopg2 import _psycopg

_ERROR_BYTES = 256

# A library finds the names of those that it was linked with.
_libpq = ctypes.CDLL(_psycopg.__file__)
_libpq.PQgetCancel.argtypes = [ctypes.c_void_p]
_libpq.PQgetCancel.restype = ctypes.c_void_p
_libpq.PQcancel.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
_libpq.PQcancel.restype = ctypes.c_int
_libpq.PQfreeCancel.argtypes = [ctypes.c_void_p]
_libpq.PQfreeCancel.restype = None


class CancelRequest:
    """A request to end what runs on a connection, which may be closed meanwhile.

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
