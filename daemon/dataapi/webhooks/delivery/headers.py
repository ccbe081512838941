"""The headers of a delivery: the endpoint's own, checked, and those of the service with the signature.

The signature is the HMAC-SHA256 of id, timestamp and body (docs/reference/webhooks.md, Signing).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from dataapi.webhooks.delivery.destinations import Destination

MIN_SECRET_LENGTH, MAX_SECRET_LENGTH = 8, 64
"""Characters that a signing secret may have."""

MAX_CACHED = 4096
"""Endpoints whose keys and constant headers are cached."""

_PREFIX = "whsec_"
_BASE64 = re.compile("[A-Za-z0-9+/]+(={0,2})")

MAX_HEADERS, MAX_NAME_LENGTH, MAX_VALUE_LENGTH = 20, 128, 4096
USER_AGENT = "dataapi-webhooks/1"
CONSTANT_HEADERS = (("content-type", "application/json"), ("user-agent", USER_AGENT))
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_RESERVED = re.compile(
    "connection|content-(?:length|type)|expect|host|keep-alive|te|traceparent|trailer|transfer-encoding|upgrade"
    "|user-agent|(?:proxy|webhook)-.*"
)


class InvalidSecret(ValueError):
    """A signing secret is not acceptable; the message does not contain it."""


def check_secret(secret: str) -> None:
    """Raise ``SecretRefused`` unless the secret is acceptable (docs/reference/webhooks.md, Secrets)."""
    if not MIN_SECRET_LENGTH <= len(secret) <= MAX_SECRET_LENGTH:
        raise InvalidSecret(
            f"The signing secret must have {MIN_SECRET_LENGTH} to {MAX_SECRET_LENGTH} characters"
        )
    # Receivers' libraries disagree about the bytes of anything else.
    if not secret.isascii():
        raise InvalidSecret("The signing secret must be of ASCII characters only")


@lru_cache(MAX_CACHED)
def hmac_key(secret: str) -> bytes:
    """Return the HMAC key: what strict base64 after ``whsec_`` decodes to, else the bytes of the secret."""
    if secret.startswith(_PREFIX):
        decoded = _strict_base64(secret.removeprefix(_PREFIX))
        if decoded is not None:
            return decoded
    return secret.encode("ascii")


def sign(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature`` for an attempt at ``timestamp``, in Unix seconds."""
    signed = f"{event_id}.{timestamp}.".encode("ascii") + body
    digest = hmac.digest(hmac_key(secret), signed, hashlib.sha256)
    return "v1," + base64.b64encode(digest).decode("ascii")


def verify(secret: str, event_id: str, timestamp: int, body: bytes, signatures: str) -> bool:
    """Whether one of the signatures in a ``webhook-signature`` header is valid, as a receiver checks it."""
    expected = sign(secret, event_id, timestamp, body).encode()
    # All are compared, each in constant time.
    valid = [hmac.compare_digest(expected, one.encode()) for one in signatures.split(" ")]
    return any(valid)


def _strict_base64(text: str) -> bytes | None:
    """Decode RFC 4648 base64; None for an empty text, other characters, or wrong padding."""
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
    # The unused bits of the last digit must be zero, so that a key has one spelling.
    return decoded if base64.b64encode(decoded).decode("ascii").rstrip("=") == text[:digits] else None


@dataclass(frozen=True, slots=True)
class HeaderIssue:
    """What is wrong with one custom header, or, without a name, with their number."""

    name: str | None
    message: str


def header_issues(headers: Mapping[str, str]) -> tuple[HeaderIssue, ...]:
    """Return what is wrong with custom headers (docs/reference/webhooks.md, Endpoints).

    Names and values are ASCII (RFC 9110 5.1 and 5.5), so that no CR, LF, NUL or other charset is ever sent.
    """
    if len(headers) > MAX_HEADERS:
        return (HeaderIssue(None, f"There are more than {MAX_HEADERS} headers"),)
    found: list[HeaderIssue] = []
    seen: set[str] = set()
    for name, value in headers.items():
        message = _name_problem(name, seen) or _value_problem(value)
        if message is not None:
            found.append(HeaderIssue(name, message))
        seen.add(name.lower())
    return tuple(found)


def _name_problem(name: str, seen: set[str]) -> str | None:
    if len(name) > MAX_NAME_LENGTH:
        return f"The header's name is longer than {MAX_NAME_LENGTH} characters"
    if _TOKEN.fullmatch(name) is None:
        return "The header's name is not a valid HTTP field name"
    if _RESERVED.fullmatch(name.lower()):
        return "The header's name is reserved"
    if name.lower() in seen:
        return "The header is there twice; names that differ only in case are the same"
    return None


def _value_problem(value: str) -> str | None:
    if len(value) > MAX_VALUE_LENGTH:
        return f"The header's value is longer than {MAX_VALUE_LENGTH} characters"
    if _VALUE.fullmatch(value) is None:
        return "The header's value is not a valid HTTP field value of ASCII characters"
    return None


def signed_headers(
    secret: str, event_id: str, timestamp: int, body: bytes, previous: str | None = None
) -> tuple[tuple[str, str], ...]:
    """Return the headers that identify and sign an attempt at ``timestamp``, in Unix seconds.

    :param previous: the secret before a rotation, whose signature comes second (Standard Webhooks).
    """
    signatures = sign(secret, event_id, timestamp, body)
    if previous is not None:
        signatures += " " + sign(previous, event_id, timestamp, body)
    return (
        ("webhook-id", event_id),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", signatures),
    )


def delivery_headers(
    secret: str, event_id: str, timestamp: int, body: bytes, custom: Iterable[tuple[str, str]] = ()
) -> tuple[tuple[str, str], ...]:
    """Return all headers of an attempt except those of the connection, the endpoint's own first."""
    return (*custom, *CONSTANT_HEADERS, *signed_headers(secret, event_id, timestamp, body))


@lru_cache(MAX_CACHED)
def constant_head(destination: Destination, custom: tuple[tuple[str, str], ...]) -> bytes:
    """Return the beginning of a request's head, which all attempts of an endpoint share."""
    # No compression is requested and none is undone: a few compressed bytes can be gigabytes.
    connection = (("host", destination.host_header), ("accept-encoding", "identity"))
    # A custom header may replace one of these.
    headers = {name.lower(): (name, value) for name, value in (*connection, *custom, *CONSTANT_HEADERS)}
    return f"POST {destination.path_and_query} HTTP/1.1\r\n".encode("ascii") + header_lines(headers.values())


def header_lines(headers: Iterable[tuple[str, str]]) -> bytes:
    """Return headers as they are sent."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers]).encode("ascii")
