"""Reads requests out of the bytes that a client sends, one at a time, by llhttp and within limits; pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from dataapi.http.errors import ApiError
from dataapi.http.headers import Headers
from dataapi.http.messages import LONGEST_TARGET
from dataapi.web.server import head

_LONGEST_LINE = LONGEST_TARGET + 100
"""Bytes of a request line: the target with a method and a version."""
_LONGEST_HEADER = 32_768
_LONGEST_HEADERS = 65_536
"""Bytes of all headers together."""
_MOST_HEADERS = 200
_SURELY_WITHIN_LIMITS = 4 * _MOST_HEADERS
"""Bytes of a head in which there is no room for too many headers, nor for one that is too long."""
_LONGEST_COMPARED = 4096
"""Bytes of headers that are compared with those of the next request on the connection."""
_LONGEST_LENGTH = 30
"""Digits of a ``Content-Length``, leading zeros included."""
_MOST_FRAMING = 16
"""Bytes by which each byte of a body may be framed as chunks, besides as many as headers may have."""

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_REQUEST_LINE = re.compile(rb"(%b+) ([!-~]+) HTTP/1\.([01])" % _TOKEN)
_PARTIAL_LINE = re.compile(rb"(%b{1,32}) ([!-~]{1,2000})" % _TOKEN)
_EMPTY_LINES = re.compile(rb"(?:\r\n)+")
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r]*", re.IGNORECASE)
_LINE_FOR_LLHTTP = b"POST / HTTP/1.1"
"""Stands in for the request line: llhttp knows fewer methods than HTTP/1.1, and more versions."""


class Head(NamedTuple):
    """A request without its body.

    :ivar target: as sent.
    :ivar minor: the minor version of HTTP/1, 0 or 1.
    :ivar headers: names in lower case; the values of repeated headers are joined.
    :ivar length: bytes of the body; None for chunks.
    """

    method: str
    target: bytes
    minor: int
    headers: Headers
    length: int | None

    @property
    def persistent(self) -> bool:
        """Whether the client lets the connection stay open."""
        connection = self.headers.get("connection")
        closes = connection is not None and "close" in re.split(r"[, \t]+", connection.lower())
        return self.minor > 0 and not closes


_NAMES: dict[bytes, str] = {}


def _header_name(name: bytes) -> str:
    text = name.decode("latin-1").lower()
    if len(_NAMES) < 500 and len(name) <= 100:
        _NAMES[name] = text
    return text


class _Message:
    """Takes what llhttp calls while it is fed."""

    __slots__ = ("body", "complete", "headers")

    def __init__(self) -> None:
        self.headers: Headers | None = None
        self.body: list[bytes] = []
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header as text, joined to an earlier one of its name; trailers are none of the request's."""
        headers = self.headers
        if headers is None:
            return
        known = _NAMES.get(name) or _header_name(name)
        value = value.rstrip(b" \t")
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.decode("latin-1")
        if known in headers:
            text = f"{headers[known]}{'; ' if known == 'cookie' else ', '}{text}"
        headers[known] = text

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        self.body.append(data)

    def on_message_complete(self) -> None:
        """Take note of the end."""
        self.complete = True


