"""HTTP parsing is compared with twisted.web's parser and tested against request smuggling."""

from __future__ import annotations

import io
import itertools
import re
from typing import Any, NamedTuple

import pytest
from dataapi.http.errors import ApiError
from dataapi.web.server.parser import RequestParser
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.testing import StringTransport
from twisted.web import http


class Parsed(NamedTuple):
    """A parsed request."""

    method: str
    target: bytes
    minor: int
    headers: dict[str, str]
    body: bytes


class Outcome(NamedTuple):
    """The requests in a byte string, and whether the remaining bytes were rejected.

    :ivar skipping: whether several empty lines precede a request.
    """

    requests: list[Parsed]
    refused: bool
    skipping: bool = False


def ours(*pieces: bytes) -> Outcome:
    """Parse requests like a connection that responds to each request immediately."""
    parser, skipping = RequestParser(), False
    found: list[Parsed] = []
    head, body = None, b""
    for piece in pieces:
        parser.buffer += piece
        while parser.buffer:
            try:
                if head is None:
                    skipping = skipping or parser.buffer.startswith(b"\r\n\r\n")
                    head, body = parser.read_head(), b""
                    if head is None:
                        break
                else:
                    body += parser.read_body()
            except ApiError:
                return Outcome(found, True, skipping)
            if parser.unread == 0:
                headers = {name: value for name, value in head.headers.items() if name != "upgrade"}
                found.append(Parsed(head.method, head.target, head.minor, headers, body))
                if head.closes:
                    return Outcome(found, False, skipping)
                head = None
    return Outcome(found, False, skipping)


class Recorded(http.Request):
    """A request that is completed immediately."""

    def gotLength(self, length: int | None) -> None:  # noqa: ARG002, N802 - twisted's name
        """Store the body in memory, even if its declared length is large."""
        self.content = io.BytesIO()

    def parseCookies(self) -> None:  # noqa: N802 - twisted's name
        """Leave cookies in the headers."""

    def process(self) -> None:
        headers = {
            name.decode("latin-1").lower(): ("; " if name == b"Cookie" else ", ").join(map(text, values))
            for name, values in self.requestHeaders.getAllRawHeaders()
        }
        channel: Any = self.channel
        content: Any = self.content
        method, minor = self.method.decode("latin-1"), int(self.clientproto[-1:])
        headers.pop("upgrade", None)
        channel.found.append(Parsed(method, self.uri, minor, headers, content.read()))
        self.finish()


def text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


class Reference(http.HTTPChannel):
    """The parser of twisted.web."""

    requestFactory = Recorded  # noqa: N815 - twisted's name
    found: list[Parsed]


def theirs(*pieces: bytes) -> Outcome:
    """Parse requests with twisted.web."""
    channel, transport = Reference(), StringTransport()
    channel.found = []
    channel.makeConnection(transport)
    for piece in pieces:
        if not transport.disconnecting:
            channel.dataReceived(piece)
    return Outcome(channel.found, b"HTTP/1.1 400" in transport.value())


class Difference(NamedTuple):
    """Bytes that twisted.web accepts as a request but our parser rejects, and the reason."""

    pattern: bytes
    reason: str


CHUNKED = rb"(?i)\r\ntransfer-encoding:[ \t]*chunked(?s:.*)"

DIFFERENCES = [
    Difference(rb"\r(?!\n)|(?<!\r)\n|\0", "Older versions of twisted.web treat these bytes as spaces."),
    Difference(rb"\r\n[ \t]", "A header of several lines is obsolete (RFC 9112 section 5.2)."),
    Difference(rb"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]", "Headers contain no controls (RFC 9110 section 5.5)."),
    Difference(rb"(?i)\r\ntransfer-encoding:[ \t]*identity", "``identity`` is no longer a transfer coding."),
    Difference(rb"[\x7f-\xb0]", "A target is printable ASCII (RFC 3986)."),
    Difference(rb"(?i)\r\ncontent-length:[ \t]*[0-9]+[ \t]", "Older versions of llhttp reject this space."),
    Difference(rb"(?i)\r\ncontent-length:[ \t]*[0-9]{20}", "llhttp counts with 64 bits."),
    Difference(
        rb"(?i)\r\nconnection:.*close", "twisted.web finds ``close`` only in a first header without commas."
    ),
    Difference(CHUNKED + rb"\r\n[^\r\n]+\r\n\r\n", "twisted.web accepts any text as a trailer."),
    Difference(CHUNKED + rb";", "Chunk extensions must be valid (RFC 9112 section 7.1.1)."),
]


