"""A request and its answer as values, so that handlers never touch twisted.web."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, its body already read and within the limit.

    :ivar id: the request id that the log and ``X-Request-Id`` carry.
    :ivar path: the decoded path, without the query string.
    :ivar query: the raw query string, without the question mark.
    :ivar headers: names in lower case; repeated headers are joined by ``", "``.
    """

    id: str
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer, complete."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
