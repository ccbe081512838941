"""Statements prepared by messages of the protocol, several in one round trip: libpq's pipeline mode.

psycopg2 has no calls for either, so libpq's own are used on its connection.  What is sent between two
``Sync`` is one implicit transaction, as the statements of a simple message are.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg2
from psycopg2 import _psycopg
from psycopg2.extensions import POLL_OK, POLL_READ, POLL_WRITE, UNICODE, string_types

from dataapi.database import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.database.named import Step

# None of these waits for anything, so they keep the interpreter.
_libpq = ctypes.PyDLL(_psycopg.__file__)

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "PQenterPipelineMode": (ctypes.c_int, [ctypes.c_void_p]),
    "PQexitPipelineMode": (ctypes.c_int, [ctypes.c_void_p]),
    "PQpipelineSync": (ctypes.c_int, [ctypes.c_void_p]),
    "PQsendPrepare": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p],
    ),
    "PQsendQueryPrepared": (
        ctypes.c_int,
        [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_char_p),
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int,
        ],
    ),
    "PQflush": (ctypes.c_int, [ctypes.c_void_p]),
    "PQconsumeInput": (ctypes.c_int, [ctypes.c_void_p]),
    "PQisBusy": (ctypes.c_int, [ctypes.c_void_p]),
    "PQstatus": (ctypes.c_int, [ctypes.c_void_p]),
    "PQerrorMessage": (ctypes.c_char_p, [ctypes.c_void_p]),
    "PQsetNoticeReceiver": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]),
    "PQgetResult": (ctypes.c_void_p, [ctypes.c_void_p]),
    "PQclear": (None, [ctypes.c_void_p]),
    "PQresultStatus": (ctypes.c_int, [ctypes.c_void_p]),
    "PQresultErrorField": (ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int]),
    "PQresultErrorMessage": (ctypes.c_char_p, [ctypes.c_void_p]),
    "PQntuples": (ctypes.c_int, [ctypes.c_void_p]),
    "PQnfields": (ctypes.c_int, [ctypes.c_void_p]),
    "PQftype": (ctypes.c_uint, [ctypes.c_void_p, ctypes.c_int]),
    "PQgetisnull": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]),
    "PQgetlength": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]),
    "PQgetvalue": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]),
}
"""The functions of libpq that are used, with the types of their result and arguments."""

AVAILABLE = all(hasattr(_libpq, name) for name in FUNCTIONS)
"""Whether libpq has a pipeline mode, as it does since version 14."""

if AVAILABLE:
    for _name, (_result, _arguments) in FUNCTIONS.items():
        getattr(_libpq, _name).restype = _result
        getattr(_libpq, _name).argtypes = _arguments

_BAD_CONNECTION = 1
_COMMAND, _TUPLES, _FATAL_ERROR, _SYNCHRONIZED = 1, 2, 7, 10
_SEVERITY, _SEVERITY_IN_ENGLISH, _SQLSTATE = ord("S"), ord("V"), ord("C")
_MESSAGE, _DETAIL, _HINT, _CONTEXT = ord("M"), ord("D"), ord("H"), ord("W")

_ignored = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda _argument, _result: None)


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """The fields of an error, by psycopg2's names.

    :ivar statement_position: is of no use, as it counts in what was prepared.
    """

    severity: str | None
    severity_nonlocalized: str | None
    sqlstate: str | None
    message_primary: str | None
    message_detail: str | None
    message_hint: str | None
    context: str | None
    statement_position: None = None


class RefusedStep(psycopg2.Error):
    """An error that PostgreSQL answered a step with, with the attributes of psycopg2's own errors."""

    def __init__(self, text: str, diagnostics: Diagnostics) -> None:
        super().__init__(text)
        self._diagnostics = diagnostics

    @property
    def pgcode(self) -> str | None:  # type: ignore[override]  # psycopg2 lets nobody set its own
        """The SQLSTATE."""
        return self._diagnostics.sqlstate

    @property
    def diag(self) -> Diagnostics:  # type: ignore[override]  # as above
        """The error's fields."""
        return self._diagnostics


