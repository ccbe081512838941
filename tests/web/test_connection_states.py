"""A state machine test: all connections end and release their resources."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.clocks import FOR_EVER
from support.memory_http import PROJECT, Web, raw, typename
from support.pumped_reactor import PumpedReactor
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from dataapi.auth.caller import Caller

MAX_CONNECTIONS = 4
MAX_BODIES = 100_000
REFUSED = 64
"""Number of connections above the limit that get a 503 response."""
HEADER_TIMEOUT = 10.0
REQUEST_TIMEOUT = 20.0
TIMEOUT = 60.0
"""Timeout of idle connections, and of clients that do not read, in seconds."""

GET = raw("GET", "/rest/v1/note")
WAITING = raw("GET", "/rest/v1/note?wait")
LARGE = raw("GET", "/rest/v1/note?large")
TARGET = "/rest/v1/note"
POST = raw("POST", TARGET, headers=[("Content-Length", "30000"), ("Content-Type", "application/json")])
CHUNKED = raw("POST", TARGET, headers=[("Transfer-Encoding", "chunked")])

UNREADABLE = {
    "no HTTP": b"BAD\r\n\r\n",
    "201 headers": raw("GET", TARGET, headers=[(f"X-{n}", "x") for n in range(201)]),
    "a long header": raw("GET", TARGET, headers=[("X-Long", "x" * 40_000)]),
    "a long target": raw("GET", f"{TARGET}?x={'x' * 140_000}"),
    "a chunk without a length": CHUNKED + b"x\r\n",
}

PIECES = {
    "a request": GET,
    "two requests": GET + GET,
    "an HTTP/1.0 request": GET.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "the last request": raw("GET", TARGET, headers=[("Connection", "close")]),
    "a request without a key": raw("GET", TARGET, key=None),
    "a request that waits": WAITING,
    "three requests that wait": WAITING * 3,
    "a large response": LARGE,
    "three large responses": LARGE * 3,
    "a stream": raw("GET", "/rest/v1/note?stream"),
    "a whole body": POST + b"x" * 30_000,
    "the head of a body": POST,
    "the head of a body with Expect": POST.replace(b"Host", b"Expect: 100-continue\r\nHost"),
    "a body that is too large": raw("POST", TARGET, headers=[("Content-Length", "90000")]),
    "a body without a key": raw("POST", TARGET, headers=[("Content-Length", "9000")], key=None),
    "a part of a body": b"x" * 5000,
    "a large part of a body": b"x" * 20_000,
    "chunks": CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",
    "the head of chunks": CHUNKED,
    "a chunk": b"5\r\nhello\r\n",
    "the last chunk": b"0\r\n\r\n",
    "partial head": GET[:30],
    "a byte": b"G",
    "a line end": b"\r\n",
    "an upgrade": raw("GET", TARGET, headers=[("Connection", "Upgrade"), ("Upgrade", "websocket")]),
    **UNREADABLE,
}


class Notes:
    """A handler whose responses the test controls."""

    def __init__(self) -> None:
        self.waiting: list[Deferred[Reply]] = []

    async def respond(self, request: Request, _caller: Caller) -> Reply:
        """Respond as the query string specifies."""
        if request.query == "wait":
            return await self.wait()
        if request.query == "stream":
            return Reply(200, (), b"", stream=self._pieces())
        return Reply(200, (), b"x" * (300_000 if request.query == "large" else 5))

    async def wait(self) -> Reply:
        waiting: Deferred[Reply] = Deferred()
        self.waiting.append(waiting)
        try:
            return await waiting
        finally:
            self.waiting.remove(waiting)

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        yield b"first"
        yield (await self.wait()).body
        yield b"x" * 100_000


class Server:
    """A site on real sockets with a simulated clock."""

    def __init__(self, **limits: Any) -> None:
        self.reactor = PumpedReactor()
        self.notes = Notes()
        project = replace(PROJECT, max_body=50_000, request_timeout=REQUEST_TIMEOUT)
        self.web = Web(
            typename,
            self.notes.respond,
            project,
            clock=self.reactor,
            **{
                "max_connections": MAX_CONNECTIONS,
                "max_bodies": MAX_BODIES,
                **limits,
            },
        )
        self.site: Any = self.web.site
        self._clients: list[socket.socket] = []

    def connect(self, data: bytes = b"", host: str = "127.0.0.1") -> socket.socket:
        """Connect a client and send data."""
        client = self.reactor.connect(self.site, host)
        self._clients.append(client)
        self.send(client, data)
        return client

    def send(self, client: socket.socket, data: bytes) -> None:
        """Send data until the server closes the connection."""
        with contextlib.suppress(OSError):
            while data:
                data = data[client.send(data) :]
                self.reactor.run()
        self.reactor.run()

    def read(self, client: socket.socket) -> bytes:
        received = b""
        with contextlib.suppress(OSError):
            while piece := client.recv(65_536):
                received += piece
                self.reactor.run()
        return received

    def half_close(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
        self.reactor.run()

    def disconnect(self, client: socket.socket, *, reset: bool = False) -> None:
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        self.reactor.run()

    def pass_time_until_empty(self, limit: float) -> None:
        """Advance the clock until no connections and requests are left, but at most ``limit`` seconds."""
        end = self.reactor.seconds() + limit
        while (self.site.connections or self.site.in_flight) and self.reactor.seconds() < end:
            self.reactor.pass_time(0.5)

    def assert_all_released(self) -> None:
        """Check that all resources have been released, and the maximum number of clients can be served."""
        assert not self.site.connections
        assert self.site.in_flight == 0
        assert self.site.bodies.free == MAX_BODIES
        assert self.reactor.watched == 0
        assert self.reactor.getDelayedCalls() == []
        if not self.site.draining:
            clients = [self.connect(GET) for _ in range(MAX_CONNECTIONS)]
            assert all(self.read(client).startswith(b"HTTP/1.1 200 ") for client in clients)
            assert len(self.site.connections) == MAX_CONNECTIONS

    def close(self) -> None:
        """Close all clients and cancel all requests."""
        for client in self._clients:
            client.close()
        self.reactor.run()
        for waiting in list(self.notes.waiting):
            waiting.cancel()
        self.pass_time_until_empty(TIMEOUT)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class ConnectionMachine(RuleBasedStateMachine):
    """Clients that perform arbitrary actions in any order, and a server that responds at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptors = open_descriptors()
        self.server = Server()
        self.clients: list[socket.socket] = []

    def _client(self, number: int) -> socket.socket:
        return self.clients[number % len(self.clients)]

    @rule()
    def connect(self) -> None:
        self.clients.append(self.server.connect())

    @rule(piece=st.sampled_from(sorted(PIECES)))
    def connect_and_send(self, piece: str) -> None:
        self.clients.append(self.server.connect(PIECES[piece]))

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9), piece=st.sampled_from(sorted(PIECES)))
    def send(self, number: int, piece: str) -> None:
        self.server.send(self._client(number), PIECES[piece])

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9), data=st.binary(max_size=40))
    def send_anything(self, number: int, data: bytes) -> None:
        self.server.send(self._client(number), data)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9))
    def read(self, number: int) -> None:
        """Read from one client. Clients do not read otherwise."""
        self.server.read(self._client(number))

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9))
    def half_close(self, number: int) -> None:
        self.server.half_close(self._client(number))

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9), reset=st.booleans())
    def disconnect(self, number: int, reset: bool) -> None:
        self.server.disconnect(self.clients.pop(number % len(self.clients)), reset=reset)

    @precondition(lambda self: self.server.notes.waiting)
    @rule(number=st.integers(0, 9), outcome=st.sampled_from(["small", "large", "refused", "failed"]))
    def respond(self, number: int, outcome: str) -> None:
        """Respond to a waiting request."""
        waiting = self.server.notes.waiting[number % len(self.server.notes.waiting)]
        if outcome == "refused":
            waiting.errback(ApiError(409, "23505", "There is one"))
        elif outcome == "failed":
            waiting.errback(ZeroDivisionError())
        else:
            waiting.callback(Reply(200, (), b"x" * (200_000 if outcome == "large" else 3)))
        self.server.reactor.run()

    @rule(seconds=st.sampled_from([0.3, 1.5, 11.0, 25.0]))
    def wait(self, seconds: float) -> None:
        self.server.reactor.pass_time(seconds)

    @invariant()
    def stays_within_limits(self) -> None:
        """Check the limits of connections and bodies, and the count of waiting requests."""
        site = self.server.site
        assert len(site.connections) <= MAX_CONNECTIONS + REFUSED
        assert 0 <= site.bodies.free <= MAX_BODIES
        assert site.in_flight >= len(self.server.notes.waiting)

    def teardown(self) -> None:
        """Disconnect all clients, or drain the server while the clients read."""
        if len(self.clients) % 2:
            self._drain()
        for client in self.clients:
            self.server.disconnect(client)
        self.server.pass_time_until_empty(REQUEST_TIMEOUT + TIMEOUT)
        self.server.assert_all_released()
        self.server.close()
        assert open_descriptors() == self.descriptors

    def _drain(self) -> None:
        """Check that complete requests get responses, and other connections are closed after a second."""
        server = self.server
        drained = server.site.drain(1000.0)
        server.reactor.pass_time(1.0)
        for _ in range(20):  # pipelined responses are sent one after another
            while server.notes.waiting:
                server.notes.waiting[0].callback(Reply(200, (), b"answer"))
                server.reactor.run()
            for client in self.clients:
                server.read(client)
        server.reactor.pass_time(1.0)
        assert drained.called