def unexplained(data: bytes, mine: Outcome, other: Outcome) -> str:
    """Describe a difference that ``DIFFERENCES`` does not explain, or return an empty string."""
    if mine.requests == other.requests:
        return ""
    fewer, more = sorted((mine.requests, other.requests), key=len)
    if more[: len(fewer)] != fewer:
        return "a request is understood differently"
    if fewer is mine.requests:
        known = any(re.search(each.pattern, data) for each in DIFFERENCES)
        return "" if known else "ours is stricter"
    # RFC 9112 section 2.2 requires skipping at least one empty line. twisted.web skips one, we skip all.
    return "" if mine.skipping else "ours is more lenient"


METHODS = ["GET", "POST", "HEAD", "OPTIONS", "get", "BREW", "CONNECT", "PRI", "SOURCE", "G(T", ""]
TARGETS = ["/a", "/a?b=c", "*", "http://a/b", "a:80", "/\xe9", "/\x80", "/a b", "", "/a\tb", "/\x7f", "/#"]
VERSIONS = ["HTTP/1.1"] * 6 + [
    "HTTP/1.0",
    "HTTP/0.9",
    "HTTP/2.0",
    "HTTP/1.2",
    "http/1.1",
    "",
    "RTSP/1.0",
    "HTTP/1.1 ",
]
NAMES = [
    "Host",
    "A",
    "a",
    "Cookie",
    "Connection",
    "Content-Length",
    "Transfer-Encoding",
    "Upgrade",
    "Trailer",
    "Expect",
]
NAMES += ["Content-Length ", "Content_Length", "", " A", "A\t", "TE", "\xe9", "X-\x00"]
VALUES = [
    "a",
    "",
    " b ",
    "close",
    "keep-alive",
    "keep-alive, Upgrade",
    "foo,close",
    "h2c",
    "100-continue",
    "\xe9",
    "a\x01",
]
VALUES += ["a\x00", "a\tb", "a\r\n b", "a\rb", "a\nB: c", ",", "chunked", "Chunked", "chunked\t", "identity"]
VALUES += [
    "gzip, chunked",
    "chunked, gzip",
    "chunked,",
    "xchunked",
    "\x0bchunked",
    '"chunked"',
    "close close",
]
VALUES += ["0", "1", "5", "05", "+5", "-5", "5, 5", "5 5", "0x5", "5;", "9" * 19, "9" * 25, "1" + "0" * 40]
BODIES = [
    "",
    "x",
    "12345",
    "GET /b HTTP/1.1\r\n\r\n",
    "0\r\n\r\n",
    "5\r\n12345\r\n0\r\n\r\n",
    "1;a=b\r\nx\r\n0\r\n\r\n",
]
BODIES += [
    "1 \r\nx\r\n0\r\n\r\n",
    "1\nx\n0\n\n",
    "1\r\nx0\r\n\r\n",
    "0x1\r\nx\r\n0\r\n\r\n",
    "-1\r\nx\r\n0\r\n\r\n",
]
BODIES += [
    "0001\r\nx\r\n000\r\n\r\n",
    "A\r\n0123456789\r\n0\r\nA: b\r\n\r\n",
    "0\r\nContent-Length: 5\r\n\r\n",
]
BODIES += [
    "0\r\nno colon\r\n\r\n",
    "ffffffffffffffffff\r\nx",
    "1;\x01\r\nx\r\n0\r\n\r\n",
    "1;a\nb\r\nx\r\n0\r\n\r\n",
    "\r\n0\r\n\r\n",
]
ENDS = ["\r\n"] * 12 + ["\n", "\r", "\r\r\n", "\r\n\r\n"]
MAIN = ["Content-Length: 5", "Transfer-Encoding: chunked", "Connection: close", "Host: a"]


