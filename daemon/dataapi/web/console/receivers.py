"""Receivers of deliveries for trying, which live in memory (docs/console.md, A receiver for trying).

Any client that knows a receiver's random name may send to it and read from it.  All that it holds has bounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from dataapi.webhooks.delivery.headers import verify

RECEIVERS = 8
"""Receivers at a time; a further one takes the place of the one that was used least recently."""

DELIVERIES = 20
"""Deliveries that a receiver stores, the newest ones."""

BODY_LIMIT = 65_536
"""Bytes of a body that are stored."""

HEADERS_LIMIT = 16_384
"""Characters of headers that are stored."""

IDLE = 3600.0
"""Seconds after which an unused receiver is gone."""

TOLERANCE = 300.0
"""Seconds by which the time that a delivery was signed at may differ, as Standard Webhooks asks."""

ANSWERS = (200, 400, 500)
"""Statuses that a receiver can be set to answer with."""


@dataclass(frozen=True, slots=True)
class Received:
    """One request that came in.

    :ivar at: Unix seconds.
    :ivar problem: why its signature is not valid, "" where it is.
    :ivar answer: the status that it was answered with.
    """

    at: float
    headers: tuple[tuple[str, str], ...]
    body: str
    length: int
    problem: str
    answer: int

    def as_json(self) -> Mapping[str, Any]:
        """Return it for the console."""
        return {
            "at": self.at,
            "headers": dict(self.headers),
            "body": self.body,
            "length": self.length,
            "problem": self.problem,
            "answer": self.answer,
        }


@dataclass(slots=True)
class Receiver:
    """One receiver, whose ``secret`` signs what is sent to it."""

    secret: str = field(repr=False)
    used: float
    answer: int = 200
    received: deque[Received] = field(default_factory=lambda: deque(maxlen=DELIVERIES))


class Receivers:
    """Makes receivers, takes what is sent to them, and forgets the old ones.

    :param now: Unix seconds.
    :param random: makes an unguessable text of letters, digits, hyphens and underscores.
    :param secret: makes a signing secret.
    """

    def __init__(
        self, now: Callable[[], float], random: Callable[[], str], secret: Callable[[], str]
    ) -> None:
        self._now = now
        self._random = random
        self._secret = secret
        self._receivers: dict[str, Receiver] = {}

    def create(self) -> tuple[str, Receiver]:
        self._forget()
        while len(self._receivers) >= RECEIVERS:
            del self._receivers[next(iter(self._receivers))]
        name = self._random()
        made = self._receivers[name] = Receiver(self._secret(), self._now())
        return name, made

    def find(self, name: str) -> Receiver | None:
        """Return a receiver, which counts as used now, None where there is none."""
        self._forget()
        found = self._receivers.pop(name, None)
        if found is not None:
            found.used = self._now()
            self._receivers[name] = found  # the one used least recently stands first
        return found

    def receive(self, name: str, headers: Mapping[str, str], body: bytes) -> int | None:
        """Store a request and return the status to answer with, None where there is no such receiver."""
        receiver = self.find(name)
        if receiver is None:
            return None
        text = body[:BODY_LIMIT].decode("utf-8", "replace")
        problem = signature_problem(receiver.secret, headers, body, self._now())
        receiver.received.appendleft(
            Received(self._now(), tuple(_bounded(headers.items())), text, len(body), problem, receiver.answer)
        )
        return receiver.answer

    def _forget(self) -> None:
        oldest = self._now() - IDLE
        for name in [name for name, one in self._receivers.items() if one.used < oldest]:
            del self._receivers[name]


def signature_problem(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> str:
    """Return why a signature is not valid, "" where it is (docs/reference/webhooks.md, Signing)."""
    identifier, signed_at, signatures = (
        headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")
    )
    if not (identifier and signed_at and signatures):
        return "It has no webhook-id, webhook-timestamp or webhook-signature."
    if not (identifier.isascii() and signed_at.isascii() and signed_at.isdigit() and len(signed_at) <= 12):
        return "Its webhook-timestamp is no number of seconds, or its webhook-id is not ASCII."
    if abs(now - int(signed_at)) > TOLERANCE:
        return f"It was signed more than {TOLERANCE / 60:g} minutes ago, or in the future."
    if not verify(secret, identifier, int(signed_at), body, signatures):
        return "It was signed with another secret than this receiver's."
    return ""


def address(host: str, peer: str, name: str) -> str:
    """Return the URL at which the daemon itself reaches a receiver: by an address, as names are refused.

    :param host: the ``Host`` header of a request from this machine.
    :param peer: the address that it came from.
    """
    bracketed, _, after = host.rpartition("]") if host.startswith("[") else ("", "", host)
    name_or_address, _, port = after.rpartition(":") if ":" in after else (after, "", "80")
    literal = bracketed[1:] or name_or_address
    try:
        found = ip_address(literal)
    except ValueError:  # the name localhost
        found = ip_address(peer)
    found = getattr(found, "ipv4_mapped", None) or found
    literal = f"[{found}]" if found.version == 6 else str(found)
    return f"http://{literal}:{port}/console/receivers/{name}"


def _bounded(headers: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    left = HEADERS_LIMIT
    for name, value in headers:
        left -= len(name) + len(value)
        if left < 0:
            return
        yield name, value
