"""A receiver that accepts deliveries over real sockets, and sends responses that the test chooses."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest_twisted
from dataapi.webhooks.delivery.attempt import Attempt, AttemptSender
from dataapi.webhooks.delivery.destinations import Address, networks
from dataapi.webhooks.delivery.resolver import AddressCheck
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock, deferLater
from twisted.python.failure import Failure

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NAME = "hooks.example.com"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True)
class Received:
    """A received request."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: Talk


class Talk(Protocol):
    """A connection that reads complete requests and passes them to the receiver."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._data = b""
        self.lost: Deferred[None] = Deferred()

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        self._receiver.connections.append(self)
        self.write(self._receiver.greeting)
        if not self._receiver.reads:
            transport: Any = self.transport
            transport.pauseProducing()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        self._data += data
        while b"\r\n\r\n" in self._data:
            head, _, rest = self._data.partition(b"\r\n\r\n")
            line, *lines = head.decode("latin-1").split("\r\n")
            pairs = [one.partition(": ")[::2] for one in lines]
            headers = {name.lower(): value for name, value in pairs}
            assert len(headers) == len(pairs), "a header appears twice"
            length = int(headers.get("content-length", "0"))
            if len(rest) < length:
                return
            self._data = rest[length:]
            self._receiver.take(Received(line, headers, rest[:length], self))

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's name
        self.lost.callback(None)

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


@dataclass
class Receiver:
    """Listens, records requests, and responds by calling ``answer``."""

    answer: Callable[[Received], None] = lambda request: request.connection.write(OK)
    received: list[Received] = field(default_factory=list)
    connections: list[Talk] = field(default_factory=list)
    greeting: bytes = b""
    reads: bool = True

    def take(self, request: Received) -> None:
        self.received.append(request)
        self.answer(request)

    def sends(self, data: bytes, *, close: bool = False) -> None:
        """Respond to every request with these bytes."""

        def answer(request: Received) -> None:
            request.connection.write(data)
            if close:
                transport: Any = request.connection.transport
                transport.loseConnection()

        self.answer = answer

    def factory(self) -> Factory:
        return Factory.forProtocol(lambda: Talk(self))


class Names:
    """A fake resolver; each lookup returns the next result, and the last result is repeated."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.lookups: list[str] = []

    async def addresses(self, name: str) -> Sequence[Address]:
        """Return the next result. Raise ``OSError`` if the result is empty."""
        self.lookups.append(name)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if not answer:
            raise OSError("no such name")
        return [ipaddress.ip_address(address) for address in answer]


class World:
    """Receivers and senders of a test."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._ports: list[Any] = []
        self._senders: list[AttemptSender] = []

    def listen(self, receiver: Receiver, interface: str = "127.0.0.1", *, tls: Any = None) -> int:
        """Listen on a free port, and return the port."""
        if tls is None:
            port = self._reactor.listenTCP(0, receiver.factory(), interface=interface)
        else:
            port = self._reactor.listenSSL(0, receiver.factory(), tls, interface=interface)
        self._ports.append(port)
        return int(port.getHost().port)

    def listen_at(self, receiver: Receiver, interface: str, port: int) -> None:
        """Listen on a given port of another address."""
        self._ports.append(self._reactor.listenTCP(port, receiver.factory(), interface=interface))

    def sender(
        self, names: Any = None, allowed: Sequence[str] = ("127.0.0.0/8", "::1/128"), **options: Any
    ) -> AttemptSender:
        """Return a sender that by default resolves every name to this machine."""
        address_check = AddressCheck(names or Names(["127.0.0.1"]), networks(allowed))
        options = {"timeout": 5.0, **options}
        sender = AttemptSender(self._reactor, address_check, lambda: 1_614_265_330.9, **options)
        self._senders.append(sender)
        return sender

    def end(self) -> None:
        for sender in self._senders:
            sender.close()
        for port in self._ports:
            pytest_twisted.blockon(port.stopListening())


class Timed:
    """A reactor with real connections and a simulated clock."""

    def __init__(self, reactor: Any, clock: Clock) -> None:
        self.connectTCP = reactor.connectTCP
        self.callLater = clock.callLater
        self.seconds = clock.seconds


def attempt(port: int, path: str = "/", scheme: str = "http", **values: Any) -> Attempt:
    """Return an attempt to send a small event."""
    url = f"{scheme}://{NAME}:{port}{path}"
    return Attempt(**{"url": url, "secret": SECRET, "event_id": "evt", "body": b'{"a": 1}', **values})


async def pause(seconds: float = 0.005) -> None:
    from twisted.internet import reactor  # noqa: PLC0415 - pytest-twisted chooses it

    await deferLater(reactor, seconds)
