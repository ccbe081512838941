"""Personal access tokens: how they look, and what is kept of them."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

PREFIX = "dapat_"
"""What every token begins with, so that people and scanners of leaked secrets know one when they see it."""


def new_token(random: Callable[[int], str] = secrets.token_urlsafe) -> str:
    """Return a token with 256 random bits."""
    return PREFIX + random(32)


def digest(token: str) -> bytes:
    """Return what is kept of a token and what it is found by; its randomness makes salt needless."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
