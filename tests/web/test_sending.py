"""Answers reach the client whole and in order, whether the socket takes them at once or not."""

from __future__ import annotations

import random
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.http.messages import Reply
from dataapi.web.app import make_site
from support.memory_http import Web, raw
from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ClientCreator, Protocol, connectionDone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataapi.http.messages import Request
    from twisted.python.failure import Failure

LARGE = random.Random(1).randbytes(6_000_000)
"""More than any socket takes at once."""
HUGE = LARGE * 5
"""More than the system keeps on its way."""
TIMEOUT = 1.5
"""Seconds that a connection may be idle."""


class Reader(Protocol):
    """Keeps what it gets; told to, it reads nothing at first, so that the server cannot send."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Keep what came."""
        self.received += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's name
        """Tell what came."""
        self.ended.callback(bytes(self.received))


async def exchange(reactor: Any, web: Web, *requests: bytes, pause: float = 0) -> bytes:
    """Send requests one behind the other, begin to read after ``pause`` seconds; return all that came."""
    site = make_site(web.backends, reactor, web.served.append)
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    try:
        client = await ClientCreator(reactor, Reader).connectTCP("127.0.0.1", port.getHost().port)
        client.transport.pauseProducing()
        reactor.callLater(pause, client.transport.resumeProducing)
        client.transport.write(b"".join(requests))
        received: bytes = await client.ended
        return received
    finally:
        await port.stopListening()
        await site.drain(5)


async def large(request: Request, _caller: Any) -> Reply:
    """Answer with many bytes, or few."""
    return Reply(200, (), {"large": LARGE, "huge": HUGE}.get(request.query, b"small"))


async def test_a_large_answer_arrives_whole_at_a_client_that_reads_late(reactor: Any) -> None:
    last = raw("GET", "/rest/v1/blog?large", headers=[("Connection", "close")])
    answer = await exchange(reactor, Web(rest=large), last, pause=0.05)
    assert answer.partition(b"\r\n\r\n")[2] == LARGE


async def test_answers_behind_a_large_one_keep_their_order(reactor: Any) -> None:
    requests = [
        raw("GET", "/rest/v1/blog?large"),
        raw("GET", "/rest/v1/blog?small"),
        raw("GET", "/rest/v1/blog?large"),
        raw("GET", "/rest/v1/blog?small", headers=[("Connection", "close")]),
    ]
    answer = await exchange(reactor, Web(rest=large), *requests, pause=0.05)
    bodies = []
    while answer:
        head, _, rest = answer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        bodies.append(rest[:length])
        answer = rest[length:]
    assert bodies == [LARGE, b"small", LARGE, b"small"]


async def test_who_sends_no_more_gets_all_answers_however_late_it_reads_them(reactor: Any) -> None:
    web = Web(rest=large)
    site = make_site(web.backends, reactor, web.served.append)
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    client = await connected(reactor, port, Reader())
    client.transport.pauseProducing()
    client.transport.write(raw("GET", "/rest/v1/blog?huge") + raw("GET", "/rest/v1/blog?small"))
    client.transport.loseWriteConnection()
    await task.deferLater(reactor, 0.05)
    client.transport.resumeProducing()
    answer = await client.ended
    assert answer.endswith(b"small")
    assert answer.count(HUGE) == 1
    await port.stopListening()
    await site.drain(5)


class SlowReader(Reader):
    """Reads a little every few milliseconds, for twice as long as a connection may be idle."""

    def __init__(self, reactor: Any) -> None:
        super().__init__()
        self._reactor = reactor
        self._slow_until = reactor.seconds() + 2 * TIMEOUT

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Keep what came, and rest."""
        super().dataReceived(data)
        if self._reactor.seconds() < self._slow_until:
            transport: Any = self.transport
            transport.pauseProducing()
            self._reactor.callLater(0.006, transport.resumeProducing)


@pytest.fixture
def hasty(reactor: Any) -> Iterator[tuple[Web, Any]]:
    """Serve on a site that gives up idle connections soon."""
    web = Web(rest=large)
    site: Any = make_site(web.backends, reactor, web.served.append)
    site.timeout = site.header_timeout = site.keep_alive_timeout = TIMEOUT
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    yield web, port
    port.stopListening()


async def connected(reactor: Any, port: Any, reader: Protocol) -> Any:
    """Connect a client that lets little wait for it."""
    client = await ClientCreator(reactor, lambda: reader).connectTCP("127.0.0.1", port.getHost().port)
    client.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    return client


async def test_requests_that_came_at_once_wait_until_answers_are_read(
    hasty: tuple[Web, Any], reactor: Any
) -> None:
    """Who sends hundreds and reads nothing would else fill the memory."""
    web, port = hasty
    client = await connected(reactor, port, Reader())
    client.transport.pauseProducing()
    last = raw("GET", "/rest/v1/blog?small", headers=[("Connection", "close")])
    client.transport.write(raw("GET", "/rest/v1/blog?huge") * 3 + last)
    await task.deferLater(reactor, 0.1)
    assert len(web.rest.asked) == 1
    client.transport.resumeProducing()
    answer = await client.ended
    assert answer.count(b"HTTP/1.1 200 OK") == 4
    assert answer.endswith(b"small")
    assert answer.count(HUGE) == 3


async def test_who_reads_slowly_gets_all_of_a_large_answer(hasty: tuple[Web, Any], reactor: Any) -> None:
    _, port = hasty
    client = await connected(reactor, port, SlowReader(reactor))
    client.transport.write(raw("GET", "/rest/v1/blog?huge"))
    began = time.monotonic()
    while len(client.received) < len(HUGE):
        assert not client.ended.called, f"cut off after {len(client.received)} bytes"
        await task.deferLater(reactor, 0.05)
    assert client.received.endswith(HUGE)
    assert time.monotonic() - began > 2
    await client.ended


@pytest.mark.parametrize("headers", [[], [("Connection", "close")]])
async def test_a_client_that_reads_nothing_is_disconnected(
    hasty: tuple[Web, Any], reactor: Any, headers: list[tuple[str, str]]
) -> None:
    """Its answer would else stay in the memory for as long as it likes."""
    _, port = hasty
    client = await connected(reactor, port, Reader())
    client.transport.pauseProducing()
    client.transport.write(raw("GET", "/rest/v1/blog?huge", headers=headers))
    site = port.factory
    while not site.connections:
        await task.deferLater(reactor, 0.01)
    while site.connections:
        await task.deferLater(reactor, 0.05)
    client.transport.resumeProducing()
    assert len(await client.ended) < len(HUGE)