class RequestParser:
    """Reads one request after another.

    llhttp never gets more than one message: its head, which ends with the first empty line, and then what is
    left of the body, or what may be.  So requests that were sent together wait as bytes.

    Most clients send the same headers with every request of a connection.  Those are parsed once: llhttp does
    not get a repeated head or its body, after which it would be in the state that it is in anyway.

    :ivar buffer: what was received and not read.
    :ivar unread: bytes of the request that are still to be read; None if that is unknown.
    """

    def __init__(self) -> None:
        self.buffer = b""
        self.unread: int | None = None
        self._message = _Message()
        self._llhttp: HttpRequestParser = HttpRequestParser(self._message)
        self._read = self._framing = 0
        self._tail = b""
        self._last_received = b""
        self._last_headers = Headers(), 0
        self._repeated = False

    @property
    def complete(self) -> bool:
        """Whether the request was read completely."""
        return self._message.complete

    def receive(self, data: bytes) -> None:
        """Add what was received."""
        self.buffer = self.buffer + data if self.buffer else data

    def read_head(self) -> Head | None:
        """Begin a request, or return None while its head was not received completely.

        :raises ApiError: 400, 414 or 431, it is not valid or exceeds a limit; then nothing more can be read.
        """
        self.unread = None
        self._message.complete = False
        buffer = self.buffer
        if buffer.startswith(b"\r\n"):  # skipped before a request, as RFC 9112 section 2.2 advises
            buffer = self.buffer = _EMPTY_LINES.sub(b"", buffer, 1)
        end = buffer.find(b"\r\n\r\n")
        if not 0 <= end <= _SURELY_WITHIN_LIMITS:
            _check_limits(buffer[:end] if end >= 0 else buffer)
            if end < 0:
                return None
        line_end = buffer.find(b"\r\n")
        line = _REQUEST_LINE.fullmatch(buffer, 0, line_end)
        if line is None:
            raise _invalid_http()
        headers, length = self._headers(buffer[line_end : end + 4])
        self.unread = length
        self.buffer = buffer[end + 4 :]
        self._read = self._framing = 0
        self._tail = b""
        return Head(line[1].decode("ascii"), line[2], int(line[3]), headers, length)

    def _headers(self, received: bytes) -> tuple[Headers, int | None]:
        """Return the headers that were received, and the length of the body, None for chunks."""
        if received == self._last_received:
            self._repeated = True
            self._message.complete = self._last_headers[1] == 0
            return self._last_headers
        self._repeated = False
        headers = self._read_headers(_LINE_FOR_LLHTTP + received)
        length = _body_length(headers)
        if length is not None and len(received) <= _LONGEST_COMPARED:
            self._last_received, self._last_headers = received, (headers, length)
        return headers, length

    def _read_headers(self, received: bytes) -> Headers:
        message, headers = self._message, Headers()
        message.headers, message.complete = headers, False
        try:
            self._llhttp.feed_data(received)
        except HttpParserUpgrade:
            # The request stays one of HTTP/1.1; llhttp would leave its body to the other protocol.
            self._llhttp = HttpRequestParser(message)
            return self._read_headers(_UPGRADE.sub(b"", received))
        except HttpParserError:
            raise _invalid_http() from None
        message.headers = None
        return headers

    def read_body(self) -> list[bytes]:
        """Return what was received of the body since the last call; raises ``ApiError`` if it is invalid."""
        buffer, message = self.buffer, self._message
        cut = self._possible_end(buffer) if self.unread is None else self.unread
        received, self.buffer = buffer[:cut], buffer[cut:]
        if self.unread is not None:
            self.unread -= len(received)
        if self._repeated:
            message.complete = not self.unread
            return [received]
        try:
            self._llhttp.feed_data(received)
        except HttpParserError:
            raise _invalid_http() from None
        pieces, message.body = message.body, []
        size = sum(map(len, pieces))
        self._read += size
        self._framing += len(received) - size
        if self._framing > _LONGEST_HEADERS + _MOST_FRAMING * self._read:
            raise _invalid_http()
        return pieces

    def _possible_end(self, buffer: bytes) -> int:
        """Return where the next request may begin: a body of chunks ends with an empty line."""
        window = self._tail + buffer
        found = window.find(b"\r\n\r\n")
        end = len(window) if found < 0 else found + 4
        cut = end - len(self._tail)
        self._tail = window[max(0, end - 3) : end]
        return cut

    def begun(self) -> Head:
        """Return as much as there is of a head that cannot be read, ``-`` for its unreadable parts."""
        found = _PARTIAL_LINE.match(self.buffer)
        method, target = (found[1].decode("ascii"), found[2]) if found else ("-", b"-")
        return Head(method, target, 1, Headers(), None)


def _check_limits(received: bytes) -> None:
    """Raise the error for a head, or the part of one, that exceeds a limit."""
    line, _, headers = received.partition(b"\r\n")
    if len(line) > _LONGEST_LINE:
        raise head.target_too_long()
    lines = headers.split(b"\r\n")
    if len(max(lines, key=len)) > _LONGEST_HEADER:
        raise _too_large(f"A header of the request is longer than {_LONGEST_HEADER} bytes")
    if len(lines) > _MOST_HEADERS + 1:
        raise _too_large(f"The request has more than {_MOST_HEADERS} headers")
    if len(headers) > _LONGEST_HEADERS:
        raise _too_large(f"The request's headers are longer than {_LONGEST_HEADERS} bytes")


def _body_length(headers: Headers) -> int | None:
    """Return the number of bytes that follow a head whose headers llhttp accepted, None for chunks."""
    encoding = headers.get("transfer-encoding")
    if encoding is not None:
        if encoding.lower() != "chunked":
            raise _invalid_http()
        return None
    length = headers.get("content-length", "0")
    if len(length) > _LONGEST_LENGTH:
        raise _invalid_http()
    return int(length)


def _invalid_http() -> ApiError:
    return ApiError(400, "BAD_REQUEST", "The request is not valid HTTP")


def _too_large(message: str) -> ApiError:
    return ApiError(431, "REQUEST_HEADER_FIELDS_TOO_LARGE", message)
