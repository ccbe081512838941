"""Headers of deliveries: custom headers, and the signature.

The signature is the HMAC-SHA256 of ID, timestamp and body (docs/reference/webhooks.md, Signing).
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
"""Minimum and maximum length of a signing secret in characters."""

MAX_CACHED = 4096
"""Number of endpoints whose keys and constant headers are cached."""

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
    """Raised for an invalid signing secret. The message does not contain the secret."""


def check_secret(secret: str) -> None:
    """Raise ``InvalidSecret`` unless the secret is valid (docs/reference/webhooks.md, Secrets)."""
    if not MIN_SECRET_LENGTH <= len(secret) <= MAX_SECRET_LENGTH:
        raise InvalidSecret(
            f"The signing secret must have {MIN_SECRET_LENGTH} to {MAX_SECRET_LENGTH} characters"
        )
    # Receivers' libraries disagree about the encoding of non-ASCII characters.
    if not secret.isascii():
        raise InvalidSecret("The signing secret must contain only ASCII characters")


@lru_cache(MAX_CACHED)
def hmac_key(secret: str) -> bytes:
    """Return the HMAC key of a secret: the decoded base64 after ``whsec_``, or else the secret's bytes."""
    if secret.startswith(_PREFIX):
        decoded = _strict_base64(secret.removeprefix(_PREFIX))
        if decoded is not None:
            return decoded
    return secret.encode("ascii")


def sign(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``. ``timestamp`` is in Unix seconds."""
    signed = f"{event_id}.{timestamp}.".encode("ascii") + body
    digest = hmac.digest(hmac_key(secret), signed, hashlib.sha256)
    return "v1," + base64.b64encode(digest).decode("ascii")


def verify(secret: str, event_id: str, timestamp: int, body: bytes, signatures: str) -> bool:
    expected = sign(secret, event_id, timestamp, body).encode()
    # Compare all signatures in constant time.
    valid = [hmac.compare_digest(expected, candidate.encode()) for candidate in signatures.split(" ")]
    return any(valid)


def _strict_base64(text: str) -> bytes | None:
    match = _BASE64.fullmatch(text)
    if match is None:
        return None
    digits = len(text) - len(match[1])
    if match[1] and len(text) % 4:
        return None
    try:
        decoded = base64.b64decode(text[:digits] + "=" * (-digits % 4), validate=True)
    except binascii.Error:
        return None
    # Unused bits of the last base64 digit must be zero.
    return decoded if base64.b64encode(decoded).decode("ascii").rstrip("=") == text[:digits] else None


@dataclass(frozen=True, slots=True)
class HeaderIssue:
    """An error in a custom header, or in the number of headers if ``name`` is None."""

    name: str | None
    message: str


def header_issues(headers: Mapping[str, str]) -> tuple[HeaderIssue, ...]:
    """Validate custom headers and return the errors (docs/reference/webhooks.md, Endpoints)."""
    if len(headers) > MAX_HEADERS:
        return (HeaderIssue(None, f"There are more than {MAX_HEADERS} headers"),)
    # Only ASCII is allowed (RFC 9110, 5.1 and 5.5), to prevent header injection.
    issues: list[HeaderIssue] = []
    seen: set[str] = set()
    for name, value in headers.items():
        message = _name_problem(name, seen) or _value_problem(value)
        if message is not None:
            issues.append(HeaderIssue(name, message))
        seen.add(name.lower())
    return tuple(issues)


def _name_problem(name: str, seen: set[str]) -> str | None:
    if len(name) > MAX_NAME_LENGTH:
        return f"The header's name is longer than {MAX_NAME_LENGTH} characters"
    if _TOKEN.fullmatch(name) is None:
        return "The header's name is not a valid HTTP field name"
    if _RESERVED.fullmatch(name.lower()):
        return "The header's name is reserved"
    if name.lower() in seen:
        return "Duplicate header. Header names are case-insensitive"
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
    """Return the headers that identify and sign an attempt. ``timestamp`` is in Unix seconds.

    During a rotation, a second signature is made with the previous secret.
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
    return (*custom, *CONSTANT_HEADERS, *signed_headers(secret, event_id, timestamp, body))


@lru_cache(MAX_CACHED)
def constant_head(destination: Destination, custom: tuple[tuple[str, str], ...]) -> bytes:
    # Responses are not decompressed: a few compressed bytes can expand to gigabytes.
    connection = (("host", destination.host_header), ("accept-encoding", "identity"))
    # Custom headers may replace the headers above.
    headers = {name.lower(): (name, value) for name, value in (*connection, *custom, *CONSTANT_HEADERS)}
    return f"POST {destination.path_and_query} HTTP/1.1\r\n".encode("ascii") + header_lines(headers.values())


def header_lines(headers: Iterable[tuple[str, str]]) -> bytes:
    return "".join([f"{name}: {value}\r\n" for name, value in headers]).encode("ascii")