@st.composite
def messages(draw: st.DrawFn) -> list[bytes]:
    """Generate valid and almost valid requests with shared headers, as on a persistent connection."""
    space = draw(st.sampled_from([" "] * 12 + ["  ", "\t"]))
    field = st.builds(lambda name, value: f"{name}: {value}", st.sampled_from(NAMES), st.sampled_from(VALUES))
    fields = draw(st.lists(st.sampled_from(MAIN) | field, max_size=4))
    line_end, *ends = [draw(st.sampled_from(ENDS)) for _ in (*fields, "", "")]
    headers = "".join(map("".join, zip((*fields, ""), ends, strict=True)))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        line = space.join(draw(st.sampled_from(each)) for each in (METHODS, TARGETS, VERSIONS))
        found.append(f"{line}{line_end}{headers}{draw(st.sampled_from(BODIES))}".encode("latin-1"))
    return found


CONVERSATIONS = st.lists(messages(), min_size=1, max_size=3).map(lambda parts: list(itertools.chain(*parts)))

PLAIN = b"GET /last HTTP/1.1\r\nHost: a\r\n\r\n"


@given(CONVERSATIONS.map(lambda parts: b"".join(parts) + PLAIN))
def test_parser_agrees_with_twisted_web(data: bytes) -> None:
    mine, other = ours(data), theirs(data)
    assert not unexplained(data, mine, other), f"{data!r}\nours: {mine}\ntheirs: {other}"


@given(CONVERSATIONS, st.lists(st.integers(0, 300), max_size=6))
def test_result_does_not_depend_on_how_bytes_are_split(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts) + PLAIN
    offsets = [0, *sorted(cuts), len(data)]
    pieces = [data[begin:end] for begin, end in itertools.pairwise(offsets)]
    assert ours(*pieces)[:2] == ours(data)[:2]
    assert ours(*(data[n : n + 1] for n in range(len(data))))[:2] == ours(data)[:2]


POST = "POST /a HTTP/1.1\r\nHost: a\r\n"
CHUNKS = POST + "Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length: \xb2",
        "Content-Length:",
        "Content-Length : 5",
        "Content-Length\t: 5",
        " Content-Length: 5",
        "Content-Length: 18446744073709551617",
        "Content-Length: " + "0" * 31,
        "A: b\r\n Content-Length: 5",
        "A: b\r\n\tContent-Length: 5",
        "Content-Length: 5\r\n 6",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: \x0bchunked",
        'Transfer-Encoding: "chunked"',
        "Transfer-Encoding:",
        "Transfer-Encoding:\r\nContent-Length: 5",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "A: b\nContent-Length: 5",
        "A: b\rContent-Length: 5",
        "A: b\0c",
        "A: b\x01c",
        "A b: c",
        "A\xe9: c",
        ": a",
        "A",
    ],
)
def test_ambiguous_head_is_rejected(head: str) -> None:
    data = f"{POST}{head}\r\n\r\n12345".encode("latin-1") + PLAIN
    assert ours(data)[:2] == ([], True)


@pytest.mark.parametrize(
    "line",
    [
        "GET /a",
        "GET /a HTTP/0.9",
        "GET /a HTTP/1.2",
        "GET /a HTTP/1.10",
        "GET /a HTTP/2.0",
        "GET /a http/1.1",
        "GET /a RTSP/1.0",
        "GET /a HTTP/1.1 ",
        " GET /a HTTP/1.1",
        "GET  /a HTTP/1.1",
        "GET\t/a HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET /a\tb HTTP/1.1",
        "GET /\xe9 HTTP/1.1",
        "GET /a\nHost:b HTTP/1.1",
        "GET /a\rHost:b HTTP/1.1",
        "G(T /a HTTP/1.1",
        "/a HTTP/1.1",
        "PRI * HTTP/2.0",
    ],
)
def test_ambiguous_request_line_is_rejected(line: str) -> None:
    assert ours(f"{line}\r\nHost: a\r\n\r\n".encode("latin-1") + PLAIN)[:2] == ([], True)


