"""What a request is sent to: its target and its ``Host``, judged as RFC 9112 section 3 asks; pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from dataapi.errors import ApiError

LONGEST_TARGET = 131_072
"""Bytes of a request target."""

_LONGEST_HOST = 300
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)"  # an address, or a name
    r"(?::(?P<port>[0-9]{0,5}))?"
)
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?")


class Target(NamedTuple):
    """Where a request is meant to go.

    :ivar host: the name or address that was asked, with its port if that was said; None when nothing was.
    :ivar path: as it was sent, escapes and all.
    """

    host: str | None
    path: bytes
    query: bytes


def judge(target: bytes, host: str | None, version: bytes) -> Target:
    """Read the target of a request line together with the ``Host`` header.

    :param host: the header's value, ``", "`` between those of repeated ones.
    :raises ApiError: 400, they do not say in one way where the request goes; 414, the target is too long.
    """
    if len(target) > LONGEST_TARGET:
        raise too_long()
    if host is None:
        if version == b"HTTP/1.1":
            raise _bad("The request has no Host header")
    elif not _is_host(host):
        raise _bad("The Host header is not one host name, with or without a port")
    if target.startswith(b"/"):
        path, _, query = target.partition(b"?")
        return Target(host, path, query)
    if target == b"*":
        return Target(host, target, b"")
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or not _is_host(authority := absolute[1].decode("latin-1")):
        raise _bad("The request target is neither a path nor an http URL")
    return Target(authority, absolute[2] or b"/", absolute[3] or b"")


def too_long() -> ApiError:
    """Return the refusal of a target that is too long."""
    return ApiError(414, "URI_TOO_LONG", f"The request target is longer than {LONGEST_TARGET} bytes")


@lru_cache(maxsize=64)
def _is_host(value: str) -> bool:
    found = _HOST.fullmatch(value) if len(value) <= _LONGEST_HOST else None
    return found is not None and int(found["port"] or 0) <= 65_535


def _bad(message: str) -> ApiError:
    return ApiError(400, "BAD_REQUEST", message)
