"""Incremental parser for responses from receivers (RFC 9112). The size of recorded bodies is limited."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

import httptools

MAX_HEAD = 65_536
"""Maximum size of status line and headers in bytes, including 1xx responses."""

MAX_BODY = 16_384
"""Maximum size of a recorded body in bytes. If the body is longer, the connection is closed."""

MAX_RECORDED_HEADERS = 64
MAX_RECORDED_HEADER_BYTES = 16_384

_REPLACEMENT = "\ufffd"
_NO_BODY = (204, 304)
_CONNECTION_HEADERS = frozenset(
    b"connection content-length keep-alive proxy-connection te trailers transfer-encoding upgrade".split()
)
"""Connection and framing headers. They are not recorded."""


class NoResponse(Exception):
    """Raised when the connection was lost before a response began."""


class NotHttp(Exception):
    """Raised when the response is not valid HTTP or is incomplete."""


class Response:
    """A response that is being received. The code is 0 until the head is complete.

    :ivar headers: raw values by lower-case name.
    :ivar body: at most ``MAX_BODY + 1`` bytes.
    :ivar reusable: whether the connection can be used for another request.
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
        # Some receivers send folded headers, control characters in values, and bare line feeds.
        self._parser.set_dangerous_leniencies(lenient_headers=True, lenient_optional_cr_before_lf=True)

    @property
    def is_finished(self) -> bool:
        return self.complete or len(self.body) > MAX_BODY

    def feed(self, data: bytes) -> None:
        if self.is_finished:
            self.reusable = False
            return
        if not self._began and data[:1] not in b"H":
            # The parser would also accept RTSP.
            raise NotHttp("The response does not begin with an HTTP status line")
        self._began = True
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.is_finished:
                if isinstance(error, httptools.HttpParserUpgrade):
                    raise NotHttp("The response switches to another protocol") from None
                if isinstance(error.__context__, NotHttp):
                    raise error.__context__ from None
                raise NotHttp(f"The response is not HTTP: {error}") from error
            self.reusable = False
        if self._size > MAX_HEAD and not self.is_finished:
            raise NotHttp("The headers of the response are too large")

    def end(self) -> None:
        """Handle the end of the connection. Raises ``NoResponse`` or ``NotHttp`` if data is missing."""
        if not self._began:
            raise NoResponse("The connection was lost before a response began")
        if not self._ends_with_connection:
            raise NotHttp("The response is incomplete")
        self.complete = True

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.code:  # a trailer
            self._size += len(name) + len(value)
        else:
            self._fields.setdefault(name.lower(), []).append(value.strip())

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        code = self._parser.get_status_code()
        headers, self._fields = self._fields, {}
        if not 100 <= code <= 999:
            raise NotHttp("The response has no valid status code")
        if code < 200:
            return
        coding = headers.get(b"transfer-encoding")
        if coding is not None and [value.lower() for value in coding] != [b"chunked"]:
            raise NotHttp("The response has an unknown transfer encoding")
        self._size = 0
        self._ends_with_connection = (
            coding is None and b"content-length" not in headers and code not in _NO_BODY
        )
        self.code = code
        self.headers = {name: values for name, values in headers.items() if name not in _CONNECTION_HEADERS}
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
        self.complete = self.code != 0


def body_text(body: bytes) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return storable(decoder.decode(body[:MAX_BODY], final=len(body) <= MAX_BODY))


def header_texts(headers: Iterable[tuple[bytes, Iterable[bytes]]]) -> tuple[tuple[str, str], ...]:
    """Return lower-case names and values up to the limits. Repeated headers are joined with ``", "``."""
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
    """Replace characters that PostgreSQL cannot store: NUL and lone surrogates."""
    return text.replace("\0", _REPLACEMENT).encode("utf-8", "replace").decode()
