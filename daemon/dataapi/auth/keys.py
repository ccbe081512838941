"""Keys: those of ``jwt-secret`` (a text, a JWK, a JWKS, or a URL), and the API keys that a project hands out.

The kind of a key decides which algorithms it may verify, never the token: a secret takes
HMAC only, an RSA key RSA only, and ``none`` never.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeGuard
from urllib.parse import urlsplit

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from jwt.algorithms import Algorithm, get_default_algorithms
from jwt.exceptions import PyJWTError

from dataapi.auth.role_path import parse_role_path
from dataapi.http.strict_json import INVALID_JSON
from dataapi.settings import Project

_ALGORITHMS: dict[str, Algorithm] = get_default_algorithms()
del _ALGORITHMS["none"]
_HMAC = ("HS256", "HS384", "HS512")
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "secp256k1": "ES256K"}
_STANDARD = str.maketrans("-_", "+/")
_OKP = ("Ed25519", "Ed448")

API_KEY_LIFETIME = 10 * 365 * 24 * 3600
"""Seconds for which a JWT key is valid: ten years, as it names an application and is replaced by hand."""

_SHORTEST_SECRET = 32
"""Bytes of an HMAC key: RFC 7518 section 3.2 asks for the size of the hash, 32 for HS256."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """One key, ready to verify signatures.

    :ivar kid: the key's id, or None when it has none.
    :ivar any_kid: whether it serves tokens of any key id: true for a secret text, which cannot have one.
    """

    material: Any = field(repr=False)
    algorithms: tuple[str, ...]
    kid: str | None = None
    any_kid: bool = False

    def suits(self, algorithm: str, kid: str | None) -> bool:
        """Whether a token with this header may have been signed by this key."""
        return algorithm in self.algorithms and (kid is None or self.any_kid or kid == self.kid)

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Whether the signature is this key's over the bytes."""
        return _ALGORITHMS[algorithm].verify(signed, self.material, signature)


def known_algorithm(name: object) -> TypeGuard[str]:
    """Whether a token's ``alg`` is one that some kind of key can verify; ``none`` is not."""
    return isinstance(name, str) and name in _ALGORITHMS


def is_url(secret: str) -> bool:
    """Whether a ``jwt-secret`` is the URL at which keys are published."""
    return secret[:8].lower().startswith(("https://", "http://"))


def can_sign(secret: str) -> bool:
    """Whether anyone who reads a valid ``jwt-secret`` can sign tokens, unlike by a URL or public keys."""
    if is_url(secret):
        return False
    document = _document(secret)
    return document is None or any({"k", "d"} & key.keys() for key in document.get("keys", [document]))


