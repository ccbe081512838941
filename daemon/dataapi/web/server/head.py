"""Heads: a request's target, ``Host`` and headers as text, and the bytes of an answer's head; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

from dataapi.http.errors import ApiError
from dataapi.http.messages import LONGEST_TARGET

_LONGEST_HOST = 300
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)"  # an address, or a name
    r"(?::(?P<port>[0-9]{0,5}))?"
)
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?")

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus} | {
    413: "HTTP/1.1 413 Content Too Large",
    414: "HTTP/1.1 414 URI Too Long",
    499: "HTTP/1.1 499 Client Closed Request",
}

_BODILESS = frozenset((204, 304))
_FORBIDDEN = re.compile(r"[\r\n\0]")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class RequestTarget(NamedTuple):
    """Where a request goes.

    :ivar host: the host name or address, with its port if there is one; None without a ``Host``.
    :ivar path: as sent, still percent-encoded.
    """

    host: str | None
    path: bytes
    query: bytes


def parse_target(target: bytes, host: str | None, minor: int) -> RequestTarget:
    """Read the target of a request line together with the ``Host`` header (RFC 9112 section 3).

    :param host: the header's value, ``", "`` between those of repeated ones.
    :param minor: the minor version of HTTP/1, 0 or 1.
    :raises ApiError: 400, they are malformed or contradict each other; 414, the target is too long.
    """
    if len(target) > LONGEST_TARGET:
        raise target_too_long()
    if host is None:
        if minor:
            raise _bad_request("The request has no Host header")
    elif not _is_host(host):
        raise _bad_request("The Host header is not one host name, with or without a port")
    if target.startswith(b"/"):
        path, _, query = target.partition(b"?")
        return RequestTarget(host, path, query)
    if target == b"*":
        return RequestTarget(host, target, b"")
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or not _is_host(authority := absolute[1].decode("latin-1")):
        raise _bad_request("The request target is neither a path nor an http URL")
    return RequestTarget(authority, absolute[2] or b"/", absolute[3] or b"")


def target_too_long() -> ApiError:
    """Return the error for a target that is too long."""
    return ApiError(414, "URI_TOO_LONG", f"The request target is longer than {LONGEST_TARGET} bytes")


@lru_cache(maxsize=64)
def _is_host(value: str) -> bool:
    found = _HOST.fullmatch(value) if len(value) <= _LONGEST_HOST else None
    return found is not None and int(found["port"] or 0) <= 65_535


def _bad_request(message: str) -> ApiError:
    return ApiError(400, "BAD_REQUEST", message)


def response_head(
    status: int, headers: Iterable[tuple[str, str]], length: int | None, reason: str | None = None
) -> bytes:
    """Write the status line and the headers, with ``Content-Length`` where the status has a body.

    A line end within a value would begin another header, so it becomes a space.

    :param length: of the body; None when it is not known yet.
    :param reason: the reason phrase, None for the standard one.
    """
    if reason is None:
        lines = [_STATUS_LINES.get(status) or f"HTTP/1.1 {status} Unknown Status"]
    else:
        lines = [f"HTTP/1.1 {status} {reason}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if length is not None and status not in _BODILESS:
        lines.append(f"Content-Length: {length}")
    text = "\r\n".join(lines)
    if "\0" in text or not text.count("\r") == text.count("\n") == len(lines) - 1:
        text = "\r\n".join([_FORBIDDEN.sub(" ", line) for line in lines])
    return f"{text}\r\n\r\n".encode("utf-8", "replace")


def has_body(status: int) -> bool:
    """Whether answers of this status carry a body."""
    return status not in _BODILESS


def valid_request_id(sent: str | None) -> str | None:
    """Return the client's ``X-Request-Id`` when it is fit for logs and headers, else None."""
    return sent if sent and _REQUEST_ID.fullmatch(sent) else None
