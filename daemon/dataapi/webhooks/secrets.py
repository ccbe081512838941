"""Encryption of signing secrets and custom headers with keys from the configuration.

A sealed secret consists of a version byte, a 4-byte key ID, a 12-byte nonce, and AES-256-GCM ciphertext. It
can only be decrypted for the endpoint and field that it was encrypted for.
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

_VERSION = b"\x01"
_KEY_ID_BYTES = 4
_NONCE_BYTES = 12
_PREFIX_BYTES = len(_VERSION) + _KEY_ID_BYTES


class NoEncryptionKey(Exception):
    """Raised when a secret must be encrypted and ``encryption-key`` is not configured."""

    def __init__(self) -> None:
        super().__init__("[webhooks] encryption-key is not configured. Run dataapi keys to create one.")


class CannotOpen(Exception):
    """Raised when no configured key decrypts a secret."""


def new_key() -> str:
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def read_key(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("not base64") from None
    if len(key) != KEY_BYTES:
        raise ValueError(f"{len(key)} bytes")
    return key


class Cipher:
    """Encrypts with the first key, and decrypts with any key. Keys are base64-encoded.

    ``context`` is the associated data: the endpoint's identifier and the field's name.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [
            (hashlib.sha256(key).digest()[:_KEY_ID_BYTES], AESGCM(key)) for key in map(read_key, keys)
        ]

    @property
    def prefix(self) -> bytes:
        """Prefix of secrets encrypted with the first key. Raises ``NoEncryptionKey``."""
        if not self._keys:
            raise NoEncryptionKey
        return _VERSION + self._keys[0][0]

    def seal(self, secret: bytes, context: str) -> bytes:
        prefix, key = self.prefix, self._keys[0][1]
        nonce = os.urandom(_NONCE_BYTES)
        return prefix + nonce + key.encrypt(nonce, secret, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        prefix, nonce = sealed[:_PREFIX_BYTES], sealed[_PREFIX_BYTES : _PREFIX_BYTES + _NONCE_BYTES]
        for key_id, key in self._keys:
            if prefix == _VERSION + key_id and len(nonce) == _NONCE_BYTES:
                with suppress(InvalidTag):
                    return key.decrypt(nonce, sealed[_PREFIX_BYTES + _NONCE_BYTES :], context.encode())
        raise CannotOpen("no configured encryption-key decrypts this secret")


def seal_secret(cipher: Cipher, endpoint: UUID, secret: str) -> bytes:
    return cipher.seal(secret.encode(), f"{endpoint} signing_secret")


def open_secret(cipher: Cipher, endpoint: UUID, sealed: bytes) -> str:
    return cipher.open(sealed, f"{endpoint} signing_secret").decode()


def seal_headers(cipher: Cipher, endpoint: UUID, headers: Mapping[str, str]) -> bytes:
    return cipher.seal(json.dumps(dict(headers)).encode(), f"{endpoint} custom_headers")


def open_headers(cipher: Cipher, endpoint: UUID, sealed: bytes) -> dict[str, str]:
    headers: dict[str, str] = json.loads(cipher.open(sealed, f"{endpoint} custom_headers"))
    return headers
