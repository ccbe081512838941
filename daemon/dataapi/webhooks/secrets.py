"""Secrets at rest: signing secrets and custom headers, encrypted with a key from the configuration.

A sealed secret is a byte that names its form, 4 bytes that name its key, a nonce of 12 bytes and what
AES-256-GCM makes of it, bound to its place: moved to another endpoint or field, it does not open.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Callable, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32

_FORM = b"\x01"
_NAME_BYTES = 4
_NONCE_BYTES = 12
_HEAD = len(_FORM) + _NAME_BYTES


class NoEncryptionKey(Exception):
    """Nothing can be sealed, because ``encryption-key`` is not configured."""

    def __init__(self) -> None:
        super().__init__("[webhooks] encryption-key is not configured: dataapi keys prints one")


class CannotOpen(Exception):
    """A sealed secret is damaged, belongs elsewhere, or its key is not among those configured."""


def new_key(random: Callable[[int], bytes] = os.urandom) -> str:
    """Return a fresh key as the configuration takes it."""
    return base64.b64encode(random(KEY_BYTES)).decode()


def read_key(text: str) -> bytes:
    """Read a key of the configuration: 32 bytes in base64.

    :raises ValueError: it is none.
    """
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if len(key) != KEY_BYTES:
        raise ValueError(f"{len(key)} bytes")
    return key


class Cipher:
    """Seals with the first key and opens with any.

    :param keys: as the configuration has them; without any, nothing can be sealed or opened.
    """

    def __init__(self, keys: Sequence[str], random: Callable[[int], bytes] = os.urandom) -> None:
        self._random = random
        self._keys: list[tuple[bytes, AESGCM]] = []
        for text in keys:
            key = read_key(text)
            self._keys.append((hashlib.sha256(key).digest()[:_NAME_BYTES], AESGCM(key)))

    @property
    def mark(self) -> bytes:
        """What everything begins with that the first key seals; raises ``NoEncryptionKey``."""
        if not self._keys:
            raise NoEncryptionKey
        return _FORM + self._keys[0][0]

    def seal(self, secret: bytes, place: str) -> bytes:
        """Return the secret encrypted.

        :param place: where it belongs, such as an endpoint's identifier and a field's name.
        :raises NoEncryptionKey: there is no key.
        """
        mark, key = self.mark, self._keys[0][1]
        nonce = self._random(_NONCE_BYTES)
        return mark + nonce + key.encrypt(nonce, secret, place.encode())

    def open(self, sealed: bytes, place: str) -> bytes:
        """Return what was sealed for the same place.

        :raises CannotOpen: no configured key opens it.
        """
        name, nonce = sealed[len(_FORM) : _HEAD], sealed[_HEAD : _HEAD + _NONCE_BYTES]
        if sealed[: len(_FORM)] == _FORM and len(nonce) == _NONCE_BYTES:
            for known, key in self._keys:
                if known == name:
                    try:
                        return key.decrypt(nonce, sealed[_HEAD + _NONCE_BYTES :], place.encode())
                    except InvalidTag:
                        continue
        raise CannotOpen("no configured encryption-key opens this secret")
