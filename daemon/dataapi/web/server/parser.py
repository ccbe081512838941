"""Parses requests within limits, using llhttp. Performs no I/O."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from dataapi.http.errors import ApiError
from dataapi.http.headers import WEBSOCKET, Headers
from dataapi.http.messages import MAX_TARGET_BYTES
from dataapi.http.query_string import not_utf8

_MAX_LINE_LENGTH = MAX_TARGET_BYTES + 100
"""Maximum length of the request line in bytes: target, method and version."""
_MAX_HEADER_LENGTH = 32_768
_MAX_HEADERS_SIZE = 65_536
"""Maximum size of all headers in bytes."""
_MAX_HEADERS = 200
_SAFE_HEAD_SIZE = 4 * _MAX_HEADERS
"""Size in bytes up to which a head is not checked, because it is too small to exceed any limit."""
_MAX_CACHED_HEADERS = 4096
"""Maximum size of headers to cache for the next request on the connection, in bytes."""
_MAX_LENGTH_DIGITS = 30
"""Maximum number of digits of a ``Content-Length``, including leading zeros."""
_MAX_FRAMING = 16
"""Maximum overhead of chunked encoding: this many bytes per body byte, plus ``_MAX_HEADERS_SIZE``."""

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_REQUEST_LINE = re.compile(rb"(%b+) ([!-~]+) HTTP/1\.([01])" % _TOKEN)
_PARTIAL_LINE = re.compile(rb"(%b{1,32}) ([!-~]{1,2000})" % _TOKEN)
_MAX_HOST_LENGTH = 300
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)"  # IPv6 address or name
    r"(?::(?P<port>[0-9]{0,5}))?"
)
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?")
_EMPTY_LINES = re.compile(rb"(?:\r\n)+")
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r]*", re.IGNORECASE)
_LINE_FOR_LLHTTP = b"POST / HTTP/1.1"
"""Request line for llhttp, because llhttp rejects unknown methods. ``_REQUEST_LINE`` parses the client's."""


class Head(NamedTuple):
    """The request line and the headers of a request.

    :ivar target: request target as sent.
    :ivar minor: minor version of HTTP/1: 0 or 1.
    :ivar length: size of the body in bytes, or None for chunked encoding.
    :ivar closes: whether the client requests that the connection is closed after the response.
    """

    method: str
    target: bytes
    minor: int
    headers: Headers
    length: int | None
    closes: bool


_NAMES: dict[bytes, str] = {}


def _header_name(name: bytes) -> str:
    text = name.decode("latin-1").lower()
    if len(_NAMES) < 500 and len(name) <= 100:
        _NAMES[name] = text
    return text


