"""Streamed responses: framing, backpressure, errors and disconnects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.http.errors import ApiError
from dataapi.http.messages import Chunk, Reply, Request, Stream
from dataapi.web.app import make_site
from support.memory_http import Connection, Web, raw
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ClientCreator, Protocol, connectionDone
from twisted.logger import LogLevel

if TYPE_CHECKING:
    from twisted.logger import LogEvent
    from twisted.python.failure import Failure

PIECE = b"x" * 50_000
PIECES = 400
NDJSON = (("Content-Type", "application/x-ndjson"),)


class Source:
    """A handler that responds with a stream of pieces and records the stream's state."""

    def __init__(self, *pieces: bytes | Exception | Deferred[None]) -> None:
        self._pieces = pieces
        self.sent = 0
        self.begun = self.closed = False

    async def _stream(self) -> Stream:
        self.begun = True
        try:
            for piece in self._pieces:
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, Deferred):
                    await piece
                    continue
                self.sent += 1
                yield piece
        finally:
            self.closed = True

    async def __call__(self, _request: Request, _caller: Any) -> Reply:
        return Reply(200, NDJSON, b"", self._stream())


def send_request(source: Source, method: str = "GET", *more: tuple[str, str]) -> tuple[Web, Connection]:
    """Request the stream of a source over an in-memory connection."""
    web = Web(rest=source)
    connection = Connection(web)
    connection.send(raw(method, "/rest/v1/blog", headers=more))
    return web, connection


def producer(connection: Connection) -> Any:
    """Return the producer. The transport pauses it while the client does not read."""
    return connection.transport.producer


def parts(data: bytes) -> tuple[list[str], bytes]:
    """Return the lines of the response head, and the framed body."""
    head, _, body = data.partition(b"\r\n\r\n")
    return head.decode().split("\r\n"), body


def test_pieces_are_sent_as_chunks_on_a_persistent_connection() -> None:
    source = Source(b"one\n", b"", b"three\n")
    web, connection = send_request(source)
    lines, body = parts(connection.transport.value())
    assert lines[0] == "HTTP/1.1 200 OK"
    assert "Transfer-Encoding: chunked" in lines
    assert not any(line.startswith("Content-Length") for line in lines)
    assert body == b"4\r\none\n\r\n6\r\nthree\n\r\n0\r\n\r\n"
    assert source.closed
    assert [(served.status, served.size) for served in web.served] == [(200, 10)]
    assert web.site.in_flight == 0
    connection.transport.clear()
    connection.send(raw("GET", "/graphql/v1?query={__typename}"))
    assert connection.take().status == 200


def test_http_1_0_stream_is_unframed_and_closes_the_connection() -> None:
    connection = Connection(Web(rest=Source(b"one\n", b"two\n")))
    connection.send(raw("GET", "/rest/v1/blog").replace(b"HTTP/1.1", b"HTTP/1.0"))
    lines, body = parts(connection.transport.value())
    assert "Connection: close" in lines
    assert "Transfer-Encoding: chunked" not in lines
    assert body == b"one\ntwo\n"
    assert connection.lost


def test_head_does_not_start_the_stream() -> None:
    source = Source(b"one\n")
    _, connection = send_request(source, "HEAD")
    lines, body = parts(connection.transport.value())
    assert "Content-Type: application/x-ndjson" in lines
    assert "Transfer-Encoding: chunked" in lines
    assert body == b""
    assert not source.begun


def test_head_closes_a_started_stream() -> None:
    source = Source(b"one\n", b"two\n")

    async def begun(request: Request, caller: Any) -> Reply:
        reply = await source(request, caller)
        assert reply.stream is not None
        await anext(reply.stream)
        streams.append(reply.stream)
        return reply

    streams: list[Stream] = []
    Connection(Web(rest=begun)).send(raw("HEAD", "/rest/v1/blog"))
    assert source.closed


def test_error_before_the_first_piece_is_a_normal_response() -> None:
    source = Source(ApiError(403, "42501", "permission denied for table blog"))
    _, connection = send_request(source)
    response = connection.take()
    assert (response.status, response.json()["code"]) == (403, "42501")
    assert response.headers["content-length"] == str(len(response.body))
    assert source.closed


@pytest.mark.parametrize("error", [ApiError(500, "22012", "division by zero"), RuntimeError("a mistake")])
def test_error_after_the_first_piece_aborts_the_response(error: Exception, failures: list[LogEvent]) -> None:
    """The client detects an incomplete response by its missing last chunk."""
    web, connection = send_request(Source(b"one\n", error))
    assert connection.transport.disconnected or connection.transport.disconnecting
    assert parts(connection.transport.value())[1] == b"4\r\none\n\r\n"
    assert web.site.in_flight == 0
    [logged] = failures
    # Database errors are expected; internal errors are not.
    assert logged["log_level"] is (LogLevel.critical if isinstance(error, RuntimeError) else LogLevel.info)


