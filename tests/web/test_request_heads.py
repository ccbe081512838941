"""Request heads: accepted, ignored and rejected parts, over real sockets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from dataapi.http.errors import ApiError
from dataapi.http.messages import MAX_TARGET_BYTES, Reply, Request
from dataapi.web.server.parser import parse_target
from hypothesis import given
from hypothesis import strategies as st
from support.memory_http import KEY, PROJECT, Web, raw, typename
from support.sockets import served, statuses, talk
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

LAST = ("Connection", "close")


def head(line: str, *headers: str) -> bytes:
    """Return a request head with the API key and ``Connection: close``."""
    return "\r\n".join((line, *headers, "Connection: close", f"apikey: {KEY}", "", "")).encode()


def parsed(response: bytes) -> Any:
    """Return the JSON of the last response."""
    return json.loads(response.rpartition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("Host:",),
        ("Host: a", "Host: a"),
        ("Host: a, b",),
        ("Host: a b",),
        ("Host: a/b",),
        ("Host: user@a",),
        ("Host: a:b",),
        ("Host: a:99999",),
        ("Host: [::1",),
        ("Host: a%zz",),
        ("Host: é",),
        ("Host: " + "a" * 301,),
    ],
)
@pytest.mark.parametrize("line", ["GET /rest/v1/blog HTTP/1.1", "GET http://a/rest/v1/blog HTTP/1.1"])
async def test_request_without_exactly_one_host_returns_400(
    reactor: Any, line: str, headers: tuple[str, ...]
) -> None:
    response = await talk(reactor, Web(), head(line, *headers))
    assert statuses(response) == [400]
    assert "Host header" in parsed(response)["message"]


@pytest.mark.parametrize(
    "host", ["a", "a.example.org:8000", "A.example.org.", "[::1]", "[::1]:80", "127.0.0.1:", "a_b%2Dc"]
)
async def test_host_is_accepted_with_or_without_a_port(reactor: Any, host: str) -> None:
    """RFC 9110 section 7.2 defines the syntax."""
    response = await talk(reactor, Web(), head("GET /rest/v1/blog HTTP/1.1", f"Host: {host}"))
    assert statuses(response) == [200]


async def test_http_1_0_needs_no_host(reactor: Any) -> None:
    assert statuses(await talk(reactor, Web(), head("GET /rest/v1/blog HTTP/1.0"))) == [200]


@pytest.mark.parametrize(
    ("line", "path", "query"),
    [
        ("GET http://one.example.org/rest/v1/blog?id=eq.1 HTTP/1.1", "/rest/v1/blog", "id=eq.1"),
        ("GET HTTPS://one.example.org:443/rest/v1/a%20b HTTP/1.1", "/rest/v1/a b", ""),
    ],
)
async def test_absolute_target_overrides_the_host_header(
    reactor: Any, line: str, path: str, query: str
) -> None:
    """RFC 9112 section 3.2.2 requires servers to ignore ``Host``."""
    first = replace(PROJECT, hosts=("one.example.org",), db_anon_role="of_one")
    second = replace(PROJECT, hosts=("two.example.org",), db_anon_role="of_two")
    targets: list[tuple[str, str]] = []

    async def role(request: Request, caller: Any) -> Reply:
        targets.append((request.path, request.query))
        return Reply(200, (), caller.role.encode())

    response = await talk(reactor, Web(typename, role, first, second), head(line, "Host: two.example.org"))
    assert response.endswith(b"\r\n\r\nof_one")
    assert targets == [(path, query)]


@pytest.mark.parametrize(
    "line",
    [
        "GET rest/v1/blog HTTP/1.1",
        "GET ftp://a/rest/v1/blog HTTP/1.1",
        "GET http:///rest/v1/blog HTTP/1.1",
        "GET http://user@a/rest/v1/blog HTTP/1.1",
        "CONNECT a:443 HTTP/1.1",
    ],
)
async def test_invalid_target_returns_400(reactor: Any, line: str) -> None:
    response = await talk(reactor, Web(), head(line, "Host: a"))
    assert statuses(response) == [400]
    assert parsed(response)["message"] == "The request target is neither a path nor an http URL"


@given(st.binary(max_size=30), st.none() | st.text(max_size=30), st.sampled_from([0, 1]))
def test_any_target_and_host_are_parsed_or_rejected(sent: bytes, host: str | None, minor: int) -> None:
    """An accepted request has a path. Over HTTP/1.1, it also has a host."""
    try:
        found = parse_target(sent, host, minor)
    except ApiError:
        return
    assert found.path[:1] in (b"/", b"*")
    assert found.host or minor == 0


def test_query_string_that_is_not_utf_8_is_rejected() -> None:
    assert parse_target(b"/?a=\xc3\xa9", "a", 1).query == "a=é"
    with pytest.raises(ApiError, match="byte 3"):
        parse_target(b"/?a=\xff", "a", 1)


@pytest.mark.parametrize("empty", [b"\r\n", b"\r\n\r\n", b"\r\n" * 40])
async def test_empty_lines_before_a_request_are_skipped(reactor: Any, empty: bytes) -> None:
    """Some clients send an empty line after a body (RFC 9112 section 2.2)."""
    first, second = raw("POST", "/rest/v1/blog", b"[]"), raw("GET", "/rest/v1/blog", headers=[LAST])
    web = Web()
    response = await talk(reactor, web, empty + first + empty + second)
    assert statuses(response) == [200, 200]
    assert [one[0].body for one in web.rest.received] == [b"[]", b""]


FORMS = {
    "/rest/v1/blog": {"code", "message", "details", "hint"},
    "/graphql/v1": {"errors"},
    "/v2/organizations/acme/webhooks/endpoints": {"error"},
    "/nowhere": {"code", "message", "details", "hint"},
}


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize(
    ("data", "status"),
    [
        ("GET {path}?" + "x" * 300_000 + " HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        ("GET {path} HTTP/1.1\r\nHost: a\r\nA: " + "x" * 300_000 + "\r\n\r\n", 431),
        ("GET {path} HTTP/1.1\r\nHost: a\r\n" + "A: b\r\n" * 300 + "\r\n", 431),
        ("GET {path} HTTP/1.1\r\nHost: a\r\n" + ("A: " + "x" * 30_000 + "\r\n") * 5 + "\r\n", 431),
        ("GET {path} HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400),
    ],
)
async def test_invalid_head_is_rejected_in_the_format_of_the_api(
    reactor: Any, path: str, data: str, status: int
) -> None:
    """The response arrives even if the client sends more than the server reads."""
    web = Web()
    response = await talk(reactor, web, data.replace("{path}", path).encode())
    assert statuses(response) == [status]
    assert set(parsed(response)) == FORMS[path]
    assert b"\r\nX-Request-Id: " in response
    assert [(one.request.path, one.status) for one in web.served] == [(path, status)]


@pytest.mark.parametrize("path", ["/rest/v1/blog", "/graphql/v1"])
async def test_invalid_body_is_rejected_in_the_format_of_the_api(reactor: Any, path: str) -> None:
    data = raw("POST", path, headers=[("Transfer-Encoding", "chunked")]) + b"1\r\n{\r\nzz\r\n"
    response = await talk(reactor, Web(), data)
    assert statuses(response) == [400]
    assert set(parsed(response)) == FORMS[path]


async def test_request_of_maximum_length_is_served(reactor: Any) -> None:
    long = "/rest/v1/blog?id=in.(" + "1" * (MAX_TARGET_BYTES - 22) + ")"
    headers = [LAST, ("Authorization", "Basic " + "x" * 32_000), ("A", "x" * 32_000)]
    assert statuses(await talk(reactor, Web(), raw("GET", long, headers=headers))) == [200]


class Slow:
    """A handler that waits until the test continues it."""

    def __init__(self) -> None:
        self.began: Deferred[None] = Deferred()
        self.ready: Deferred[None] = Deferred()
        self.cancelled = False

    async def __call__(self, *_: Any) -> Reply:
        if not self.began.called:
            self.began.callback(None)
        try:
            await self.ready
        except CancelledError:
            self.cancelled = True
            raise
        return Reply(200, (), b"done")


async def test_client_that_half_closes_gets_all_responses(reactor: Any) -> None:
    slow = Slow()
    async with served(reactor, Web(rest=slow)) as running:
        client = await running.connect(raw("GET", "/rest/v1/blog") * 3)
        client.transport.loseWriteConnection()
        await slow.began
        await deferLater(reactor, 0.05)
        slow.ready.callback(None)
        response = await client.ended
    assert statuses(response) == [200, 200, 200]
    assert response.endswith(b"done")


async def test_client_that_half_closes_gets_a_slow_response(reactor: Any) -> None:
    slow = Slow()
    async with served(reactor, Web(rest=slow)) as running:
        client = await running.connect(raw("GET", "/rest/v1/blog"))
        client.transport.loseWriteConnection()
        await client.wait_for(b"HTTP/1.1 100 Continue\r\n\r\n")
        await deferLater(reactor, 1.2)
        slow.ready.callback(None)
        response = await client.ended
    assert statuses(response) == [100, 200]
    assert b"\r\nConnection: close\r\n" in response
    assert not slow.cancelled


async def test_client_that_half_closes_within_a_request_is_disconnected(reactor: Any) -> None:
    async with served(reactor, Web()) as running:
        client = await running.connect(raw("GET", "/rest/v1/blog")[:-2])
        client.transport.loseWriteConnection()
        assert await client.ended == b""
    assert not running.site.connections
