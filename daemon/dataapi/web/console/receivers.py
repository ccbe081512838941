"""Test receivers that store webhook deliveries in memory (docs/console.md, Test receivers).

Clients that know the random name of a receiver may send to it and read from it. The memory is limited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from dataapi.webhooks.delivery.headers import verify

RECEIVERS = 8
"""Maximum number of receivers. A new receiver replaces the least recently used one."""

DELIVERIES = 20
"""Maximum number of deliveries to store per receiver. Older deliveries are discarded."""

BODY_LIMIT = 65_536
"""Maximum number of bytes of a body to store."""

HEADERS_LIMIT = 16_384
"""Maximum number of characters of headers to store."""

IDLE = 3600.0
"""Seconds after which an unused receiver is deleted."""

TOLERANCE = 300.0
"""Maximum difference between the signed timestamp and the current time in seconds (Standard Webhooks)."""

STATUSES = (200, 400, 500)


@dataclass(frozen=True, slots=True)
class Received:
    """A received request. ``at`` is in Unix seconds. ``problem`` is why the signature is invalid, or ""."""

    at: float
    headers: tuple[tuple[str, str], ...]
    body: str
    length: int
    problem: str
    status: int

    def as_json(self) -> Mapping[str, Any]:
        return {
            "at": self.at,
            "headers": dict(self.headers),
            "body": self.body,
            "length": self.length,
            "problem": self.problem,
            "answer": self.status,
        }


@dataclass(slots=True)
class Receiver:
    """A test receiver. Its secret verifies the signatures of deliveries."""

    secret: str = field(repr=False)
    used: float
    status: int = 200
    received: deque[Received] = field(default_factory=lambda: deque(maxlen=DELIVERIES))


class Receivers:
    """Creates receivers, stores received deliveries, and deletes unused receivers.

    :param now: returns Unix seconds.
    :param random: returns an unguessable string of letters, digits, hyphens and underscores.
    :param secret: returns a new signing secret.
    """

    def __init__(
        self, now: Callable[[], float], random: Callable[[], str], secret: Callable[[], str]
    ) -> None:
        self._now = now
        self._random = random
        self._secret = secret
        self._receivers: dict[str, Receiver] = {}

    def create(self) -> tuple[str, Receiver]:
        self._delete_unused()
        while len(self._receivers) >= RECEIVERS:
            del self._receivers[next(iter(self._receivers))]
        name = self._random()
        receiver = self._receivers[name] = Receiver(self._secret(), self._now())
        return name, receiver

    def find(self, name: str) -> Receiver | None:
        self._delete_unused()
        receiver = self._receivers.pop(name, None)
        if receiver is not None:
            receiver.used = self._now()
            self._receivers[name] = receiver  # the least recently used receiver comes first
        return receiver

    def receive(self, name: str, headers: Mapping[str, str], body: bytes) -> int | None:
        receiver = self.find(name)
        if receiver is None:
            return None
        text = body[:BODY_LIMIT].decode("utf-8", "replace")
        problem = signature_problem(receiver.secret, headers, body, self._now())
        receiver.received.appendleft(
            Received(self._now(), tuple(_limited(headers.items())), text, len(body), problem, receiver.status)
        )
        return receiver.status

    def _delete_unused(self) -> None:
        oldest = self._now() - IDLE
        for name in [name for name, receiver in self._receivers.items() if receiver.used < oldest]:
            del self._receivers[name]


def signature_problem(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> str:
    """Return why a signature is invalid, or "" (docs/reference/webhooks.md, Signing)."""
    identifier, signed_at, signatures = (
        headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")
    )
    if not (identifier and signed_at and signatures):
        return "The webhook-id, webhook-timestamp or webhook-signature header is missing."
    if not (identifier.isascii() and signed_at.isascii() and signed_at.isdigit() and len(signed_at) <= 12):
        return "The webhook-timestamp is not a number of seconds, or the webhook-id is not ASCII."
    if abs(now - int(signed_at)) > TOLERANCE:
        return f"The request was signed more than {TOLERANCE / 60:g} minutes ago, or in the future."
    if not verify(secret, identifier, int(signed_at), body, signatures):
        return "The request was signed with a different secret."
    return ""


def address(host: str, peer: str, name: str) -> str:
    """Return the URL that the daemon sends a test receiver's webhooks to.

    Its host is an IP address, because the daemon rejects endpoints on ``localhost``.

    :param host: ``Host`` header of a request from this machine.
    :param peer: address of the client.
    """
    bracketed, _, after = host.rpartition("]") if host.startswith("[") else ("", "", host)
    name_or_address, _, port = after.rpartition(":") if ":" in after else (after, "", "80")
    literal = bracketed[1:] or name_or_address
    try:
        parsed = ip_address(literal)
    except ValueError:  # the host is localhost
        parsed = ip_address(peer)
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    literal = f"[{parsed}]" if parsed.version == 6 else str(parsed)
    return f"http://{literal}:{port}/console/receivers/{name}"


def _limited(headers: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    left = HEADERS_LIMIT
    for name, value in headers:
        left -= len(name) + len(value)
        if left < 0:
            return
        yield name, value
