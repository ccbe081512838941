"""The response to a delivery as it arrives (RFC 9112), read up to what is recorded of it; pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

MAX_HEAD = 65_536
"""Bytes of status line and headers that a receiver may send for a request, 1xx responses included."""

MAX_BODY = 16_384
"""Bytes of the body that are read and recorded; the connection is dropped when more arrive."""

MAX_RECORDED_HEADERS = 64
MAX_RECORDED_HEADER_BYTES = 16_384

_REPLACEMENT = "\ufffd"
_STATUS_LINE = re.compile(rb"HTTP/([0-9]\.[0-9]) ([1-9][0-9][0-9])(?: .*)?", re.DOTALL)
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?", re.DOTALL)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_NO_BODY = (204, 304)
_OF_CONNECTION = frozenset(
    b"connection content-length keep-alive proxy-connection te trailers transfer-encoding upgrade".split()
)
"""Headers about the connection and the message, which are not recorded."""


T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

CHUNKED = -1


class NoResponse(Exception):
    """The connection was lost before a response began."""


class NotHttp(Exception):
    """The receiver's response is not HTTP, or breaks off."""


class Response:
    """A response, of which ``feed`` takes what arrives.

    :ivar code: the status code, 0 before the head is complete.
    :ivar headers: raw names in lower case with their values.
    :ivar body: what is recorded, and one more byte if there is more.
    :ivar complete: whether all of it arrived.
    :ivar reusable: whether another request may follow on the connection.
    """

    def __init__(self) -> None:
        self.code = 0
        self.headers: dict[bytes, list[bytes]] = {}
        self.body = b""
        self.complete = self.reusable = False
        self._began = False
        self._buffer = b""
        self._line_bytes = 0
        self._ends_with_connection = False
        self._parser = self._parse()

    @property
    def over(self) -> bool:
        """Whether there is nothing more to read."""
        return self.complete or len(self.body) > MAX_BODY

    def feed(self, data: bytes) -> None:
        """Take what arrived; raises ``NotHttp``."""
        self._began = True
        self._buffer += data
        if not self.over:
            next(self._parser, None)
        if self.over and self._buffer:
            # Nobody requested what follows a response.
            self.reusable = False

    def end(self) -> None:
        """Take the end of the connection; raises ``NoResponse`` or ``NotHttp`` unless it ends the body."""
        if not self._began:
            raise NoResponse("The connection was lost before a response began")
        if not self._ends_with_connection:
            raise NotHttp("The response breaks off")
        self.complete = True

    def _parse(self) -> Steps[None]:
        """Parse the response; it is over, or more has to arrive, at each ``yield``."""
        version, code = b"", 0
        while code < 200:
            found = _STATUS_LINE.fullmatch((yield from self._line()))
            if found is None:
                raise NotHttp("The response does not begin with a status line of HTTP")
            version, code = found[1], int(found[2])
            headers = yield from self._fields()
        length = _body_length(code, headers)
        self._ends_with_connection = length is None
        self.code = code
        self.headers = {name: values for name, values in headers.items() if name not in _OF_CONNECTION}
        closes = b"close" in b",".join(headers.get(b"connection", ())).lower()
        self.reusable = version >= b"1.1" and length is not None and not closes
        if length == CHUNKED:
            yield from self._chunks()
        else:
            yield from self._piece(length)
            self.complete = True

    def _line(self) -> Steps[bytes]:
        """Read a line."""
        while True:
            line, end, rest = self._buffer.partition(b"\n")
            if self._line_bytes + len(line) > MAX_HEAD:
                raise NotHttp("The response has too many or too long headers")
            if end:
                self._line_bytes += len(line) + 1
                self._buffer = rest
                return line.removesuffix(b"\r")
            yield

    def _fields(self) -> Steps[dict[bytes, list[bytes]]]:
        """Read headers and the empty line after them."""
        headers: dict[bytes, list[bytes]] = {}
        values: list[bytes] = []
        while line := (yield from self._line()):
            name, colon, value = line.partition(b":")
            if line[:1] in b" \t" and values:
                values[-1] += b" " + line.strip()
            elif colon:
                values = headers.setdefault(name.strip().lower(), [])
                values.append(value.strip())
            else:
                raise NotHttp("The response has a header without a colon")
        return headers

    def _chunks(self) -> Steps[None]:
        """Read a body in chunks, and the trailer."""
        size = -1
        while size:
            found = _CHUNK_SIZE.fullmatch((yield from self._line()))
            if found is None:
                raise NotHttp("The response has a chunk without a size")
            self._line_bytes = 0
            size = int(found[1], 16)
            yield from self._piece(size)
            if self.over:
                return
            if size and (yield from self._line()):
                raise NotHttp("The response has a chunk that is longer than its size")
        while (yield from self._line()):
            pass
        self.complete = True

    def _piece(self, left: int | None) -> Steps[None]:
        """Read so many bytes of the body; without end for None."""
        while left != 0:
            piece = self._buffer[:left]
            self._buffer = self._buffer[len(piece) :]
            self.body += piece[: MAX_BODY + 1 - len(self.body)]
            if left is not None:
                left -= len(piece)
            if left != 0:
                yield


def _body_length(code: int, headers: Mapping[bytes, Sequence[bytes]]) -> int | None:
    """Return the length of the body, or ``CHUNKED``; None if the connection ends it (RFC 9112 6.3)."""
    coding = [one.lower() for one in headers.get(b"transfer-encoding", ())]
    lengths = set(headers.get(b"content-length", ()))
    if code in _NO_BODY:
        return 0
    if coding == [b"chunked"]:
        return CHUNKED
    if coding:
        raise NotHttp("The response has an unknown transfer encoding")
    if not lengths:
        return None
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise NotHttp("The response has no valid length")
    return int(length)


def body_text(body: bytes) -> str:
    """Return the recorded part of a body as text; a character that the limit cuts in two is left out."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return storable(decoder.decode(body[:MAX_BODY], final=len(body) <= MAX_BODY))


def header_texts(headers: Iterable[tuple[bytes, Iterable[bytes]]]) -> tuple[tuple[str, str], ...]:
    """Return lower-case names with their values, repeated ones joined by ``", "``, up to the limits."""
    texts: list[tuple[str, str]] = []
    size = 0
    for name, values in headers:
        value = b", ".join(values)
        size += len(name) + len(value)
        if len(texts) == MAX_RECORDED_HEADERS or size > MAX_RECORDED_HEADER_BYTES:
            break
        texts.append((storable(name.decode("latin-1")).lower(), storable(value.decode("latin-1"))))
    return tuple(texts)


def storable(text: str) -> str:
    """Replace what PostgreSQL's text cannot hold: NUL and lone surrogates."""
    return text.replace("\0", _REPLACEMENT).encode("utf-8", "replace").decode()