def test_stream_pauses_while_the_client_does_not_read() -> None:
    source = Source(*[b"a piece\n"] * 5)
    gate: Deferred[None] = Deferred()
    source._pieces = (b"first\n", gate, *source._pieces)
    _, connection = send_request(source)
    producer(connection).pauseProducing()
    gate.callback(None)
    assert source.sent == 2, "one piece is sent after the client stops reading"
    producer(connection).resumeProducing()
    assert source.sent == 6
    assert connection.transport.value().endswith(b"0\r\n\r\n")


def test_client_that_stops_reading_is_disconnected_after_a_minute() -> None:
    source = Source(b"first\n", Deferred(), b"never\n")
    web, connection = send_request(source)
    producer(connection).pauseProducing()
    source._pieces[1].callback(None)  # type: ignore[union-attr]
    web.clock.advance(59)
    assert not source.closed
    web.clock.advance(2)
    connection.notice()
    assert source.closed
    assert connection.transport.disconnected or connection.transport.disconnecting
    assert web.site.in_flight == 0


def test_stalled_stream_is_aborted() -> None:
    first, second = Deferred[None](), Deferred[None]()
    source = Source(b"one\n", first, b"two\n", second, b"three\n")
    web, connection = send_request(source)
    web.clock.advance(59)
    first.callback(None)
    web.clock.advance(59)
    assert not source.closed
    web.clock.advance(1)
    assert source.closed
    assert parts(connection.transport.value())[1] == b"4\r\none\n\r\n4\r\ntwo\n\r\n"
    assert connection.transport.disconnected or connection.transport.disconnecting
    assert web.site.in_flight == 0


def test_disconnect_closes_the_stream() -> None:
    waiting: Deferred[None] = Deferred()
    source = Source(b"first\n", waiting, b"never\n")
    web, connection = send_request(source)
    assert not source.closed
    connection.close()
    assert source.closed
    assert [served.status for served in web.served] == [499]
    assert web.site.in_flight == 0


def test_disconnect_closes_a_paused_stream() -> None:
    source = Source(b"first\n", Deferred(), b"second\n", b"third\n")
    web, connection = send_request(source)
    producer(connection).pauseProducing()
    source._pieces[1].callback(None)  # type: ignore[union-attr]
    connection.close()
    assert (source.sent, source.closed, web.site.in_flight) == (2, True, 0)


def test_drain_waits_for_a_stream() -> None:
    gate: Deferred[None] = Deferred()
    web, connection = send_request(Source(b"first\n", gate, b"last\n"))
    drained = web.site.drain(10)
    assert not drained.called
    gate.callback(None)
    connection.close()
    assert drained.called
    assert connection.transport.value().endswith(b"0\r\n\r\n")


class Paused(Protocol):
    """A client that does not read until the test resumes it."""

    def __init__(self) -> None:
        self.received = 0
        self.ended: Deferred[None] = Deferred()

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        assert self.transport is not None
        self.transport.pauseProducing()  # type: ignore[attr-defined]

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        self.received += len(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's name
        self.ended.callback(None)


async def test_large_stream_is_not_buffered_in_memory(reactor: Any) -> None:
    waiting = [0]
    channels: list[Any] = []

    class Measured(Source):
        async def _stream(self) -> Stream:
            async for piece in super()._stream():
                transport = channels[0].transport
                waiting.append(len(transport.dataBuffer) - transport.offset + transport._tempDataLen)
                yield piece

    source = Measured(*[PIECE] * PIECES)
    web = Web(rest=source)
    site: Any = make_site(web.backends, reactor, web.served.append)
    build = site.buildProtocol

    def remember(address: Any) -> Any:
        channels.append(build(address))
        return channels[-1]

    site.buildProtocol = remember
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    try:
        client = await ClientCreator(reactor, Paused).connectTCP("127.0.0.1", port.getHost().port)
        client.transport.write(raw("GET", "/rest/v1/blog", headers=[("Connection", "close")]))
        reactor.callLater(0.05, client.transport.resumeProducing)
        await client.ended
    finally:
        await port.stopListening()
        await site.drain(5)
    assert source.sent == PIECES
    assert client.received > PIECES * len(PIECE)
    assert max(waiting) <= 2 * (len(PIECE) + 20)
    assert web.served[0].size == PIECES * len(PIECE)


def test_chunk_length_is_hexadecimal() -> None:
    piece = Chunk(b"a" * 26)
    assert (piece.framed, bytes(piece.plain)) == (b"1a\r\n" + b"a" * 26 + b"\r\n", b"a" * 26)
    assert (Chunk(b"").framed, len(Chunk(b""))) == (b"0\r\n\r\n", 0)


def test_server_stops_reading_while_the_client_does_not_read() -> None:
    _, connection = send_request(Source(b"one\n", Deferred()))
    producer(connection).pauseProducing()  # the transport does this when its send buffer is full
    connection.send(b"x" * 10_000)
    assert connection.transport.producerState == "producing"
    connection.send(b"x" * 10_000)
    assert connection.transport.producerState == "paused"
    connection.close()
