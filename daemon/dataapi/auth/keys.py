"""Keys of ``jwt-secret`` (a secret, a JWK, a JWKS, or the URL of a JWKS), and the project's own API keys.

A key's type limits its algorithms, regardless of the token: HMAC for secrets, RSA for RSA keys, and never
``none``.
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
_URLSAFE_TO_STANDARD = str.maketrans("-_", "+/")
_OKP = ("Ed25519", "Ed448")

API_KEY_LIFETIME = 10 * 365 * 24 * 3600
"""Validity of a JWT API key, in seconds. Ten years, because applications embed it."""

_MIN_SECRET_BYTES = 32
"""Minimum length of an HMAC key in bytes (RFC 7518, section 3.2, for HS256)."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A key that verifies signatures.

    ``any_kid`` is true if the key also verifies tokens with another key ID, like a plain secret.
    """

    material: Any = field(repr=False)
    algorithms: tuple[str, ...]
    kid: str | None = None
    any_kid: bool = False

    def suits(self, algorithm: str, kid: str | None) -> bool:
        return algorithm in self.algorithms and (kid is None or self.any_kid or kid == self.kid)

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        return _ALGORITHMS[algorithm].verify(signed, self.material, signature)


def is_supported_algorithm(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and name in _ALGORITHMS


def is_url(secret: str) -> bool:
    return secret[:8].lower().startswith(("https://", "http://"))


def can_sign(secret: str) -> bool:
    """Whether a valid ``jwt-secret`` can sign tokens, unlike a URL or public keys."""
    if is_url(secret):
        return False
    document = _document(secret)
    return document is None or any({"k", "d"} & key.keys() for key in document.get("keys", [document]))


def check_key_url(url: str) -> None:
    """Raise ``ValueError`` unless the URL uses HTTPS or is on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        raise ValueError("is not a URL") from None
    if not host or port == 0 or parts.username is not None or not url.isascii():
        raise ValueError("is not a URL with a host and without a user name")
    if parts.scheme != "https" and host not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError("is not an https URL, so an attacker on the network could replace the keys")


def parse_published(body: bytes) -> tuple[VerifyingKey, ...]:
    """Parse a published JWKS. Unusable keys are ignored.

    Symmetric keys are unusable, because anyone could sign with them.

    :raises ValueError: the body is not a JWKS with a usable key. The message contains no part of the body.
    """
    try:
        document = json.loads(body)
    except INVALID_JSON:
        raise ValueError("the response is not JSON") from None
    members = document.get("keys") if isinstance(document, dict) else None
    usable = []
    for member in members if isinstance(members, list) else ():
        if isinstance(member, dict) and member.get("use", "sig") == "sig" and member.get("kty") != "oct":
            with suppress(ValueError):
                usable.append(_key(member, "a key"))
    if not usable:
        raise ValueError("the response is not a JWKS with a usable public key")
    return tuple(usable)


def decode_secret(secret: str) -> bytes:
    text = secret.strip().rstrip("=.").translate(_URLSAFE_TO_STANDARD)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise ValueError("is not base64") from None


def parse_keys(secret: str, *, is_base64: bool = False) -> tuple[VerifyingKey, ...]:
    """Parse the keys of ``jwt-secret``. Keys of a JWKS that are not for signatures are ignored.

    :param is_base64: whether a plain secret is base64-encoded.
    :raises ValueError: the secret is too short or contains no usable key.
    """
    document = _document(secret)
    if document is None:
        material = decode_secret(secret) if is_base64 else secret.encode()
        _check_length(material, "the secret")
        return (VerifyingKey(material, _HMAC, any_kid=True),)
    members = document.get("keys", [document])
    if not isinstance(members, list):
        raise ValueError('the member "keys" of the JWKS is not a list')
    keys = tuple(
        _key(member, f"key {number}")
        for number, member in enumerate(members, 1)
        if not isinstance(member, dict) or member.get("use", "sig") == "sig"
    )
    if not keys:
        raise ValueError("the JWKS contains no key for signatures")
    return keys


