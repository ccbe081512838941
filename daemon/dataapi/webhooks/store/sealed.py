"""An endpoint's secrets as the store keeps them: sealed, each bound to its endpoint and field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from uuid import UUID

from dataapi.webhooks.secrets import Cipher


def seal_secret(cipher: Cipher, endpoint: UUID, secret: str) -> bytes:
    """Seal a signing secret; raises ``NoEncryptionKey``."""
    return cipher.seal(secret.encode(), f"{endpoint} signing_secret")


def open_secret(cipher: Cipher, endpoint: UUID, sealed: bytes) -> str:
    """Return a signing secret; raises ``CannotOpen``."""
    return cipher.open(sealed, f"{endpoint} signing_secret").decode()


def seal_headers(cipher: Cipher, endpoint: UUID, headers: Mapping[str, str]) -> bytes:
    """Seal custom headers; raises ``NoEncryptionKey``."""
    return cipher.seal(json.dumps(dict(headers)).encode(), f"{endpoint} custom_headers")


def open_headers(cipher: Cipher, endpoint: UUID, sealed: bytes) -> dict[str, str]:
    """Return custom headers; raises ``CannotOpen``."""
    headers: dict[str, str] = json.loads(cipher.open(sealed, f"{endpoint} custom_headers"))
    return headers
