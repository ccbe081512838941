"""Verifies a JSON Web Token, decides its caller (role and claims) and remembers the result.

Codes and messages are PostgREST's; see docs/reference/rest.md, Roles and tokens.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from dataapi.auth import keys
from dataapi.auth.caller import Caller
from dataapi.auth.role_path import RolePath
from dataapi.concurrency.cache import BoundedCache
from dataapi.http.errors import TokenError
from dataapi.http.strict_json import DECODER, INVALID_JSON, is_storable

SKEW = 30
"""Seconds by which the clocks of issuer and server may differ."""

_NO_KEY = "No suitable key or wrong key type"
_NO_ALGORITHM = "Wrong or unsupported encoding algorithm"
_BROKEN = "JWT cryptographic operation failed"


class UnknownKey(TokenError):
    """None of the known keys can have signed the token; one published since then may have."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A token whose signature and claims were good.

    :ivar has_role: whether the role came from the token itself and not from ``db-anon-role``.
    :ivar usable_from, usable_until: the times, Unix seconds, between which it is usable.
    """

    caller: Caller
    has_role: bool
    usable_from: float
    usable_until: float


@dataclass(frozen=True, slots=True)
class Verifier:
    """A project's demands on a token.

    :ivar keys: the keys of ``jwt-secret``; empty when there is none, or none was read yet.
    :ivar published: whether the keys are published at a URL and may change.
    :ivar audience: the value that ``aud`` must hold when the token has one, or None for any.
    :ivar anon_role: the role of a token without a role claim.
    """

    keys: tuple[keys.VerifyingKey, ...]
    audience: str | None
    role_path: RolePath
    anon_role: str
    published: bool = False

    def verify(self, token: str, now: float) -> Verified:
        """Check a token's signature and claims.

        :param now: Unix seconds.
        :raises TokenError: PGRST300 without a configured key, else PGRST301 (token), PGRST302 (no role) or
            PGRST303 (claims).
        """
        if not self.keys and self.published:
            details = "The keys that jwt-secret names have not been read yet"
            headers = (("Retry-After", "5"),)
            raise UnknownKey(503, "PGRST300", "Server lacks JWT secret", details=details, headers=headers)
        if not self.keys:
            raise TokenError(500, "PGRST300", "Server lacks JWT secret")
        text, claims = _decoded(self._checked_payload(token))
        usable_from, usable_until = _times(claims, now)
        self._check_audience(claims.get("aud"))
        found = self.role_path.find(claims)
        role = self.anon_role if found is None else _role(found)
        if not role:
            raise anonymous_disabled()
        if claims.get("role") != role:
            text = json.dumps({**claims, "role": role}, separators=(",", ":"))
        caller = Caller(role, text, str(claims.get("sub") or ""))
        return Verified(caller, found is not None, usable_from, usable_until)

    def _checked_payload(self, token: str) -> bytes:
        """Return the payload after one of the keys verified the signature."""
        if not token:
            _refuse("PGRST301", "Empty JWT is sent in Authorization header")
        parts = token.split(".")
        if len(parts) != 3:
            _refuse("PGRST301", f"Expected 3 parts in JWT; got {len(parts)}")
        try:
            header = json.loads(_unbase64(parts[0]))
            payload = _unbase64(parts[1])
            signature = _unbase64(parts[2])
        except INVALID_JSON:
            _refuse("PGRST301", _BROKEN)
        if not isinstance(header, dict) or "crit" in header:
            _refuse("PGRST301", _BROKEN)
        algorithm, kid = header.get("alg"), header.get("kid")
        if not keys.known_algorithm(algorithm):
            unsecured = "JWT is unsecured but expected 'alg' was not 'none'"
            _refuse("PGRST301", _NO_ALGORITHM, unsecured if algorithm == "none" else None)
        suitable = [key for key in self.keys if key.suits(algorithm, kid)]
        if not suitable:
            details = "No suitable key was found to decode the JWT"
            raise UnknownKey(401, "PGRST301", _NO_KEY, details=details, headers=_challenge(_NO_KEY))
        signed = token.rpartition(".")[0].encode()
        if not any(key.verifies(algorithm, signed, signature) for key in suitable):
            _refuse("PGRST301", _NO_KEY, "None of the keys was able to decode the JWT")
        return payload

    def _check_audience(self, audience: object) -> None:
        named = [] if audience is None else [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
            _refuse("PGRST303", "The JWT 'aud' claim must be a string or an array of strings")
        if self.audience is not None and named and self.audience not in named:
            _refuse("PGRST303", "JWT not in audience")


def expiry(claims: str) -> float:
    """Return until when a token with these claims is usable, in Unix seconds; infinity without an end.

    :param claims: verified ones, as JSON text.
    """
    when = json.loads(claims).get("exp")
    return float("inf") if when is None else float(min(when, 2**62)) + SKEW


def anonymous_disabled() -> TokenError:
    """Return the error of a caller without a role where ``db-anon-role`` is empty."""
    headers = (("WWW-Authenticate", "Bearer"),)
    return TokenError(401, "PGRST302", "Anonymous access is disabled", headers=headers)


def _refuse(code: str, message: str, details: str | None = None) -> NoReturn:
    """Raise the error of an unusable token, with the challenge of RFC 6750 section 3."""
    raise TokenError(401, code, message, details=details, headers=_challenge(message))


def _challenge(message: str) -> tuple[tuple[str, str], ...]:
    return (("WWW-Authenticate", f'Bearer error="invalid_token", error_description="{message}"'),)


def _unbase64(part: str) -> bytes:
    # Strict: base64's own decoder skips foreign characters, so that one token had many spellings.
    text = part.encode("ascii")
    if b"+" in text or b"/" in text or b"=" in text:
        raise binascii.Error("not base64url")
    return base64.b64decode(text + b"=" * (-len(text) % 4), b"-_", validate=True)


def _decoded(payload: bytes) -> tuple[str, dict[str, Any]]:
    """Return the claims as JSON text and as values."""
    with suppress(*INVALID_JSON):
        text = payload.decode()
        claims = DECODER.decode(text)
        if isinstance(claims, dict):
            return text, claims
    _refuse("PGRST303", "Parsing claims failed")


def _times(claims: dict[str, Any], now: float) -> tuple[float, float]:
    """Check ``exp``, ``nbf`` and ``iat``, each with the skew; return from when to when they allow use."""
    usable_from, usable_until = float("-inf"), float("inf")
    messages = {"exp": "JWT expired", "nbf": "JWT not yet valid", "iat": "JWT issued at future"}
    for name, message in messages.items():
        when = claims.get(name)
        if when is None:
            continue
        if isinstance(when, bool) or not isinstance(when, int | float):
            _refuse("PGRST303", f"The JWT '{name}' claim must be a number")
        # A whole number of any length is JSON; beyond this it means "always" or "never" all the same.
        when = float(min(max(when, -(2**62)), 2**62))
        if name == "exp":
            usable_until = when + SKEW
        else:
            usable_from = max(usable_from, when - SKEW)
        if not usable_from <= now <= usable_until:
            _refuse("PGRST303", message)
    return usable_from, usable_until


def _role(found: object) -> str:
    if not isinstance(found, str) or not found or not is_storable(found):
        _refuse("PGRST303", "The JWT role claim must be a non-empty string")
    return found


class TokenCache:
    """Verifies tokens and remembers at most ``entries`` of them, for as long as their own times allow."""

    def __init__(self, verify: Callable[[str, float], Verified], entries: int) -> None:
        self._verify = verify
        self._entries = entries
        self._tokens: BoundedCache[str, Verified] = BoundedCache(entries)
        self._evicted_before = 0
        self.hits = 0
        self.misses = 0

    @property
    def evictions(self) -> int:
        """How many tokens were forgotten to make room for others."""
        return self._evicted_before + self._tokens.evictions

    def __len__(self) -> int:
        return len(self._tokens)

    def replace_verifier(self, verify: Callable[[str, float], Verified]) -> None:
        """Verify with other keys from now on, and forget every token."""
        self._verify = verify
        self._evicted_before = self.evictions
        self._tokens = BoundedCache(self._entries)

    def verify(self, token: str, now: float) -> Verified:
        """Return the content of a token, from the cache or by ``Verifier.verify``; refusals are not kept."""
        known = self._tokens.get(token)
        if known is not None:
            if known.usable_from <= now <= known.usable_until:
                self.hits += 1
                return known
            self._tokens.drop(token)
        self.misses += 1
        fresh = self._verify(token, now)
        self._tokens.put(token, fresh)
        return fresh