def check_key_url(url: str) -> None:
    """Raise ``ValueError`` unless keys may be read from a URL: over https, or from this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        raise ValueError("is not a URL") from None
    if not host or port == 0 or parts.username is not None or not url.isascii():
        raise ValueError("is not a URL with only a host name")
    if parts.scheme != "https" and host not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError("is not an https URL, so that anybody on the way could replace the keys")


def parse_published(body: bytes) -> tuple[VerifyingKey, ...]:
    """Read the public keys of a JWKS that an issuer publishes; unusable ones are left out.

    Symmetric keys are unusable: anyone could sign with a published one.

    :raises ValueError: it is not a JWKS with a usable key; the message has nothing of its content.
    """
    try:
        document = json.loads(body)
    except INVALID_JSON:
        raise ValueError("the answer is not JSON") from None
    members = document.get("keys") if isinstance(document, dict) else None
    found = []
    for member in members if isinstance(members, list) else ():
        if isinstance(member, dict) and member.get("use", "sig") == "sig" and member.get("kty") != "oct":
            with suppress(ValueError):
                found.append(_key(member, "a key"))
    if not found:
        raise ValueError("the answer is not a JWKS with a usable public key")
    return tuple(found)


def decode_secret(secret: str) -> bytes:
    """Return the bytes of a secret in base64 of either alphabet, padded or not; raises ``ValueError``."""
    text = secret.strip().rstrip("=.").translate(_STANDARD)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise ValueError("is not base64") from None


def parse_keys(secret: str, *, is_base64: bool = False) -> tuple[VerifyingKey, ...]:
    """Read the keys of a ``jwt-secret``; those of a set that are not for signatures are left out.

    :param is_base64: whether a secret text is the base64 of the secret's bytes.
    :raises ValueError: the text is too short or holds no usable key; the message says which.
    """
    document = _document(secret)
    if document is None:
        material = decode_secret(secret) if is_base64 else secret.encode()
        _check_length(material, "the secret")
        return (VerifyingKey(material, _HMAC, any_kid=True),)
    members = document.get("keys", [document])
    if not isinstance(members, list):
        raise ValueError("the member keys of the JWKS is not a list")
    keys = tuple(
        _key(member, f"key {number}")
        for number, member in enumerate(members, 1)
        if not isinstance(member, dict) or member.get("use", "sig") == "sig"
    )
    if not keys:
        raise ValueError("the JWKS holds no key for signatures")
    return keys


def _document(secret: str) -> dict[str, Any] | None:
    if not secret.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(secret)
    except INVALID_JSON:
        raise ValueError("begins like a JWK or a JWKS and is not valid JSON") from None
    assert isinstance(found, dict)
    return found


def _key(member: Any, name: str) -> VerifyingKey:
    if not isinstance(member, dict):
        raise ValueError(f"{name} is not a JSON object")
    allowed = _allowed(member, name)
    try:
        material = _ALGORITHMS[allowed[0]].from_jwk(member)
    except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, KeyError):
        raise ValueError(f"{name} cannot be read as a key of type {member['kty']}") from None
    if isinstance(material, bytes):
        _check_length(material, name)
    else:
        material = material.public_key() if hasattr(material, "public_key") else material
        if allowed[0] in _RSA and material.key_size < 2048:
            raise ValueError(f"{name} is an RSA key of fewer than 2048 bits")
    kid = member.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise ValueError(f"{name} has a kid that is not a string")
    return VerifyingKey(material, allowed, kid)


def _allowed(member: dict[str, Any], name: str) -> tuple[str, ...]:
    kind, curve = member.get("kty"), member.get("crv")
    match kind:
        case "oct":
            allowed: tuple[str, ...] = _HMAC
        case "RSA":
            allowed = _RSA
        case "EC" if isinstance(curve, str) and curve in _CURVES:
            allowed = (_CURVES[curve],)
        case "OKP" if curve in _OKP:
            allowed = ("EdDSA",)
        case _:
            raise ValueError(f"{name} needs a kty of oct, RSA, EC or OKP, and a known crv with the last two")
    chosen = member.get("alg")
    if chosen is None:
        return allowed
    if chosen not in allowed:
        raise ValueError(f"{name} has alg {chosen}, expected one of {', '.join(allowed)}")
    return (chosen,)


def _check_length(material: bytes, name: str) -> None:
    if len(material) < _SHORTEST_SECRET:
        raise ValueError(f"{name} has {len(material)} bytes, expected {_SHORTEST_SECRET} or more")


class CannotSign(Exception):
    """The project's ``jwt-secret`` cannot sign; the text says why."""


def new_secret(token: Callable[[int], str]) -> str:
    """Return a random secret for HS256 with 256 bits.

    :param token: makes random text of so many bytes, as ``secrets.token_urlsafe`` does.
    """
    return token(32)


def new_publishable_key(token: Callable[[int], str]) -> str:
    """Return a random opaque key for anonymous callers."""
    return f"sb_publishable_{token(24)}"


def new_secret_key(token: Callable[[int], str]) -> str:
    """Return a random opaque key for ``service_role``."""
    return f"sb_secret_{token(24)}"


def sign(project: Project, role: str, now: int, lifetime: int = API_KEY_LIFETIME, **claims: Any) -> str:
    """Return a token that makes its bearer ``role`` in a project.

    :param now: seconds since 1970; the token is good from then for ``lifetime`` seconds.
    :param claims: further claims such as ``sub``.
    :raises CannotSign: when ``jwt-secret`` is missing or holds public keys only.
    """
    key, algorithm, headers = _signing_key(project.jwt_secret, project.jwt_secret_is_base64)
    payload = {"iss": "dataapi", "ref": project.ref, "iat": now, "exp": now + lifetime, **claims}
    if project.jwt_aud is not None:
        payload["aud"] = project.jwt_aud
    return jwt.encode(
        payload | _role_claim(project.jwt_role_claim_key, role), key, algorithm=algorithm, headers=headers
    )


def _signing_key(secret: str | None, is_base64: bool) -> tuple[Any, str, dict[str, str] | None]:
    """Return the key, its algorithm and the headers that name it."""
    if secret is None:
        raise CannotSign("no jwt-secret is configured")
    if is_url(secret):
        raise CannotSign("jwt-secret names where public keys are published; sign tokens at their issuer")
    document = _document(secret)
    if document is None:
        return decode_secret(secret) if is_base64 else secret, "HS256", None
    for key in document.get("keys", [document]):
        if "k" in key or "d" in key:
            parsed = jwt.PyJWK(key)
            return parsed.key, parsed.algorithm_name, {"kid": key["kid"]} if "kid" in key else None
    raise CannotSign("jwt-secret holds public keys only; sign tokens where the private key is")


def _role_claim(path: str, role: str) -> dict[str, Any]:
    """Return the claims in which ``jwt-role-claim-key`` finds the role."""
    role_path = parse_role_path(path)
    claims = role_path.claims_with(role)
    if not isinstance(claims, dict) or role_path.find(claims) != role:
        raise CannotSign(f"jwt-role-claim-key = {path} does not find {role} in claims that can be made")
    return claims
