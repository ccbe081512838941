"""The web layer on real sockets and with arbitrary bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.memory_http import Connection, Web, raw
from support.sockets import talk
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from zope.interface import implementer


async def test_client_that_sends_a_too_large_body_gets_413(reactor: Any) -> None:
    body = b"x" * 4_000_000
    response = await talk(reactor, Web(), raw("POST", "/rest/v1/blog", body))
    assert response.startswith(b"HTTP/1.1 413 Content Too Large\r\n")
    assert response.endswith(b'"message":"The request body is larger than 10000 bytes"}')


async def test_disconnect_cancels_the_statement(reactor: Any) -> None:
    cancelled: list[bool] = []
    started: Deferred[None] = Deferred()

    async def slow(*_: Any) -> Any:
        started.callback(None)
        try:
            await Deferred()
        except CancelledError:
            cancelled.append(True)
            raise

    web = Web(rest=slow)
    assert await talk(reactor, web, raw("GET", "/rest/v1/blog"), started) == b""
    assert cancelled == [True]
    assert [served.status for served in web.served] == [499]


@pytest.fixture(scope="module")
def failures() -> Iterator[list[LogEvent]]:
    found: list[LogEvent] = []

    @implementer(ILogObserver)
    def observer(event: LogEvent) -> None:
        if "log_failure" in event:
            found.append(event)

    globalLogPublisher.addObserver(observer)
    yield found
    globalLogPublisher.removeObserver(observer)


PIECES = st.sampled_from(
    [
        b"GET /rest/v1/blog HTTP/1.1\r\n",
        b"POST /graphql/v1 HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"GET http://a/rest/v1/blog HTTP/1.0\r\n",
        b"GET /%00%ff?%ff HTTP/1.1\r\n",
        b"Host: a\r\n",
        b"apikey: sb_publishable_for_tests\r\n",
        b"Content-Type: application/json\r\n",
        b"Content-Length: 2\r\n",
        b"Content-Length: 99999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"Origin: null\r\n",
        b"Authorization: Bearer a.b.c\r\n",
        b"\r\n",
        b"{}",
        b"2\r\n{}\r\n",
        b"0\r\n\r\n",
        b"ffffffff\r\n",
        b"\xff\x00",
    ]
)


@given(st.lists(PIECES | st.binary(max_size=20), max_size=12))
def test_arbitrary_bytes_cause_no_failures(failures: list[LogEvent], pieces: list[bytes]) -> None:
    web = Web()
    connection = Connection(web)
    for piece in pieces:
        if not connection.lost:
            connection.send(piece)
    written = connection.transport.value().replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
    connection.transport.clear()
    connection.transport.write(written)
    responses = 0
    while connection.transport.value():
        assert 200 <= connection.take().status < 500
        responses += 1
    assert responses == len(web.served)
    assert failures == []
    if not connection.lost:
        connection.close()
    assert web.site.in_flight == 0
    assert not web.site.connections
    assert web.clock.getDelayedCalls() == []
