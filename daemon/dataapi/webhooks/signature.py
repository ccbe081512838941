"""The signature of a delivery: HMAC-SHA256 over id, time and body (specification, "Delivery signing")."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re

SHORTEST, LONGEST = 8, 64
"""Characters that a signing secret may have."""

_PREFIX = "whsec_"
_BASE64 = re.compile("[A-Za-z0-9+/]+(={0,2})")


class SecretRefused(ValueError):
    """A signing secret that no endpoint can have; the message never shows it."""


def check_secret(secret: str) -> None:
    """Raise ``SecretRefused`` unless the secret can sign.

    Only ASCII is accepted, because receivers' libraries disagree about the bytes of anything else
    (reference/webhooks.md section 3).
    """
    if not SHORTEST <= len(secret) <= LONGEST:
        raise SecretRefused(f"The signing secret must have {SHORTEST} to {LONGEST} characters")
    if not secret.isascii():
        raise SecretRefused("The signing secret must be of ASCII characters only")


def key_of(secret: str) -> bytes:
    """Return the key that a secret stands for.

    ``whsec_`` and strict base64 with or without its padding is a base64 key; anything else, prefix
    included, is its own bytes.
    """
    if secret.startswith(_PREFIX):
        decoded = _strict_base64(secret.removeprefix(_PREFIX))
        if decoded is not None:
            return decoded
    return secret.encode("ascii")


def sign(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``.

    :param timestamp: Unix time in seconds of this attempt, as in ``webhook-timestamp``.
    :param body: the very bytes that are sent.
    """
    signed = f"{event_id}.{timestamp}.".encode("ascii") + body
    digest = hmac.digest(key_of(secret), signed, hashlib.sha256)
    return "v1," + base64.b64encode(digest).decode("ascii")


def verify(secret: str, event_id: str, timestamp: int, body: bytes, signatures: str) -> bool:
    """Tell, as a receiver does, whether one of the ``webhook-signature`` header's signatures is right."""
    expected = sign(secret, event_id, timestamp, body).encode()
    # Every one is compared, each in constant time.
    right = [hmac.compare_digest(expected, one.encode()) for one in signatures.split(" ")]
    return any(right)


def _strict_base64(text: str) -> bytes | None:
    """Decode RFC 4648 base64; None for an empty text, foreign characters, or padding of another length."""
    found = _BASE64.fullmatch(text)
    if found is None:
        return None
    digits = len(text) - len(found[1])
    if found[1] and len(text) % 4:
        return None
    try:
        decoded = base64.b64decode(text[:digits] + "=" * (-digits % 4), validate=True)
    except binascii.Error:
        return None
    # The unused bits of the last digit must be zero: one key has one spelling.
    return decoded if base64.b64encode(decoded).decode("ascii").rstrip("=") == text[:digits] else None
