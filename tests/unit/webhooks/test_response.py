"""Receivers' responses are parsed and partly recorded."""

from __future__ import annotations

import pytest
from dataapi.webhooks.delivery.response import (
    MAX_BODY,
    MAX_HEAD,
    MAX_RECORDED_HEADERS,
    NotHttp,
    Response,
    body_text,
    header_texts,
)

SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nX-A: 1\r\n 2\r\n\r\n"


def read(*pieces: bytes) -> Response:
    """Return a response after feeding it these pieces of data."""
    response = Response()
    for piece in pieces:
        response.feed(piece)
    return response


@pytest.mark.parametrize(
    ("sent", "code", "body", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", True),
        (b"HTTP/1.1 200\nContent-Length: 2\n\nok", 200, b"ok", True),
        (b"HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\n", 204, b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", 500, b"", True),
        (
            CHUNKED + b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n",
            200,
            b"abc0123456789",
            True,
        ),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
        (b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n", 200, b"ok", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 No\r\n\r\nagain", 200, b"ok", False),
    ],
)
def test_response_does_not_depend_on_how_it_is_split(
    sent: bytes, code: int, body: bytes, reusable: bool
) -> None:
    cuts = [(sent[:index], sent[index:]) for index in range(len(sent))]
    for pieces in (*cuts, [bytes([byte]) for byte in sent]):
        response = read(*pieces)
        assert (response.code, response.body, response.complete) == (code, body, True)
        assert response.reusable == reusable


def test_sloppy_headers_are_accepted() -> None:
    head = b"HTTP/1.1 200 OK\r\nX-A:  1\t \r\nX-B: a\r\n b\r\nX-C: \0\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert read(head, b"0\r\nX-D: 1\r\n\r\n").headers == {b"x-a": [b"1"], b"x-b": [b"a b"], b"x-c": [b"\0"]}


def test_body_without_a_length_ends_with_the_connection() -> None:
    response = read(b"HTTP/1.1 200 OK\r\n\r\n", b"o", b"k")
    assert not response.is_finished
    response.end()
    assert (response.body, response.complete, response.reusable) == (b"ok", True, False)


@pytest.mark.parametrize(
    "more",
    [
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
        b"Upgrade: h2c\r\nConnection: keep-alive, Upgrade\r\n",
    ],
)
@pytest.mark.parametrize("code", [200, 426])
def test_response_may_offer_a_protocol_upgrade(code: int, more: bytes) -> None:
    response = read(b"HTTP/1.1 %d Text\r\nContent-Length: 2\r\n%b\r\nok" % (code, more))
    assert (response.code, response.body, response.complete) == (code, b"ok", True)


def test_protocol_switch_after_a_response_only_ends_the_connection() -> None:
    response = read(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + SWITCHING)
    assert (response.code, response.complete, response.reusable) == (200, True, False)


@pytest.mark.parametrize(
    "sent",
    [b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", CHUNKED, CHUNKED + b"3\r\nabc\r\n"],
)
def test_truncated_response_is_incomplete(sent: bytes) -> None:
    response = read(sent)
    with pytest.raises(NotHttp):
        response.end()
    assert not response.complete


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 099 No\r\n\r\n",
        SWITCHING,
        SWITCHING + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 102 Wait\r\n\r\n" + SWITCHING,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"3\r\nabcd\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * MAX_HEAD,
        b"HTTP/1.1 102 Wait\r\n\r\n" * MAX_HEAD,
        CHUNKED + b"0\r\n" + b"Trailer: 1\r\n" * MAX_HEAD,
    ],
)
def test_ambiguous_and_endless_responses_are_rejected(sent: bytes) -> None:
    with pytest.raises(NotHttp):
        read(sent)


@pytest.mark.parametrize("character", ["é", "€", "🚂"])
def test_character_cut_by_the_limit_is_dropped(character: str) -> None:
    size = len(character.encode())
    for inside in range(1, size):
        filler = "x" * (MAX_BODY - inside)
        assert body_text((filler + character).encode() + b"more") == filler
    whole = "x" * (MAX_BODY - size) + character
    assert body_text(whole.encode() + b"more") == whole


def test_invalid_text_is_replaced() -> None:
    """Only the size limit may remove an incomplete character. PostgreSQL cannot store U+0000."""
    assert body_text("€".encode()[:2]) == "\ufffd"
    assert body_text(b"a\0b\xff") == "a\ufffdb\ufffd"


def test_limited_number_of_headers_is_recorded_in_lower_case() -> None:
    assert header_texts([(b"X-One", [b"a", b"b"])]) == (("x-one", "a, b"),)
    many = [(f"x-{number}".encode(), [b"v"]) for number in range(MAX_RECORDED_HEADERS + 1)]
    assert len(header_texts(many)) == MAX_RECORDED_HEADERS
