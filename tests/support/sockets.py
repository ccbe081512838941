"""Real connections to the web layer with fake backends."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dataapi.settings import Settings
from dataapi.web.app import make_site
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ClientCreator, Protocol, connectionDone

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from support.memory_http import Web
    from twisted.python.failure import Failure


class Client(Protocol):
    """A client that stores received data until the server closes the connection."""

    transport: Any

    def __init__(self) -> None:
        self.received = b""
        self.ended: Deferred[bytes] = Deferred()
        self._awaited: tuple[bytes, Deferred[None]] | None = None

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        self.received += data
        if self._awaited is not None and self._awaited[0] in self.received:
            (_, awaited), self._awaited = self._awaited, None
            awaited.callback(None)

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - twisted's name
        """Fire ``ended`` with the received data or the failure."""
        if self._awaited is not None:
            self._awaited[1].errback(reason)
        if reason.check(type(connectionDone.value)):
            self.ended.callback(self.received)
        else:
            self.ended.errback(reason)

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def abort(self) -> None:
        self.ended.addErrback(lambda _: self.received)
        self.transport.abortConnection()

    async def wait_for(self, text: bytes) -> None:
        """Wait until this text has been received."""
        if text not in self.received:
            awaited: Deferred[None] = Deferred()
            self._awaited = text, awaited
            await awaited


class Served:
    """A site that listens on the loopback interface."""

    def __init__(self, reactor: Any, web: Web, **limits: Any) -> None:
        self._reactor = reactor
        self.site: Any = make_site(web.backends, reactor, web.served.append, settings=Settings((), **limits))
        self.port = reactor.listenTCP(0, self.site, interface="127.0.0.1")

    async def connect(self, data: bytes = b"") -> Client:
        creator = ClientCreator(self._reactor, Client)
        client: Client = await creator.connectTCP("127.0.0.1", self.port.getHost().port)
        client.send(data)
        return client


@asynccontextmanager
async def served(reactor: Any, web: Web, **limits: Any) -> AsyncGenerator[Served, None]:
    """Serve during the block.

    :param limits: limits of the site.
    """
    running = Served(reactor, web, **limits)
    try:
        yield running
    finally:
        await running.port.stopListening()
        await running.site.drain(5)


async def talk(reactor: Any, web: Web, data: bytes, leave: Deferred[None] | None = None) -> bytes:
    """Send bytes over a real connection, and return the response; disconnect when ``leave`` fires."""
    async with served(reactor, web) as running:
        client = await running.connect(data)
        if leave is not None:
            await leave
            client.transport.loseConnection()
        return await client.ended


def statuses(received: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", received)]
