"""Remembers verified tokens, so that a caller's signature is checked once and not with every request."""

from __future__ import annotations

from collections.abc import Callable

from dataapi.access.jwt import Verified


class TokenCache:
    """The most recently used verified tokens, each only for as long as its own times allow.

    :ivar hits: look-ups answered from the cache.
    :ivar misses: look-ups that verified the token.
    """

    def __init__(self, verify: Callable[[str, float], Verified], entries: int) -> None:
        self._verify = verify
        self._entries = entries
        self._kept: dict[str, Verified] = {}  # in order of use, the latest last
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._kept)

    def renew(self, verify: Callable[[str, float], Verified]) -> None:
        """Verify anew from now on, as the keys are others."""
        self._verify = verify
        self._kept.clear()

    def verified(self, token: str, now: float) -> Verified:
        """Return what a token says, from the cache or by verifying it.

        :raises TokenError: the token is not usable; refusals are not remembered.
        """
        kept = self._kept.pop(token, None)
        if kept is not None and kept.usable(now):
            self.hits += 1
            self._kept[token] = kept
            return kept
        self.misses += 1
        fresh = self._verify(token, now)
        if self._entries:
            if len(self._kept) >= self._entries:
                del self._kept[next(iter(self._kept))]
            self._kept[token] = fresh
        return fresh
