"""Remembers verified tokens, so that a caller's signature is checked once and not with every request."""

from __future__ import annotations

from collections.abc import Callable

from dataapi.access.jwt import Verified
from dataapi.cache import BoundedCache


class TokenCache:
    """Verifies tokens and keeps what they say, each only for as long as its own times allow.

    :param entries: the most tokens that are kept.
    :ivar hits: look-ups answered from the cache.
    :ivar misses: look-ups that verified the token.
    """

    def __init__(self, verify: Callable[[str, float], Verified], entries: int) -> None:
        self._verify = verify
        self._entries = entries
        self._kept: BoundedCache[str, Verified] = BoundedCache(entries)
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._kept)

    def renew(self, verify: Callable[[str, float], Verified]) -> None:
        """Verify anew from now on, as the keys are others."""
        self._verify = verify
        self._kept = BoundedCache(self._entries)

    def verified(self, token: str, now: float) -> Verified:
        """Return what a token says, from the cache or by verifying it.

        :param now: Unix seconds.
        :raises TokenError: the token is not usable; refusals are not remembered.
        """
        kept = self._kept.get(token)
        if kept is not None:
            if kept.usable(now):
                self.hits += 1
                return kept
            self._kept.drop(token)
        self.misses += 1
        fresh = self._verify(token, now)
        self._kept.put(token, fresh)
        return fresh
