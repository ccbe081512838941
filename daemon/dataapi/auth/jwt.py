"""JWT verification, and a cache of verified tokens.

Error codes and messages are PostgREST's. See docs/reference/rest.md, Roles and tokens.
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
"""Allowed clock skew between the issuer and this server, in seconds."""

_NO_KEY = "No suitable key or wrong key type"
_UNSUPPORTED_ALGORITHM = "Wrong or unsupported encoding algorithm"
_CRYPTO_FAILED = "JWT cryptographic operation failed"


class UnknownKey(TokenError):
    """Raised when no known key can have signed the token. The signing key may be newly published."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A token with a valid signature and valid claims, and its period of validity in Unix seconds.

    ``has_role`` is true if the role comes from the token, and not from ``db-anon-role``.
    """

    caller: Caller
    has_role: bool
    usable_from: float
    usable_until: float


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifies the tokens of a project.

    :ivar keys: keys of ``jwt-secret``. Empty if ``jwt-secret`` is not set, or if published keys have not been
        read yet.
    :ivar published: whether the keys are published at a URL.
    :ivar audience: required value of ``aud`` in tokens that have this claim, or None to accept any.
    :ivar anon_role: role for tokens without a role claim.
    """

    keys: tuple[keys.VerifyingKey, ...]
    audience: str | None
    role_path: RolePath
    anon_role: str
    published: bool = False

    def verify(self, token: str, now: float) -> Verified:
        """Verify a token's signature and claims. ``now`` is in Unix seconds.

        :raises TokenError: PGRST300 if no key is configured, PGRST301 for an invalid token, PGRST302 if there
            is no role, PGRST303 for invalid claims.
        """
        if not self.keys and self.published:
            details = "The keys at the URL of jwt-secret have not been read yet"
            headers = (("Retry-After", "5"),)
            raise UnknownKey(503, "PGRST300", "Server lacks JWT secret", details=details, headers=headers)
        if not self.keys:
            raise TokenError(500, "PGRST300", "Server lacks JWT secret")
        text, claims = _decode_claims(self._verified_payload(token))
        usable_from, usable_until = _validity_period(claims, now)
        self._check_audience(claims.get("aud"))
        role_claim = self.role_path.find(claims)
        role = self.anon_role if role_claim is None else _role(role_claim)
        if not role:
            raise anonymous_disabled()
        if claims.get("role") != role:
            text = json.dumps({**claims, "role": role}, separators=(",", ":"))
        caller = Caller(role, text, str(claims.get("sub") or ""))
        return Verified(caller, role_claim is not None, usable_from, usable_until)

    def _verified_payload(self, token: str) -> bytes:
        if not token:
            _reject("PGRST301", "Empty JWT is sent in Authorization header")
        parts = token.split(".")
        if len(parts) != 3:
            _reject("PGRST301", f"Expected 3 parts in JWT; got {len(parts)}")
        try:
            header = json.loads(_decode_base64url(parts[0]))
            payload = _decode_base64url(parts[1])
            signature = _decode_base64url(parts[2])
        except INVALID_JSON:
            _reject("PGRST301", _CRYPTO_FAILED)
        if not isinstance(header, dict) or "crit" in header:
            _reject("PGRST301", _CRYPTO_FAILED)
        algorithm, kid = header.get("alg"), header.get("kid")
        if not keys.is_supported_algorithm(algorithm):
            unsecured = "JWT is unsecured but expected 'alg' was not 'none'"
            _reject("PGRST301", _UNSUPPORTED_ALGORITHM, unsecured if algorithm == "none" else None)
        suitable = [key for key in self.keys if key.suits(algorithm, kid)]
        if not suitable:
            details = "No suitable key was found to decode the JWT"
            raise UnknownKey(401, "PGRST301", _NO_KEY, details=details, headers=_challenge(_NO_KEY))
        signed = token.rpartition(".")[0].encode()
        if not any(key.verifies(algorithm, signed, signature) for key in suitable):
            _reject("PGRST301", _NO_KEY, "None of the keys was able to decode the JWT")
        return payload

    def _check_audience(self, audience: object) -> None:
        audiences = [] if audience is None else [audience] if isinstance(audience, str) else audience
        if not isinstance(audiences, list) or not all(isinstance(value, str) for value in audiences):
            _reject("PGRST303", "The JWT 'aud' claim must be a string or an array of strings")
        if self.audience is not None and audiences and self.audience not in audiences:
            _reject("PGRST303", "JWT not in audience")


