"""A request and its answer as values, so that handlers never touch twisted.web."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from dataapi.web.timing import Timing

Stream = AsyncGenerator[bytes, None]
"""The pieces of a body that is made while it is sent; none is asked for while the client does not read."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, its body already read and within the limit.

    :ivar id: the request id that the log and ``X-Request-Id`` carry.
    :ivar path: the decoded path, without the query string.
    :ivar query: the raw query string, without the question mark.
    :ivar headers: names in lower case; repeated headers are joined by ``", "``.
    :ivar peer: the address that the connection comes from, "" where it has none.
    :ivar timing: takes how long the stages last, None where nobody wants to know.
    """

    id: str
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    timing: Timing | None = None
    peer: str = ""

    def mark(self, stage: str) -> None:
        """End a stage of the answer's making, one of ``timing.STAGES``."""
        if self.timing is not None:
            self.timing.mark(stage)


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer.

    :ivar stream: what follows ``body``, for an answer that is made while it is sent.  An error before
        its first piece is answered as any; a later one cuts the answer off.  ``HEAD`` does not run it.
    :ivar reason: the reason phrase of the status line, None for the status's own.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    stream: Stream | None = None
    reason: str | None = None