class Pipeline:
    """Runs steps on a connection of psycopg2's, one message of them at a time.

    It is polled as psycopg2's connection is, and gives the last step's rows as its cursor does.

    :param connection: psycopg2's, asynchronous and in UTF-8.
    :ivar description: is set like that of a cursor with rows.
    """

    description = True

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._raw: int = connection.pgconn_ptr
        self._cursor = connection.cursor()
        # psycopg2 would keep notices until it is called itself.
        _libpq.PQsetNoticeReceiver(self._raw, _ignored, None)
        self._unsent = False
        self._result: int | None = None
        self._rows: list[tuple[Any, ...]] = []
        self._error: RefusedStep | None = None

    def send(self, steps: Sequence[Step]) -> None:
        """Send the steps as one message.

        Raises ``ValueError`` for text with a NUL, ``UnicodeEncodeError`` for text that UTF-8 does not know,
        both before anything is sent, and ``psycopg2.OperationalError`` when the connection is dead.
        """
        encoded = [(step.name.encode(), _encoded(step.text), *_array(step.values)) for step in steps]
        raw, self._rows, self._error = self._raw, [], None
        self._succeeded(_libpq.PQenterPipelineMode(raw))
        for name, text, count, values in encoded:
            if text is not None:
                self._succeeded(_libpq.PQsendPrepare(raw, name, text, 0, None))
            self._succeeded(_libpq.PQsendQueryPrepared(raw, name, count, values, None, None, 0))
        self._succeeded(_libpq.PQpipelineSync(raw))
        self._unsent = True

    def poll(self) -> int:
        """Send and receive what is possible now; return what to wait for, ``POLL_OK`` when all is done.

        Raises ``RefusedStep`` when it is done and a step was refused, and ``psycopg2.OperationalError`` when
        the connection is dead.
        """
        raw = self._raw
        if self._unsent:
            left = _libpq.PQflush(raw)
            self._succeeded(left >= 0)
            self._unsent = bool(left)
        self._succeeded(_libpq.PQconsumeInput(raw))
        while not _libpq.PQisBusy(raw):
            result = _libpq.PQgetResult(raw)
            if result and self._ends(result):
                self._succeeded(_libpq.PQexitPipelineMode(raw))
                if self._error is not None:
                    raise self._error
                return int(POLL_OK)
            if not result:
                self._succeeded(_libpq.PQstatus(raw) != _BAD_CONNECTION)
        return int(POLL_WRITE if self._unsent else POLL_READ)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the last step's rows, once."""
        rows, self._rows = self._rows, []
        return rows

    def _ends(self, result: int) -> bool:
        """Take a result in; tell whether it is the last one."""
        status = _libpq.PQresultStatus(result)
        try:
            if status == _TUPLES:
                self._rows = self._read(result)
            elif status == _COMMAND:
                self._rows = []
            elif status == _FATAL_ERROR and self._error is None:
                self._error = _error(result)
        finally:
            _libpq.PQclear(result)
        return bool(status == _SYNCHRONIZED)

    def _read(self, result: int) -> list[tuple[Any, ...]]:
        own = self._connection.string_types
        columns = range(_libpq.PQnfields(result))
        kinds = [_libpq.PQftype(result, column) for column in columns]
        casts = [own.get(kind) or string_types.get(kind) or UNICODE for kind in kinds]
        cursor = self._cursor
        return [
            tuple(
                [
                    None
                    if _libpq.PQgetisnull(result, row, column)
                    else casts[column](_value(result, row, column), cursor)
                    for column in columns
                ]
            )
            for row in range(_libpq.PQntuples(result))
        ]

    def _succeeded(self, done: int) -> None:
        """Raise why the connection is dead, if it is."""
        if done:
            return
        if self._error is not None and errors.ends_connection(self._error):
            raise self._error
        raise psycopg2.OperationalError(_libpq.PQerrorMessage(self._raw).decode("utf-8", "replace"))


def _encoded(text: str | None) -> bytes | None:
    if text is None:
        return None
    if "\0" in text:
        raise ValueError("A text contains NUL.")
    return text.encode()


def _array(values: Sequence[str | None]) -> tuple[int, Any]:
    count = len(values)
    return count, (ctypes.c_char_p * count)(*map(_encoded, values))


def _value(result: int, row: int, column: int) -> bytes:
    return ctypes.string_at(_libpq.PQgetvalue(result, row, column), _libpq.PQgetlength(result, row, column))


def _error(result: int) -> RefusedStep:
    codes = (_SEVERITY, _SEVERITY_IN_ENGLISH, _SQLSTATE, _MESSAGE, _DETAIL, _HINT, _CONTEXT)
    fields = [_libpq.PQresultErrorField(result, code) for code in codes]
    texts = [None if field is None else field.decode("utf-8", "replace") for field in fields]
    message = _libpq.PQresultErrorMessage(result).decode("utf-8", "replace")
    return RefusedStep(message, Diagnostics(*texts))