TestConnectionMachine = pytest.mark.filterwarnings("ignore::ResourceWarning")(ConnectionMachine.TestCase)
TestConnectionMachine.settings = settings(stateful_step_count=20)


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a server."""
    server = Server()
    yield server
    server.close()


def is_closed(client: socket.socket) -> bool:
    """Return whether the server has closed a connection. Unread data is discarded."""
    try:
        while client.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("unreadable", UNREADABLE)
@pytest.mark.parametrize("earlier", [b"", GET, GET + GET])
def test_connection_closed_after_an_error_releases_its_slot(
    server: Server, earlier: bytes, unreadable: str
) -> None:
    for _ in range(2 * MAX_CONNECTIONS):
        client = server.connect(earlier)
        server.read(client)
        server.send(client, UNREADABLE[unreadable])
        assert server.read(client).startswith(b"HTTP/1.1 4")
        server.disconnect(client)
        assert not server.site.connections
    server.assert_all_released()


def test_client_that_stays_open_after_an_error_is_disconnected(server: Server) -> None:
    client = server.connect(GET + b"BAD\r\n\r\n")
    assert b"HTTP/1.1 400 " in server.read(client)
    server.reactor.pass_time(29)
    assert len(server.site.connections) == 1
    server.reactor.pass_time(2)
    assert not server.site.connections


UNFINISHED = {
    "nothing": b"",
    "partial head": GET[:30],
    "partial body": POST + b"x",
    "nothing after a request": GET,
    "partial head after a request": GET + GET[:30],
    "an invalid request": b"BAD\r\n\r\n",
}


@pytest.mark.parametrize("sent", UNFINISHED)
def test_connections_without_complete_requests_are_evicted(server: Server, sent: str) -> None:
    silent = [server.connect(UNFINISHED[sent]) for _ in range(MAX_CONNECTIONS)]
    for client in silent:
        server.read(client)
    for _ in range(2 * MAX_CONNECTIONS):
        server.reactor.pass_time(0.3)
        assert server.read(server.connect(GET)).startswith(b"HTTP/1.1 200 ")
        assert len(server.site.connections) == MAX_CONNECTIONS


def test_oldest_connection_without_a_request_is_evicted_first(server: Server) -> None:
    server.connect(WAITING)
    server.connect(WAITING)
    first = server.connect(GET[:30])
    server.reactor.pass_time(0.2)
    second = server.connect()
    assert b" 503 " in server.read(server.connect(GET))
    server.reactor.pass_time(0.1)
    assert b" 200 " in server.read(server.connect(GET))
    assert (is_closed(first), is_closed(second)) == (True, False)


def test_evicted_client_gets_an_error_response(server: Server) -> None:
    unfinished = [server.connect(POST + b"x") for _ in range(MAX_CONNECTIONS)]
    server.reactor.pass_time(0.3)
    server.connect(GET)
    assert b"TOO_MANY_CONNECTIONS" in server.read(unfinished[0])
    assert is_closed(unfinished[0])


def test_busy_connections_are_not_evicted(server: Server) -> None:
    """All other clients have complete requests or are reading responses."""
    busy = [server.connect(WAITING if number else LARGE) for number in range(MAX_CONNECTIONS)]
    assert b" 503 " in server.read(server.connect(GET))
    server.reactor.pass_time(1.5)
    assert b" 503 " in server.read(server.connect(GET))
    while server.notes.waiting:
        server.notes.waiting[0].callback(Reply(200, (), b"answer"))
        server.reactor.run()
    assert all(server.read(client).startswith(b"HTTP/1.1 200 ") for client in busy)


def test_excess_silent_connections_are_evicted(server: Server) -> None:
    for _ in range(MAX_CONNECTIONS):
        server.connect(WAITING)
    silent = [server.connect() for _ in range(REFUSED)]
    server.reactor.pass_time(0.3)
    silent += [server.connect() for _ in range(10)]
    assert b" 503 " in server.read(server.connect(GET))
    assert sum(map(is_closed, silent)) == 11
    assert len(server.site.connections) <= MAX_CONNECTIONS + REFUSED


def test_one_address_can_use_half_of_the_connections() -> None:
    server = Server(trusted_proxies=("10.0.0.0/8",))
    for _ in range(2):
        server.connect(WAITING, "192.0.2.1")
    assert b" 503 " in server.read(server.connect(GET, "192.0.2.1"))
    assert b" 200 " in server.read(server.connect(GET, "192.0.2.2"))
    server.close()
    server = Server(trusted_proxies=("10.0.0.0/8",))
    for _ in range(3):
        server.connect(WAITING, "10.1.2.3")
    assert b" 200 " in server.read(server.connect(GET, "10.1.2.3"))
    server.close()


def test_address_at_its_limit_evicts_its_own_connections() -> None:
    server = Server(max_connections_per_address=3, trusted_proxies=())
    others = server.connect(GET, "192.0.2.2")
    own = [server.connect(GET, "192.0.2.1") for _ in range(3)]
    server.reactor.pass_time(1.5)
    for client in (others, *own):
        server.read(client)
    assert b" 200 " in server.read(server.connect(GET, "192.0.2.1"))
    assert [is_closed(client) for client in (others, *own)] == [False, True, False, False]
    server.close()


@pytest.mark.parametrize("sent", UNFINISHED)
def test_drain_waits_one_second_for_incomplete_requests(server: Server, sent: str) -> None:
    waiting = server.connect(WAITING)
    unfinished = server.connect(UNFINISHED[sent])
    server.read(unfinished)
    drained = server.site.drain(1000.0)
    server.reactor.pass_time(1.0)
    assert is_closed(unfinished)
    server.reactor.pass_time(15)
    assert not drained.called
    server.notes.waiting[0].callback(Reply(200, (), b"answer"))
    server.reactor.run()
    assert server.read(waiting).endswith(b"answer")
    server.reactor.pass_time(1.0)
    assert drained.called


def test_request_completed_within_a_second_of_drain_is_served(server: Server) -> None:
    client = server.connect(GET[:30])
    drained = server.site.drain(1000.0)
    server.reactor.pass_time(0.8)
    server.send(client, GET[30:])
    assert b"HTTP/1.1 200 " in (respond := server.read(client))
    assert b"\r\nConnection: close\r\n" in respond
    server.reactor.pass_time(1.0)
    assert drained.called


def test_drain_delivers_unread_responses(server: Server) -> None:
    client = server.connect(WAITING)
    server.notes.waiting[0].callback(Reply(200, (), b"x" * 14_000 + b"the end"))
    server.reactor.run()
    drained = server.site.drain(1000.0)
    server.reactor.pass_time(3.0)
    assert drained.called
    client.settimeout(FOR_EVER)
    assert b"".join(iter(lambda: client.recv(65_536), b"")).endswith(b"the end")


def test_address_at_its_limit_does_not_affect_others() -> None:
    server = Server(max_connections=100, max_connections_per_address=2, trusted_proxies=())
    for _ in range(2 + REFUSED):
        server.connect(WAITING, "192.0.2.1")
    assert b" 200 " in server.read(server.connect(GET, "192.0.2.2"))
    server.close()


def test_trusted_proxy_is_recognized_on_dual_stack_sockets() -> None:
    """Dual-stack sockets report IPv4 addresses as IPv4-mapped IPv6 addresses."""
    server = Server(trusted_proxies=("10.0.0.0/8",))
    for _ in range(3):
        server.connect(WAITING, "::ffff:10.1.2.3")
    assert b" 200 " in server.read(server.connect(GET, "::ffff:10.1.2.3"))
    server.close()