class _MessageHead:
    """Collects the headers and the body that llhttp passes to its callbacks."""

    __slots__ = ("body", "complete", "headers")

    def __init__(self) -> None:
        self.headers: Headers | None = None
        self.body: list[bytes] = []
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Join the values of repeated headers, and ignore trailers."""
        headers = self.headers
        if headers is None:
            return
        key = _NAMES.get(name) or _header_name(name)
        value = value.rstrip(b" \t")
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.decode("latin-1")
        if key in headers:
            text = f"{headers[key]}{'; ' if key == 'cookie' else ', '}{text}"
        headers[key] = text

    def on_body(self, data: bytes) -> None:
        self.body.append(data)

    def on_message_complete(self) -> None:
        self.complete = True


class RequestParser:
    """Parses requests in sequence.

    llhttp parses heads, up to the first empty line, and chunked bodies. Bodies of known length are sliced
    from the buffer. Pipelined requests stay in the buffer.

    Most clients send the same headers with all requests of a connection, so the last headers are cached.

    :ivar buffer: received bytes that have not been parsed.
    :ivar unread: number of remaining bytes of the request's body, or None if unknown.
    """

    def __init__(self) -> None:
        self.buffer = b""
        self.unread: int | None = None
        self._message = _MessageHead()
        self._llhttp: HttpRequestParser = HttpRequestParser(self._message)
        self._read = self._framing = 0
        self._tail = b""
        self._last_received = b""
        self._last_headers: tuple[Headers, int | None, bool] = Headers(), 0, False

    def read_head(self) -> Head | None:
        """Parse the head of a request. Return None if it is incomplete.

        :raises ApiError: 400, 414 or 431 if it is invalid or exceeds a limit. The parser cannot be used
            afterwards.
        """
        self.unread = None
        buffer = self.buffer
        if buffer.startswith(b"\r\n"):  # skipped before a request, as RFC 9112 section 2.2 advises
            buffer = self.buffer = _EMPTY_LINES.sub(b"", buffer, 1)
        end = buffer.find(b"\r\n\r\n")
        if not 0 <= end <= _SAFE_HEAD_SIZE:
            _check_limits(buffer[:end] if end >= 0 else buffer)
            if end < 0:
                return None
        line_end = buffer.find(b"\r\n")
        line = _REQUEST_LINE.fullmatch(buffer, 0, line_end)
        if line is None:
            raise _invalid_http()
        received = buffer[line_end : end + 4]
        if received != self._last_received:
            self._read_headers(received)
        headers, length, closes = self._last_headers
        self.unread = length
        self.buffer = buffer[end + 4 :]
        method, target, minor = line.groups()
        return Head(method.decode("ascii"), target, int(minor), headers, length, closes or minor == b"0")

    def _read_headers(self, received: bytes) -> None:
        self._last_received = b""
        headers = self._parsed_headers(_LINE_FOR_LLHTTP + received)
        length = _body_length(headers)
        connection = headers.get("connection", "").lower()
        self._last_headers = headers, length, "close" in re.split(r"[, \t]+", connection)
        if length is None:
            self._read = self._framing = 0
            self._tail = b""
        elif len(received) <= _MAX_CACHED_HEADERS:
            self._last_received = received

    def _parsed_headers(self, received: bytes) -> Headers:
        message, headers = self._message, Headers()
        message.headers, message.complete = headers, False
        self._llhttp = HttpRequestParser(message)
        try:
            self._llhttp.feed_data(received)
        except HttpParserUpgrade:
            # Parse without the ``Upgrade`` header. Otherwise, llhttp would not parse the body as HTTP.
            ordinary = self._parsed_headers(_UPGRADE.sub(b"", received))
            if headers.get("upgrade", "").lower() == WEBSOCKET:
                ordinary["upgrade"] = WEBSOCKET
            return ordinary
        except HttpParserError:
            raise _invalid_http() from None
        message.headers = None
        return headers

    def read_body(self) -> bytes:
        """Return the part of the body received since the last call. Raises ``ApiError`` if it is invalid."""
        buffer, unread = self.buffer, self.unread
        if unread is None:
            return self._read_chunks(buffer)
        self.buffer = buffer[unread:]
        self.unread = max(0, unread - len(buffer))
        return buffer[:unread]

    def _read_chunks(self, buffer: bytes) -> bytes:
        message = self._message
        cut = self._possible_end(buffer)
        received, self.buffer = buffer[:cut], buffer[cut:]
        try:
            self._llhttp.feed_data(received)
        except HttpParserError:
            raise _invalid_http() from None
        body, message.body = b"".join(message.body), []
        self._read += len(body)
        self._framing += len(received) - len(body)
        if self._framing > _MAX_HEADERS_SIZE + _MAX_FRAMING * self._read:
            raise _invalid_http()
        if message.complete:
            self.unread = 0
        return body

    def _possible_end(self, buffer: bytes) -> int:
        """Return the end of the first empty line or of the buffer. A chunked body ends with an empty line."""
        window = self._tail + buffer
        empty_line = window.find(b"\r\n\r\n")
        end = len(window) if empty_line < 0 else empty_line + 4
        cut = end - len(self._tail)
        self._tail = window[max(0, end - 3) : end]
        return cut

    def begun(self) -> Head:
        """Return the readable part of an invalid head, with ``-`` for unreadable parts."""
        line = _PARTIAL_LINE.match(self.buffer)
        method, target = (line[1].decode("ascii"), line[2]) if line else ("-", b"-")
        return Head(method, target, 1, Headers(), None, closes=True)


def _check_limits(received: bytes) -> None:
    line, _, headers = received.partition(b"\r\n")
    if len(line) > _MAX_LINE_LENGTH:
        raise target_too_long()
    lines = headers.split(b"\r\n")
    if len(max(lines, key=len)) > _MAX_HEADER_LENGTH:
        raise _too_large(f"A header of the request is longer than {_MAX_HEADER_LENGTH} bytes")
    if len(lines) > _MAX_HEADERS + 1:
        raise _too_large(f"The request has more than {_MAX_HEADERS} headers")
    if len(headers) > _MAX_HEADERS_SIZE:
        raise _too_large(f"The request's headers are longer than {_MAX_HEADERS_SIZE} bytes")


def _body_length(headers: Headers) -> int | None:
    """Return the size of the body in bytes, or None if it is chunked. llhttp has validated the headers."""
    encoding = headers.get("transfer-encoding")
    if encoding is not None:
        if encoding.lower() != "chunked":
            raise _invalid_http()
        return None
    length = headers.get("content-length", "0")
    if len(length) > _MAX_LENGTH_DIGITS:
        raise _invalid_http()
    return int(length)


def _invalid_http() -> ApiError:
    return ApiError(400, "BAD_REQUEST", "The request is not valid HTTP")


def _too_large(message: str) -> ApiError:
    return ApiError(431, "REQUEST_HEADER_FIELDS_TOO_LARGE", message)


# ---------------------------------------------------------------- targets


class RequestTarget(NamedTuple):
    """The target of a request. ``host`` may include a port, and is None if there is no ``Host`` header.

    ``path`` is percent-encoded, as sent.
    """

    host: str | None
    path: bytes
    query: str


def parse_target(target: bytes, host: str | None, minor: int) -> RequestTarget:
    """Parse the request target and the ``Host`` header (RFC 9112 section 3).

    :raises ApiError: 400 if they are malformed or contradictory, 414 if the target is too long.
    """
    if len(target) > MAX_TARGET_BYTES:
        raise target_too_long()
    if host is None:
        if minor:
            raise _bad_request("The request has no Host header")
    elif not _is_host(host):
        raise _bad_request("The Host header is not one host name, with or without a port")
    path, _, query = target.partition(b"?")
    if not target.startswith(b"/") and target != b"*":
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None or not _is_host(authority := absolute[1].decode("latin-1")):
            raise _bad_request("The request target is neither a path nor an http URL")
        host, path, query = authority, absolute[2] or b"/", absolute[3] or b""
    try:
        return RequestTarget(host, path, query.decode())
    except UnicodeDecodeError as error:
        raise not_utf8(error) from None


def target_too_long() -> ApiError:
    return ApiError(414, "URI_TOO_LONG", f"The request target is longer than {MAX_TARGET_BYTES} bytes")


@lru_cache(maxsize=64)
def _is_host(value: str) -> bool:
    match = _HOST.fullmatch(value) if len(value) <= _MAX_HOST_LENGTH else None
    return match is not None and int(match["port"] or 0) <= 65_535


def _bad_request(message: str) -> ApiError:
    return ApiError(400, "BAD_REQUEST", message)
