"""Sends an answer that is made while it is sent, no faster than the client reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

if TYPE_CHECKING:
    from dataapi.web.messages import Stream

STALL_LIMIT = 60.0
"""Seconds within which a client must take what was sent before it is given up: it holds a connection
to the database all the while."""

LAST_CHUNK = b"0\r\n\r\n"


class Stalled(Exception):
    """The client does not read what it asked for."""


@implementer(IPushProducer)
class Gauge:
    """Knows whether the client takes more at the moment; twisted's side of back-pressure."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._waiting: Deferred[None] | None = None
        # The head, or an earlier answer on the connection, may have filled what waits to be sent.
        self._paused = bool(channel._waitingForTransport)
        channel.registerProducer(self, True)

    async def room(self, clock: Any) -> None:
        """Wait until the client takes more.

        :raises Stalled: it has taken too little for ``STALL_LIMIT`` seconds.
        """
        if self._paused:
            self._waiting = Deferred()
            try:
                await self._waiting.addTimeout(STALL_LIMIT, clock)
            except TimedOut:
                raise Stalled(f"nothing was read for {STALL_LIMIT:.0f} seconds") from None

    def pauseProducing(self) -> None:  # noqa: N802 - twisted's name
        """Take note that enough waits to be sent."""
        self._paused = True

    def resumeProducing(self) -> None:  # noqa: N802 - twisted's name
        """Let the next piece come."""
        self._paused = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def stopProducing(self) -> None:  # noqa: N802 - twisted's name
        """Leave the end to the exchange, which hears of it too."""

    def remove(self) -> None:
        """Be asked no more."""
        self._channel.unregisterProducer()


def chunk(piece: bytes) -> bytes:
    """Frame a piece of a body as RFC 9112 section 7.1 says."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


async def send_stream(channel: Any, stream: Stream, *, chunked: bool, clock: Any) -> int:
    """Send the stream's pieces as the client takes them, and what ends the body; return the bytes.

    Whoever calls closes the stream, which an error leaves open.

    Raises what the stream raises, and ``Stalled`` for a client that does not read; the body
    then has no end, by which the client sees that something is missing.
    """
    size = 0
    gauge = Gauge(channel)
    try:
        await gauge.room(clock)
        async for piece in stream:
            if piece:
                size += len(piece)
                channel.send(chunk(piece) if chunked else piece)
                await gauge.room(clock)
    finally:
        gauge.remove()
    if chunked:
        channel.send(LAST_CHUNK)
    return size