@pytest.mark.parametrize(
    "body",
    [
        "5 \r\n12345\r\n0\r\n\r\n",
        " 5\r\n12345\r\n0\r\n\r\n",
        "5\n12345\r\n0\r\n\r\n",
        "5\r12345\r\n0\r\n\r\n",
        "5\r\n12345\n0\r\n\r\n",
        "5\r\n123450\r\n\r\n",
        "5\r\n123456\r\n0\r\n\r\n",
        "0x5\r\n12345\r\n0\r\n\r\n",
        "+5\r\n12345\r\n0\r\n\r\n",
        "-5\r\n12345\r\n0\r\n\r\n",
        "\r\n12345\r\n0\r\n\r\n",
        "5;a=\nb\r\n12345\r\n0\r\n\r\n",
        "5;a=\x01\r\n12345\r\n0\r\n\r\n",
        "10000000000000005\r\n12345\r\n0\r\n\r\n",
        "0\r\nno colon\r\n\r\n",
        "0\r\nA: b\nC: d\r\n\r\n",
        "0\r\n A: b\r\n\r\n",
        "5;" + "a" * 70_000 + "\r\n12345\r\n0\r\n\r\n",
        "0\r\nA: " + "a" * 70_000 + "\r\n\r\n",
        "0\r\n" + "A: b\r\n" * 12_000 + "\r\n",
    ],
)
def test_ambiguous_chunks_and_excessive_framing_are_rejected(body: str) -> None:
    assert ours((CHUNKS + body).encode("latin-1") + PLAIN)[:2] == ([], True)


def test_chunk_extensions_and_trailers_are_ignored() -> None:
    body = b'00005;a=b;c="d"\r\n12345\r\nA\r\n0123456789\r\n0;e\r\nHost: b\r\nApikey: c\r\n\r\n'
    requests, refused, _ = ours(CHUNKS.encode() + body + PLAIN)
    assert not refused
    assert [(one.target, one.headers["host"], one.body) for one in requests] == [
        (b"/a", "a", b"123450123456789"),
        (b"/last", "a", b""),
    ]
    assert "apikey" not in requests[0].headers


def test_body_of_one_byte_chunks_is_accepted() -> None:
    requests, refused, _ = ours(CHUNKS.encode() + b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n")
    assert (len(requests[0].body), refused) == (50_000, False)


@pytest.mark.parametrize("framing", [*MAIN[:2], "Content-Length: 0", "Upgrade: h2c\r\nContent-Length: 5"])
def test_repeated_head_is_parsed_like_the_first(framing: str) -> None:
    head = f"HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n".encode()
    bodies = [b"12345", b"GET /", b"67890"] if framing != "Content-Length: 0" else [b"", b"", b""]
    framed = [b"5\r\n%b\r\n0\r\n\r\n" % body for body in bodies] if "chunked" in framing else bodies
    requests = [b"POST /%d " % number + head + body for number, body in enumerate(framed)]
    for pieces in ([b"".join(requests) + PLAIN], [*requests, PLAIN]):
        found, refused, _ = ours(*pieces)
        assert not refused
        assert [(one.target, one.body) for one in found] == [
            *((b"/%d" % number, body) for number, body in enumerate(bodies)),
            (b"/last", b""),
        ]
        assert [one.headers for one in found[1:3]] == [found[0].headers] * 2


@pytest.mark.parametrize("method", ["GET", "POST", "CONNECT"])
@pytest.mark.parametrize(
    "framing", ["Content-Length: 5\r\n\r\n12345", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n"]
)
def test_protocol_upgrade_is_ignored(method: str, framing: str) -> None:
    """Clients that prefer HTTP/2 first send such a request, whose body is framed as in HTTP/1.1."""
    upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk"
    requests, refused, _ = ours(f"{method} /a HTTP/1.1\r\n{upgrade}\r\n{framing}".encode() + PLAIN)
    assert not refused
    assert [(one.method, one.body) for one in requests] == [(method, b"12345"), ("GET", b"")]


@pytest.mark.parametrize(
    ("version", "header", "persistent"),
    [
        ("1.1", "A: b", True),
        ("1.1", "Connection: keep-alive", True),
        ("1.1", "Connection: closed", True),
        ("1.1", "Connection: Close", False),
        ("1.1", "Connection: a,close", False),
        ("1.1", "Connection: a\r\nConnection: close", False),
        ("1.0", "Connection: keep-alive", False),
    ],
)
def test_data_after_the_last_request_is_ignored(version: str, header: str, persistent: bool) -> None:
    data = f"GET /a HTTP/{version}\r\n{header}\r\n\r\n".encode() + PLAIN
    assert len(ours(data).requests) == 1 + persistent
