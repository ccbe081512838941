"""Reads requests out of the bytes that a client sends, one at a time, by llhttp and within limits; pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from dataapi.http.errors import ApiError
from dataapi.http.headers import Headers
from dataapi.http.messages import MAX_TARGET_BYTES
from dataapi.http.query_string import not_utf8

_LONGEST_LINE = MAX_TARGET_BYTES + 100
"""Bytes of a request line: the target with a method and a version."""
_LONGEST_HEADER = 32_768
_LONGEST_HEADERS = 65_536
"""Bytes of all headers together."""
_MAX_HEADERS = 200
_SURELY_WITHIN_LIMITS = 4 * _MAX_HEADERS
"""Bytes of a head in which there is no room for too many headers, nor for one that is too long."""
_LONGEST_COMPARED = 4096
"""Bytes of headers that are compared with those of the next request on the connection."""
_LONGEST_LENGTH = 30
"""Digits of a ``Content-Length``, leading zeros included."""
_MAX_FRAMING = 16
"""Bytes by which each byte of a body may be framed as chunks, besides as many as headers may have."""

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_REQUEST_LINE = re.compile(rb"(%b+) ([!-~]+) HTTP/1\.([01])" % _TOKEN)
_PARTIAL_LINE = re.compile(rb"(%b{1,32}) ([!-~]{1,2000})" % _TOKEN)
_LONGEST_HOST = 300
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)"  # an address, or a name
    r"(?::(?P<port>[0-9]{0,5}))?"
)
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?")
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
    :ivar closes: whether the client ends the connection after the answer.
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
        """Record the end."""
        self.complete = True


class RequestParser:
    """Reads one request after another.

    llhttp reads heads, each of which ends with the first empty line, and bodies of chunks; a body of a known
    length is cut off as it is.  So requests that were sent together wait as bytes.

    Most clients send the same headers with every request of a connection.  Those are parsed once.

    :ivar buffer: received bytes that are not read yet.
    :ivar unread: bytes of the request that are still to be read; None if that is unknown.
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
        """Begin a request, or return None while its head was not received completely.

        :raises ApiError: 400, 414 or 431, it is not valid or exceeds a limit; then nothing more can be read.
        """
        self.unread = None
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
        received = buffer[line_end : end + 4]
        if received != self._last_received:
            self._read_headers(received)
        headers, length, closes = self._last_headers
        self.unread = length
        self.buffer = buffer[end + 4 :]
        method, target, minor = line.groups()
        return Head(method.decode("ascii"), target, int(minor), headers, length, closes or minor == b"0")

    def _read_headers(self, received: bytes) -> None:
        """Read headers, and keep them where the next request may have the same."""
        self._last_received = b""
        headers = self._parsed_headers(_LINE_FOR_LLHTTP + received)
        length = _body_length(headers)
        connection = headers.get("connection", "").lower()
        self._last_headers = headers, length, "close" in re.split(r"[, \t]+", connection)
        if length is None:
            self._read = self._framing = 0
            self._tail = b""
        elif len(received) <= _LONGEST_COMPARED:
            self._last_received = received

    def _parsed_headers(self, received: bytes) -> Headers:
        message, headers = self._message, Headers()
        message.headers, message.complete = headers, False
        self._llhttp = HttpRequestParser(message)
        try:
            self._llhttp.feed_data(received)
        except HttpParserUpgrade:
            # The request stays one of HTTP/1.1; llhttp would leave its body to the other protocol.
            return self._parsed_headers(_UPGRADE.sub(b"", received))
        except HttpParserError:
            raise _invalid_http() from None
        message.headers = None
        return headers

    def read_body(self) -> bytes:
        """Return the part of the body that came since the last call; raises ``ApiError`` if it is invalid."""
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
        if self._framing > _LONGEST_HEADERS + _MAX_FRAMING * self._read:
            raise _invalid_http()
        if message.complete:
            self.unread = 0
        return body

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
        return Head(method, target, 1, Headers(), None, closes=True)


def _check_limits(received: bytes) -> None:
    """Raise the error for a head, or the part of one, that exceeds a limit."""
    line, _, headers = received.partition(b"\r\n")
    if len(line) > _LONGEST_LINE:
        raise target_too_long()
    lines = headers.split(b"\r\n")
    if len(max(lines, key=len)) > _LONGEST_HEADER:
        raise _too_large(f"A header of the request is longer than {_LONGEST_HEADER} bytes")
    if len(lines) > _MAX_HEADERS + 1:
        raise _too_large(f"The request has more than {_MAX_HEADERS} headers")
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


# ---------------------------------------------------------------- targets


class RequestTarget(NamedTuple):
    """Where a request goes.

    :ivar host: the host name or address, with its port if there is one; None without a ``Host``.
    :ivar path: as sent, still percent-encoded.
    """

    host: str | None
    path: bytes
    query: str


def parse_target(target: bytes, host: str | None, minor: int) -> RequestTarget:
    """Read the target of a request line together with the ``Host`` header (RFC 9112 section 3).

    :param host: the header's value, ``", "`` between those of repeated ones.
    :param minor: the minor version of HTTP/1, 0 or 1.
    :raises ApiError: 400, they are malformed or contradict each other; 414, the target is too long.
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
    found = _HOST.fullmatch(value) if len(value) <= _LONGEST_HOST else None
    return found is not None and int(found["port"] or 0) <= 65_535


def _bad_request(message: str) -> ApiError:
    return ApiError(400, "BAD_REQUEST", message)
