"""Secrets at rest: signing secrets and custom headers, encrypted with a key from the configuration.

A sealed secret is a byte that names its format, 4 bytes that name its key, a nonce of 12 bytes, and the
AES-256-GCM ciphertext.  It is bound to its endpoint and field: moved elsewhere, it does not open.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32

_FORM = b"\x01"
_NAME_BYTES = 4
_NONCE_BYTES = 12
_HEAD = len(_FORM) + _NAME_BYTES


class NoEncryptionKey(Exception):
    """``encryption-key`` is not configured, so that nothing can be sealed."""

    def __init__(self) -> None:
        super().__init__("[webhooks] encryption-key is not configured: dataapi keys prints one")


class CannotOpen(Exception):
    """A sealed secret is damaged, belongs elsewhere, or was sealed with a key that is not configured."""


def new_key() -> str:
    """Return a new key as the configuration expects it."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def read_key(text: str) -> bytes:
    """Parse a key of the configuration: 32 bytes in base64; ``ValueError`` for an invalid one."""
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("not base64") from None
    if len(key) != KEY_BYTES:
        raise ValueError(f"{len(key)} bytes")
    return key


class Cipher:
    """Seals with the first key and opens with any; the keys are in base64."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [
            (hashlib.sha256(key).digest()[:_NAME_BYTES], AESGCM(key)) for key in map(read_key, keys)
        ]

    @property
    def mark(self) -> bytes:
        """The prefix of everything that the first key seals; raises ``NoEncryptionKey``."""
        if not self._keys:
            raise NoEncryptionKey
        return _FORM + self._keys[0][0]

    def seal(self, secret: bytes, place: str) -> bytes:
        """Encrypt a secret.

        :param place: where it belongs: the endpoint's identifier and the field's name.
        :raises NoEncryptionKey: there is no key.
        """
        mark, key = self.mark, self._keys[0][1]
        nonce = os.urandom(_NONCE_BYTES)
        return mark + nonce + key.encrypt(nonce, secret, place.encode())

    def open(self, sealed: bytes, place: str) -> bytes:
        """Decrypt what was sealed for the same place; ``CannotOpen`` if no configured key does."""
        mark, nonce = sealed[:_HEAD], sealed[_HEAD : _HEAD + _NONCE_BYTES]
        for name, key in self._keys:
            if mark == _FORM + name and len(nonce) == _NONCE_BYTES:
                with suppress(InvalidTag):
                    return key.decrypt(nonce, sealed[_HEAD + _NONCE_BYTES :], place.encode())
        raise CannotOpen("no configured encryption-key opens this secret")


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