def expiry(claims: str) -> float:
    """Return the expiry of a token with these claims (JSON text), in Unix seconds. Infinity means never."""
    timestamp = json.loads(claims).get("exp")
    return float("inf") if timestamp is None else float(min(timestamp, 2**62)) + SKEW


def anonymous_disabled() -> TokenError:
    headers = (("WWW-Authenticate", "Bearer"),)
    return TokenError(401, "PGRST302", "Anonymous access is disabled", headers=headers)


def _reject(code: str, message: str, details: str | None = None) -> NoReturn:
    raise TokenError(401, code, message, details=details, headers=_challenge(message))


def _challenge(message: str) -> tuple[tuple[str, str], ...]:
    return (("WWW-Authenticate", f'Bearer error="invalid_token", error_description="{message}"'),)


def _decode_base64url(part: str) -> bytes:
    # b64decode accepts base64 mixed with base64url, so one token would have several spellings.
    text = part.encode("ascii")
    if b"+" in text or b"/" in text or b"=" in text:
        raise binascii.Error("not base64url")
    return base64.b64decode(text + b"=" * (-len(text) % 4), b"-_", validate=True)


def _decode_claims(payload: bytes) -> tuple[str, dict[str, Any]]:
    with suppress(*INVALID_JSON):
        text = payload.decode()
        claims = DECODER.decode(text)
        if isinstance(claims, dict):
            return text, claims
    _reject("PGRST303", "Parsing claims failed")


def _validity_period(claims: dict[str, Any], now: float) -> tuple[float, float]:
    usable_from, usable_until = float("-inf"), float("inf")
    messages = {"exp": "JWT expired", "nbf": "JWT not yet valid", "iat": "JWT issued at future"}
    for name, message in messages.items():
        timestamp = claims.get(name)
        if timestamp is None:
            continue
        if isinstance(timestamp, bool) or not isinstance(timestamp, int | float):
            _reject("PGRST303", f"The JWT '{name}' claim must be a number")
        # JSON integers can be too large for float().
        timestamp = float(min(max(timestamp, -(2**62)), 2**62))
        if name == "exp":
            usable_until = timestamp + SKEW
        else:
            usable_from = max(usable_from, timestamp - SKEW)
        if not usable_from <= now <= usable_until:
            _reject("PGRST303", message)
    return usable_from, usable_until


def _role(claim: object) -> str:
    if not isinstance(claim, str) or not claim or not is_storable(claim):
        _reject("PGRST303", "The JWT role claim must be a non-empty string")
    return claim


class TokenCache:
    """Verifies tokens, and caches up to ``entries`` of them while they are valid. Errors are not cached."""

    def __init__(self, verify: Callable[[str, float], Verified], entries: int) -> None:
        self._verify = verify
        self._entries = entries
        self._tokens: BoundedCache[str, Verified] = BoundedCache(entries)
        self._evicted_before = 0
        self.hits = 0
        self.misses = 0

    @property
    def evictions(self) -> int:
        return self._evicted_before + self._tokens.evictions

    def __len__(self) -> int:
        return len(self._tokens)

    def replace_verifier(self, verify: Callable[[str, float], Verified]) -> None:
        self._verify = verify
        self._evicted_before = self.evictions
        self._tokens = BoundedCache(self._entries)

    def verify(self, token: str, now: float) -> Verified:
        cached = self._tokens.get(token)
        if cached is not None:
            if cached.usable_from <= now <= cached.usable_until:
                self.hits += 1
                return cached
            self._tokens.drop(token)
        self.misses += 1
        verified = self._verify(token, now)
        self._tokens.put(token, verified)
        return verified
