"""Errors that clients may see.

Each has a stable code and an HTTP status. All other exceptions are internal: they are logged with the
request ID, and the client gets a generic error.
"""

from __future__ import annotations

from typing import Any, Self

Details = str | list[Any] | None
"""Details of an error: text, or a list of JSON values (PGRST201)."""


class ApiError(Exception):
    """An error that a client may see. Immutable once raised.

    :ivar code: stable code: a PostgREST code (``PGRST…``) or an SQLSTATE.
    :ivar message: one sentence.
    :ivar hint: how to fix the request, or None.
    :ivar headers: extra response headers such as ``Retry-After``.
    :ivar index: zero-based position of the failed request in a batch, or None.
    :ivar reason: reason phrase of the status line, or None for the standard phrase.
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

    def members(self, verbosity: str) -> dict[str, Any]:
        """Return the error as PostgREST's four members, or as two members if the verbosity is ``minimal``."""
        if verbosity == "minimal":
            return {"code": self.code, "message": self.message}
        return {"code": self.code, "details": self.details, "hint": self.hint, "message": self.message}

    def replaced(self, **members: Any) -> Self:
        error = type(self).__new__(type(self), members.get("message", self.message))
        error.__dict__.update(self.__dict__, **members)
        error.__cause__ = self.__cause__
        return error


class DatabaseError(ApiError):
    """Raised when PostgreSQL reports an error; ``code`` is the SQLSTATE.

    :ivar at_value: whether PostgreSQL failed to parse a bound value.
    :ivar table: name of the table whose constraint failed, None if unknown.
    :ivar column: name of the column whose constraint failed, None if unknown.
    """

    at_value = False
    table: str | None = None
    column: str | None = None

    @property
    def serializable_retry(self) -> bool:
        return self.code in ("40001", "40P01")


class DatabaseUnavailable(ApiError):
    """Raised when the database is unavailable: PGRST000, PGRST001, PGRST002 (503) or PGRST003 (504)."""


class TokenError(ApiError):
    """Raised when the bearer token is missing or invalid (PGRST300 to PGRST303)."""


class GatewayError(ApiError):
    """Raised when the project's API key is missing or wrong. The body has only ``message`` and ``hint``."""