def _document(secret: str) -> dict[str, Any] | None:
    if not secret.lstrip().startswith("{"):
        return None
    try:
        document = json.loads(secret)
    except INVALID_JSON:
        raise ValueError("starts like a JWK or a JWKS, but is not valid JSON") from None
    assert isinstance(document, dict)
    return document


def _key(member: Any, name: str) -> VerifyingKey:
    if not isinstance(member, dict):
        raise ValueError(f"{name} is not a JSON object")
    allowed = _allowed_algorithms(member, name)
    try:
        material = _ALGORITHMS[allowed[0]].from_jwk(member)
    except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, KeyError):
        raise ValueError(f"{name} is not a valid key of type {member['kty']}") from None
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


def _allowed_algorithms(member: dict[str, Any], name: str) -> tuple[str, ...]:
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
            raise ValueError(
                f"{name} needs a kty of oct, RSA, EC or OKP, and EC and OKP need a supported crv"
            )
    algorithm = member.get("alg")
    if algorithm is None:
        return allowed
    if algorithm not in allowed:
        raise ValueError(f"{name} has alg {algorithm}, expected one of {', '.join(allowed)}")
    return (algorithm,)


def _check_length(material: bytes, name: str) -> None:
    if len(material) < _MIN_SECRET_BYTES:
        raise ValueError(f"{name} has {len(material)} bytes, expected {_MIN_SECRET_BYTES} or more")


class CannotSign(Exception):
    """Raised when ``jwt-secret`` cannot sign tokens. The message contains the reason."""


def new_secret(token: Callable[[int], str]) -> str:
    return token(32)


def new_publishable_key(token: Callable[[int], str]) -> str:
    return f"sb_publishable_{token(24)}"


def new_secret_key(token: Callable[[int], str]) -> str:
    return f"sb_secret_{token(24)}"


def sign(project: Project, role: str, now: int, lifetime: int = API_KEY_LIFETIME, **claims: Any) -> str:
    """Return a signed token for a role. ``now`` is in Unix seconds, ``lifetime`` in seconds.

    :param claims: additional claims, such as ``sub``.
    :raises CannotSign: ``jwt-secret`` is missing or contains only public keys.
    """
    key, algorithm, headers = _signing_key(project.jwt_secret, project.jwt_secret_is_base64)
    payload = {"iss": "dataapi", "ref": project.ref, "iat": now, "exp": now + lifetime, **claims}
    if project.jwt_aud is not None:
        payload["aud"] = project.jwt_aud
    return jwt.encode(
        payload | _role_claim(project.jwt_role_claim_key, role), key, algorithm=algorithm, headers=headers
    )


def _signing_key(secret: str | None, is_base64: bool) -> tuple[Any, str, dict[str, str] | None]:
    if secret is None:
        raise CannotSign("no jwt-secret is configured")
    if is_url(secret):
        raise CannotSign(
            "jwt-secret is the URL of public keys, which cannot sign. Have the issuer sign tokens."
        )
    document = _document(secret)
    if document is None:
        return decode_secret(secret) if is_base64 else secret, "HS256", None
    for key in document.get("keys", [document]):
        if "k" in key or "d" in key:
            parsed = jwt.PyJWK(key)
            return parsed.key, parsed.algorithm_name, {"kid": key["kid"]} if "kid" in key else None
    raise CannotSign("jwt-secret contains only public keys. Sign tokens where the private key is stored.")


def _role_claim(path: str, role: str) -> dict[str, Any]:
    role_path = parse_role_path(path)
    claims = role_path.claims_with(role)
    if not isinstance(claims, dict) or role_path.find(claims) != role:
        raise CannotSign(f"cannot construct claims in which jwt-role-claim-key = {path} selects {role}")
    return claims
