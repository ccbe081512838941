"""What may go wrong while a request is answered, as the client may see it.

An error is raised once, with a stable code and an HTTP status, and rendered once per
protocol.  Whatever is not an ``ApiError`` is internal: it goes to the log with the
request id and the client learns nothing but that it happened.
"""

from __future__ import annotations

from typing import Any

Details = str | list[Any] | None
"""More about an occurrence: a text, or a list of what JSON can hold (PGRST201)."""


class ApiError(Exception):
    """A refusal or failure that a client may read.

    :ivar status: HTTP status.
    :ivar code: a stable code, PostgREST's ``PGRST…`` or an SQLSTATE.
    :ivar message: one sentence.
    :ivar details: more about this occurrence, or None.
    :ivar hint: what to do about it, or None.
    :ivar headers: extra response headers such as ``Retry-After``.
    :ivar index: which request of a batch it is about, counted from 0, None outside of batches.
    :ivar reason: the reason phrase of the status line, None for the status's own.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        details: Details = None,
        hint: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details
        self.hint = hint
        self.headers = headers
        self.reason = reason
        self.index: int | None = None


class DatabaseError(ApiError):
    """PostgreSQL refused or failed the statement; ``code`` is its SQLSTATE.

    :ivar serializable_retry: whether running the same transaction again may succeed.
    :ivar at_value: whether it arose where PostgreSQL read a value that was sent.
    """

    at_value = False

    @property
    def serializable_retry(self) -> bool:
        """Whether the SQLSTATE is a serialization failure or a deadlock."""
        return self.code in ("40001", "40P01")


class DatabaseUnavailable(ApiError):
    """No connection to the database can be had: PGRST000, PGRST001, PGRST002 (503) or PGRST003 (504)."""


class TokenError(ApiError):
    """The bearer token is unusable (PGRST300 to PGRST303)."""


class GatewayError(ApiError):
    """The project API key is missing or wrong: the body has ``message`` and ``hint`` only."""
