"""The response to a delivery as it arrives (RFC 9112), read up to what is recorded of it; pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

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


class NotHttp(Exception):
    """The receiver's response is not HTTP, or breaks off."""


class Response:
    """A response, of which ``feed`` takes what arrives.

    :ivar code: the status code, 0 before the head is complete.
    :ivar headers: raw names in lower case with their values.
    :ivar body: what is recorded, and one more byte if there is more.
    :ivar began: whether anything arrived.
    :ivar complete: whether all of it arrived.
    :ivar reusable: whether another request may follow on the connection.
    """

    def __init__(self) -> None:
        self.code = 0
        self.headers: dict[bytes, list[bytes]] = {}
        self.body = b""
        self.began = self.complete = self.reusable = False
        self._step = self._read_status
        self._buffer = b""
        self._line_bytes = 0
        self._status = b"", 0
        self._fields: list[tuple[bytes, bytes]] = []
        # Bytes of the body or chunk that are still to come; None until the connection ends.
        self._left: int | None = 0

    @property
    def over(self) -> bool:
        """Whether there is nothing more to read."""
        return self.complete or len(self.body) > MAX_BODY

    def feed(self, data: bytes) -> None:
        """Take what arrived; raises ``NotHttp``."""
        self.began = True
        self._buffer += data
        while not self.over and self._step():
            pass
        if self.over and self._buffer:
            # Nobody requested what follows a response.
            self.reusable = False

    def end(self) -> None:
        """Take the end of the connection; raises ``NotHttp`` unless it is that of a body without a length."""
        if self.code == 0 or self._left is not None:
            raise NotHttp("The response breaks off")
        self.complete = True

    def _read_line(self) -> bytes | None:
        """Return the next line, None if it is incomplete."""
        line, end, rest = self._buffer.partition(b"\n")
        if self._line_bytes + len(line) > MAX_HEAD:
            raise NotHttp("The response has too many or too long headers")
        if not end:
            return None
        self._line_bytes += len(line) + 1
        self._buffer = rest
        return line.removesuffix(b"\r")

    def _read_status(self) -> bool:
        line = self._read_line()
        if line is None:
            return False
        found = _STATUS_LINE.fullmatch(line)
        if found is None:
            raise NotHttp("The response does not begin with a status line of HTTP")
        self._status = found[1], int(found[2])
        self._step = self._read_field
        return True

    def _read_field(self) -> bool:
        line = self._read_line()
        if line is None:
            return False
        name, colon, value = line.partition(b":")
        if not line:
            self._end_head()
        elif line[:1] in b" \t" and self._fields:
            folded, value = self._fields.pop()
            self._fields.append((folded, value + b" " + line.strip()))
        elif colon:
            self._fields.append((name.strip().lower(), value.strip()))
        else:
            raise NotHttp("The response has a header without a colon")
        return True

    def _end_head(self) -> None:
        """Find out where the body ends (RFC 9112 6.3)."""
        version, code = self._status
        headers: dict[bytes, list[bytes]] = {}
        for name, value in self._fields:
            headers.setdefault(name, []).append(value)
        self._fields = []
        if code < 200:
            self._step = self._read_status
            return
        coding = [one.lower() for one in headers.get(b"transfer-encoding", ())]
        lengths = set(headers.get(b"content-length", ()))
        self._step = self._read_body
        if code in _NO_BODY:
            self.complete = True
        elif coding == [b"chunked"]:
            self._step = self._read_chunk_size
        elif coding:
            raise NotHttp("The response has an unknown transfer encoding")
        elif lengths:
            length = lengths.pop()
            if lengths or not _LENGTH.fullmatch(length):
                raise NotHttp("The response has no valid length")
            self._left = int(length)
            self.complete = self._left == 0
        else:
            self._left = None
        self.code = code
        self.headers = {name: values for name, values in headers.items() if name not in _OF_CONNECTION}
        closes = b"close" in b",".join(headers.get(b"connection", ())).lower()
        self.reusable = version >= b"1.1" and self._left is not None and not closes

    def _read_body(self) -> bool:
        self._take_piece()
        self.complete = self._left == 0
        return False

    def _take_piece(self) -> None:
        piece = self._buffer[: self._left]
        self._buffer = self._buffer[len(piece) :]
        self.body += piece[: MAX_BODY + 1 - len(self.body)]
        if self._left is not None:
            self._left -= len(piece)

    def _read_chunk_size(self) -> bool:
        line = self._read_line()
        if line is None:
            return False
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            raise NotHttp("The response has a chunk without a size")
        self._line_bytes = 0
        self._left = int(found[1], 16)
        self._step = self._read_chunk if self._left else self._read_trailer
        return True

    def _read_chunk(self) -> bool:
        self._take_piece()
        if self._left == 0:
            self._step = self._read_chunk_end
        return bool(self._buffer)

    def _read_chunk_end(self) -> bool:
        line = self._read_line()
        if line is None:
            return False
        if line:
            raise NotHttp("The response has a chunk that is longer than its size")
        self._step = self._read_chunk_size
        return True

    def _read_trailer(self) -> bool:
        line = self._read_line()
        self.complete = line == b""
        return line is not None


def body_text(body: bytes) -> str:
    """Return the recorded part of a body as text, with invalid UTF-8 replaced.

    A character that the limit cuts in two is left out.
    """
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
