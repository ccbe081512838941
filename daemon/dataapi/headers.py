"""What headers are called and say, and which of an answer SQL may choose; pure."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_FRAMING = frozenset(
    {"connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)

CALLER = "Accept-Profile, Authorization, apikey"
"""What ``Vary`` names beside an answer's own: a cache must not give one caller's rows to another.

Caches know it of ``Authorization`` by themselves, but not of API keys.
"""


def media_type(content_type: str) -> str:
    """Return the media type of a ``Content-Type`` header, without its parameters and in small letters."""
    return content_type.partition(";")[0].strip().lower()


def is_name(name: str) -> bool:
    """Whether a header can be called so; another name could end the header and begin the next one."""
    return _NAME.fullmatch(name) is not None


def may_be_chosen(name: str) -> bool:
    """Whether a header is one that says something of the answer, and not where it begins and ends."""
    return is_name(name) and name.lower() not in _FRAMING
