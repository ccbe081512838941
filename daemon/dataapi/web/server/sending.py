"""Writes answers: their heads, what the socket takes at once, and the rest as the client reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPullProducer, IPushProducer
from twisted.internet.protocol import connectionDone
from twisted.internet.tcp import Connection
from zope.interface import implementer

_AT_ONCE = 65_536
"""Bytes that the transport gets at a time; what is left stays here, so that progress can be seen."""

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus} | {
    413: "HTTP/1.1 413 Content Too Large",
    414: "HTTP/1.1 414 URI Too Long",
    499: "HTTP/1.1 499 Client Closed Request",
}

BODILESS = frozenset((204, 304))
"""Statuses of answers that carry no body."""
_FORBIDDEN = re.compile(r"[\r\n\0]")
_HEADER = "%s: %s".__mod__


def response_head(
    status: int, headers: Iterable[tuple[str, str]], length: int | None, reason: str | None = None
) -> bytes:
    """Write the status line and the headers, with ``Content-Length`` where the status has a body.

    A line end within a value would begin another header, so it becomes a space.

    :param length: of the body; None when it is not known yet.
    :param reason: the reason phrase, None for the standard one.
    """
    if reason is None:
        lines = [_STATUS_LINES.get(status) or f"HTTP/1.1 {status} Unknown Status"]
    else:
        lines = [f"HTTP/1.1 {status} {reason}"]
    lines.extend(map(_HEADER, headers))
    if length is not None and status not in BODILESS:
        lines.append(f"Content-Length: {length}")
    text = "\r\n".join(lines)
    if "\0" in text or not text.count("\r") == text.count("\n") == len(lines) - 1:
        text = "\r\n".join([_FORBIDDEN.sub(" ", line) for line in lines])
    return f"{text}\r\n\r\n".encode("utf-8", "replace")


@implementer(IPullProducer, IPushProducer)
class Sender:
    """The outgoing half of a connection.

    :ivar socket: the connection itself where it is a plain one, None behind TLS.
    :ivar waits: whether something was not taken yet.
    :param progress: called when the client has taken a part of what waited.
    :param sent: called when it has taken all.
    """

    def __init__(self, transport: Any, progress: Callable[[], object], sent: Callable[[], object]) -> None:
        plain = isinstance(transport, Connection) and not transport.TLS
        self.socket: Connection | None = transport if plain else None
        self.waits = False
        self._transport = transport
        self._progress = progress
        self._sent = sent
        self._unsent = memoryview(b"")
        self._full = False
        self._room: Deferred[None] | None = None
        self._end: Callable[[], object] | None = None
        if not plain:
            transport.registerProducer(self, True)

    def send(self, data: bytes) -> None:
        """Write what the socket takes at once, and leave only the rest to the reactor.

        Waiting until the reactor finds the socket writable would cost another turn of it and
        two system calls.
        """
        if self.socket is None:
            self._unsent = memoryview(bytes(self._unsent) + data)
            self.waits = True
            self._write()
            return
        if not self.waits:
            sent = self.socket.writeSomeData(data)
            if sent == len(data):
                return
            if isinstance(sent, int):  # else the connection is lost, as the reactor will find out
                data = data[sent:]
        self._unsent = memoryview(bytes(self._unsent) + data)
        if not self.waits:
            self.waits = True
            self.socket.registerProducer(self, False)  # which calls resumeProducing

    async def room(self) -> None:
        """Wait until everything was sent."""
        if self.waits:
            self._room = Deferred()
            await self._room

    def resumeProducing(self) -> None:  # noqa: N802 - twisted's name
        """Write more of what waits, now that the transport sent what it had."""
        self._full = False
        self._progress()
        self._write()

    def _write(self) -> None:
        while self._unsent and not self._full:
            piece, self._unsent = self._unsent[:_AT_ONCE], self._unsent[_AT_ONCE:]
            self._transport.write(bytes(piece))
            if self.socket is not None:
                return  # a plain connection calls when it has sent that
        if self.waits and not self._full:
            self.waits = False
            if self.socket is not None:
                self.socket.unregisterProducer()
            room, self._room = self._room, None
            if self._end is not None:
                self._end()
            elif room is not None:
                room.callback(None)
            else:
                self._sent()

    def close(self) -> None:
        """Close the connection once everything was sent."""
        self._end = self._close
        if not self.waits:
            self._close()

    def _close(self) -> None:
        if self.socket is None:
            self._transport.unregisterProducer()
        self._transport.loseConnection()

    def close_now(self) -> None:
        """Close the connection, and leave it to the kernel to send what it has been given.

        ``loseConnection`` waits until the socket is writable, which may take as long as the client likes, and
        ``abortConnection`` destroys an answer that is on its way.
        """
        if self.socket is None:
            self._transport.abortConnection()
        else:
            self.socket.stopReading()
            self.socket.stopWriting()
            self.socket.connectionLost(connectionDone)

    def half_close(self) -> None:
        """End the output once everything was sent, unless it cannot end before the input."""
        if self.socket is not None:
            self._end = self.socket.loseWriteConnection
            if not self.waits:
                self._end()

    def drop(self) -> None:
        """Forget what waits: the connection is lost."""
        self.waits = False
        self._unsent = memoryview(b"")
        self._progress = self._sent = self._end = lambda: None

    def pauseProducing(self) -> None:  # noqa: N802 - twisted's name
        """Write nothing more for now: the transport holds enough."""
        self._full = True

    def stopProducing(self) -> None:  # noqa: N802 - twisted's name
        """Do nothing: the connection hears of its end too."""
