"""Making API keys: opaque ones, and JWTs signed with a project's secret."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import jwt

from dataapi.access.keys import decoded, is_address
from dataapi.access.rolepath import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.settings import Project

LIFETIME = 10 * 365 * 24 * 3600
"""Seconds that a JWT key is good for: ten years, as it names an application and is replaced by hand."""


class CannotSign(Exception):
    """The project's ``jwt-secret`` signs nothing; the text says why."""


def new_secret(token: Callable[[int], str] = secrets.token_urlsafe) -> str:
    """Return a random secret for HS256 with 256 bits."""
    return token(32)


def new_publishable_key(token: Callable[[int], str] = secrets.token_urlsafe) -> str:
    """Return a random opaque key for anonymous callers."""
    return f"sb_publishable_{token(24)}"


def new_secret_key(token: Callable[[int], str] = secrets.token_urlsafe) -> str:
    """Return a random opaque key for ``service_role``."""
    return f"sb_secret_{token(24)}"


def sign(project: Project, role: str, now: int, lifetime: int = LIFETIME, **claims: Any) -> str:
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
    if is_address(secret):
        raise CannotSign("jwt-secret names where public keys are published; sign tokens at their issuer")
    if not secret.lstrip().startswith("{"):
        return decoded(secret) if is_base64 else secret, "HS256", None
    document = json.loads(secret)
    for key in document.get("keys", [document]):
        if "k" in key or "d" in key:
            parsed = jwt.PyJWK(key)
            return parsed.key, parsed.algorithm_name, {"kid": key["kid"]} if "kid" in key else None
    raise CannotSign("jwt-secret holds public keys only; sign tokens where the private key is")


def _role_claim(path: str, role: str) -> dict[str, Any]:
    """Return the claims in which ``jwt-role-claim-key`` finds the role."""
    role_path = parse(path)
    claims = role_path.claims_with(role)
    if not isinstance(claims, dict) or role_path.find(claims) != role:
        raise CannotSign(f"jwt-role-claim-key = {path} does not find {role} in claims that can be made")
    return claims
