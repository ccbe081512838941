"""The response to a delivery as it arrives (RFC 9112), read up to what is recorded of it; pure."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

import httptools

MAX_HEAD = 65_536
"""Bytes of status line and headers that a receiver may send for a request, 1xx responses included."""

MAX_BODY = 16_384
"""Bytes of the body that are read and recorded; the connection is dropped when more arrive."""

MAX_RECORDED_HEADERS = 64
MAX_RECORDED_HEADER_BYTES = 16_384

_REPLACEMENT = "\ufffd"
_NO_BODY = (204, 304)
_OF_CONNECTION = frozenset(
    b"connection content-length keep-alive proxy-connection te trailers transfer-encoding upgrade".split()
)
"""Headers about the connection and the message, which are not recorded."""


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
        self._fields: dict[bytes, list[bytes]] = {}
        self._size = 0
        self._ends_with_connection = False
        self._parser = httptools.HttpResponseParser(self)
        # Receivers fold headers, put control characters in them and end lines without a carriage return.
        self._parser.set_dangerous_leniencies(lenient_headers=True, lenient_optional_cr_before_lf=True)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to read."""
        return self.complete or len(self.body) > MAX_BODY

    def feed(self, data: bytes) -> None:
        """Take what arrived; raises ``NotHttp``."""
        if self.over:
            self.reusable = False
            return
        if not self._began and data[:1] not in b"H":
            # The parser reads RTSP, too.
            raise NotHttp("The response does not begin with a status line of HTTP")
        self._began = True
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.over:
                if isinstance(error, httptools.HttpParserUpgrade):
                    raise NotHttp("The response switches to another protocol") from None
                if isinstance(error.__context__, NotHttp):
                    raise error.__context__ from None
                raise NotHttp(f"The response is not HTTP: {error}") from error
            self.reusable = False
        if self._size > MAX_HEAD and not self.over:
            raise NotHttp("The response has too many or too long headers")

    def end(self) -> None:
        """Take the end of the connection; raises ``NoResponse`` or ``NotHttp`` unless it ends the body."""
        if not self._began:
            raise NoResponse("The connection was lost before a response began")
        if not self._ends_with_connection:
            raise NotHttp("The response breaks off")
        self.complete = True

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Begin the response, or another one after it, which was not requested."""
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or one of the trailer, which is not recorded."""
        if self.code:
            self._size += len(name) + len(value)
        else:
            self._fields.setdefault(name.lower(), []).append(value.strip())

    def on_headers_complete(self) -> None:
        """Take the head of the response, or pass over that of a 1xx before it."""
        if self.complete:
            return
        code = self._parser.get_status_code()
        headers, self._fields = self._fields, {}
        if not 100 <= code <= 999:
            raise NotHttp("The response has no valid status code")
        if code < 200:
            return
        coding = headers.get(b"transfer-encoding")
        if coding is not None and [one.lower() for one in coding] != [b"chunked"]:
            raise NotHttp("The response has an unknown transfer encoding")
        self._size = 0
        self._ends_with_connection = (
            coding is None and b"content-length" not in headers and code not in _NO_BODY
        )
        self.code = code
        self.headers = {name: values for name, values in headers.items() if name not in _OF_CONNECTION}
        self.reusable = (
            not self._ends_with_connection
            and self._parser.should_keep_alive()
            and self._parser.get_http_version() == "1.1"
        )

    def on_body(self, body: bytes) -> None:
        self._size = 0
        if not self.complete:
            self.body += body[: MAX_BODY + 1 - len(self.body)]

    def on_message_complete(self) -> None:
        """Take the end of the response, or of a 1xx before it."""
        self.complete = self.code != 0


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
