"""Answers that are made while they are sent: framed, no faster than the client reads, ended by both sides."""

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
    """The pieces of an answer, and what became of the stream that gives them."""

    def __init__(self, *pieces: bytes | Exception | Deferred[None]) -> None:
        self._pieces = pieces
        self.given = 0
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
                self.given += 1
                yield piece
        finally:
            self.closed = True

    async def __call__(self, _request: Request, _caller: Any) -> Reply:
        """Answer with the stream."""
        return Reply(200, NDJSON, b"", self._stream())


def asked(source: Source, method: str = "GET", *more: tuple[str, str]) -> tuple[Web, Connection]:
    """Ask for the stream on a connection in memory."""
    web = Web(rest=source)
    connection = Connection(web)
    connection.send(raw(method, "/rest/v1/blog", headers=more))
    return web, connection


def producer(connection: Connection) -> Any:
    """Return what the transport pauses while the client reads nothing."""
    return connection.transport.producer


def parts(data: bytes) -> tuple[list[str], bytes]:
    """Return the lines of an answer's head, and its body as it was framed."""
    head, _, body = data.partition(b"\r\n\r\n")
    return head.decode().split("\r\n"), body


def test_the_pieces_come_as_chunks_and_the_connection_serves_on() -> None:
    source = Source(b"one\n", b"", b"three\n")
    web, connection = asked(source)
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


def test_an_old_client_gets_the_pieces_as_they_are_and_then_the_end_of_the_connection() -> None:
    connection = Connection(Web(rest=Source(b"one\n", b"two\n")))
    connection.send(raw("GET", "/rest/v1/blog").replace(b"HTTP/1.1", b"HTTP/1.0"))
    lines, body = parts(connection.transport.value())
    assert "Connection: close" in lines
    assert "Transfer-Encoding: chunked" not in lines
    assert body == b"one\ntwo\n"
    assert connection.lost


def test_head_has_the_headers_and_runs_nothing() -> None:
    source = Source(b"one\n")
    _, connection = asked(source, "HEAD")
    lines, body = parts(connection.transport.value())
    assert "Content-Type: application/x-ndjson" in lines
    assert "Transfer-Encoding: chunked" in lines
    assert body == b""
    assert not source.begun


def test_head_closes_a_stream_that_was_begun() -> None:
    source = Source(b"one\n", b"two\n")

    async def begun(request: Request, caller: Any) -> Reply:
        reply = await source(request, caller)
        assert reply.stream is not None
        await anext(reply.stream)
        kept.append(reply.stream)
        return reply

    kept: list[Stream] = []
    Connection(Web(rest=begun)).send(raw("HEAD", "/rest/v1/blog"))
    assert source.closed


def test_an_error_before_the_first_piece_is_an_ordinary_answer() -> None:
    source = Source(ApiError(403, "42501", "permission denied for table blog"))
    _, connection = asked(source)
    answer = connection.take()
    assert (answer.status, answer.json()["code"]) == (403, "42501")
    assert answer.headers["content-length"] == str(len(answer.body))
    assert source.closed


@pytest.mark.parametrize("error", [ApiError(500, "22012", "division by zero"), RuntimeError("a mistake")])
def test_an_error_after_it_cuts_the_answer_off(error: Exception, failures: list[LogEvent]) -> None:
    """No last chunk is sent, so that the client sees that something is missing."""
    web, connection = asked(Source(b"one\n", error))
    assert connection.transport.disconnected or connection.transport.disconnecting
    assert parts(connection.transport.value())[1] == b"4\r\none\n\r\n"
    assert web.site.in_flight == 0
    [logged] = failures
    # What the database says may happen any day; a mistake of ours should not.
    assert logged["log_level"] is (LogLevel.critical if isinstance(error, RuntimeError) else LogLevel.info)


def test_no_piece_is_made_while_the_client_does_not_read() -> None:
    source = Source(*[b"a piece\n"] * 5)
    authenticator: Deferred[None] = Deferred()
    source._pieces = (b"first\n", authenticator, *source._pieces)
    _, connection = asked(source)
    producer(connection).pauseProducing()
    authenticator.callback(None)
    assert source.given == 2, "the one that was being made when the client stopped"
    producer(connection).resumeProducing()
    assert source.given == 6
    assert connection.transport.value().endswith(b"0\r\n\r\n")


