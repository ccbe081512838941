"""Errors that a client may read.

An error is raised once, with a stable code and an HTTP status, and rendered once per
protocol.  Every other exception is internal: it goes to the log with the
request id, and the client learns only that it happened.
"""

from __future__ import annotations

from typing import Any, Self

Details = str | list[Any] | None
"""Details of an error: a text, or a list of JSON values (PGRST201)."""


class ApiError(Exception):
    """A refusal or failure that a client may read; it is not changed once it was raised.

    :ivar code: a stable code, PostgREST's ``PGRST…`` or an SQLSTATE.
    :ivar message: one sentence.
    :ivar hint: how to correct it, or None.
    :ivar headers: extra response headers such as ``Retry-After``.
    :ivar index: which request of a batch failed, counted from 0; None outside of batches.
    :ivar reason: the reason phrase of the status line, None for the standard one.
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

    def replaced(self, **members: Any) -> Self:
        """Return an error like this one with other members, to be raised in its place."""
        error = type(self).__new__(type(self), members.get("message", self.message))
        error.__dict__.update(self.__dict__, **members)
        error.__cause__ = self.__cause__
        return error


class DatabaseError(ApiError):
    """PostgreSQL rejected or failed the statement; ``code`` is the SQLSTATE.

    :ivar at_value: whether it arose while PostgreSQL parsed a value that was sent.
    """

    at_value = False

    @property
    def serializable_retry(self) -> bool:
        """Whether the SQLSTATE is a serialization failure or a deadlock."""
        return self.code in ("40001", "40P01")


class DatabaseUnavailable(ApiError):
    """The database is not available: PGRST000, PGRST001, PGRST002 (503) or PGRST003 (504)."""


class TokenError(ApiError):
    """The bearer token is unusable (PGRST300 to PGRST303)."""


class GatewayError(ApiError):
    """The project API key is missing or wrong: the body has ``message`` and ``hint`` only."""
