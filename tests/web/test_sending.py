"""Answers reach the client whole and in order, whether the socket takes them at once or not."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from dataapi.web.app import make_site
from dataapi.web.messages import Reply
from support.memory_http import Web, raw
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ClientCreator, Protocol, connectionDone

if TYPE_CHECKING:
    from dataapi.web.messages import Request
    from twisted.python.failure import Failure

LARGE = random.Random(1).randbytes(6_000_000)
"""More than any socket takes at once."""


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
    return Reply(200, (), LARGE if request.query == "large" else b"small")


async def test_a_large_answer_arrives_whole_at_a_client_that_reads_late(reactor: Any) -> None:
    """What the socket does not take at once follows when it can."""
    last = raw("GET", "/rest/v1/blog?large", headers=[("Connection", "close")])
    answer = await exchange(reactor, Web(rest=large), last, pause=0.05)
    assert answer.partition(b"\r\n\r\n")[2] == LARGE


async def test_answers_behind_a_large_one_keep_their_order(reactor: Any) -> None:
    """A small answer does not overtake what still waits to be sent."""
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