def test_a_client_that_stops_reading_is_given_up_after_a_minute() -> None:
    source = Source(b"first\n", Deferred(), b"never\n")
    web, connection = asked(source)
    producer(connection).pauseProducing()
    source._pieces[1].callback(None)  # type: ignore[union-attr]
    web.clock.advance(59)
    assert not source.closed
    web.clock.advance(2)
    connection.notice()
    assert source.closed
    assert connection.transport.disconnected or connection.transport.disconnecting
    assert web.site.in_flight == 0


def test_a_piece_that_does_not_come_cuts_the_answer_off() -> None:
    first, second = Deferred[None](), Deferred[None]()
    source = Source(b"one\n", first, b"two\n", second, b"three\n")
    web, connection = asked(source)
    web.clock.advance(59)
    first.callback(None)
    web.clock.advance(59)
    assert not source.closed
    web.clock.advance(1)
    assert source.closed
    assert parts(connection.transport.value())[1] == b"4\r\none\n\r\n4\r\ntwo\n\r\n"
    assert connection.transport.disconnected or connection.transport.disconnecting
    assert web.site.in_flight == 0


def test_a_client_that_goes_away_ends_the_stream() -> None:
    waiting: Deferred[None] = Deferred()
    source = Source(b"first\n", waiting, b"never\n")
    web, connection = asked(source)
    assert not source.closed
    connection.close()
    assert source.closed
    assert [served.status for served in web.served] == [499]
    assert web.site.in_flight == 0


def test_a_client_that_goes_away_while_it_does_not_read_ends_the_stream() -> None:
    source = Source(b"first\n", Deferred(), b"second\n", b"third\n")
    web, connection = asked(source)
    producer(connection).pauseProducing()
    source._pieces[1].callback(None)  # type: ignore[union-attr]
    connection.close()
    assert (source.given, source.closed, web.site.in_flight) == (2, True, 0)


def test_draining_waits_for_a_stream() -> None:
    authenticator: Deferred[None] = Deferred()
    web, connection = asked(Source(b"first\n", authenticator, b"last\n"))
    drained = web.site.drain(10)
    assert not drained.called
    authenticator.callback(None)
    connection.close()
    assert drained.called
    assert connection.transport.value().endswith(b"0\r\n\r\n")


class Paused(Protocol):
    """A client that reads when it is told to."""

    def __init__(self) -> None:
        self.received = 0
        self.ended: Deferred[None] = Deferred()

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        """Read nothing yet."""
        assert self.transport is not None
        self.transport.pauseProducing()  # type: ignore[attr-defined]

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Count."""
        self.received += len(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002, N802 - twisted's name
        """Tell the end."""
        self.ended.callback(None)


async def test_a_large_answer_never_waits_in_memory(reactor: Any) -> None:
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
    assert source.given == PIECES
    assert client.received > PIECES * len(PIECE)
    assert max(waiting) <= 2 * (len(PIECE) + 20)
    assert web.served[0].size == PIECES * len(PIECE)


def test_a_chunk_says_its_length_in_hexadecimal_digits() -> None:
    piece = Chunk(b"a" * 26)
    assert (piece.framed, bytes(piece.plain)) == (b"1a\r\n" + b"a" * 26 + b"\r\n", b"a" * 26)
    assert (Chunk(b"").framed, len(Chunk(b""))) == (b"0\r\n\r\n", 0)


def test_what_is_sent_behind_a_request_is_left_to_the_client_while_it_reads_nothing() -> None:
    _, connection = asked(Source(b"one\n", Deferred()))
    producer(connection).pauseProducing()  # as the transport does when enough waits to be sent
    connection.send(b"x" * 10_000)
    assert connection.transport.producerState == "producing"
    connection.send(b"x" * 10_000)
    assert connection.transport.producerState == "paused"
    connection.close()
