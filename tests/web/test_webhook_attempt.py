"""Delivery attempts over real sockets (docs/reference/webhooks.md, Attempts)."""

from __future__ import annotations

import gzip
import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import pytest
from dataapi.http.outgoing_tls import OutgoingTls
from dataapi.webhooks.delivery.attempt import AttemptSender
from dataapi.webhooks.delivery.destinations import networks, parse
from dataapi.webhooks.delivery.headers import sign
from dataapi.webhooks.delivery.http_client import ReceiverConnections
from dataapi.webhooks.delivery.resolver import AddressCheck
from dataapi.webhooks.model import AttemptError, AttemptOutcome
from support.receiver import OK, SECRET, Names, Received, Receiver, Timed, World, attempt, pause
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IPullProducer
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogEvent
from zope.interface import implementer


def hang_up(request: Received) -> None:
    transport: Any = request.connection.transport
    transport.loseConnection()


def never_respond(_request: Received) -> None:
    """Never respond."""


@implementer(IPullProducer)
class Endless:
    """Writes the same bytes until the connection is closed."""

    def __init__(self, request: Received, chunk: bytes) -> None:
        transport: Any = request.connection.transport
        self._transport = transport
        self._chunk = chunk
        transport.registerProducer(self, False)

    def resumeProducing(self) -> None:  # noqa: N802 - twisted's name
        """Write another chunk."""
        self._transport.write(self._chunk)

    def stopProducing(self) -> None:  # noqa: N802 - twisted's name
        """Do nothing, because the transport no longer calls ``resumeProducing``."""


def pour(head: bytes, chunk: bytes) -> Callable[[Received], None]:
    """Return a response that consists of a head and an endless repetition of the same bytes."""

    def response(request: Received) -> None:
        request.connection.write(head)
        Endless(request, chunk)

    return response


async def timed_out(
    sender: AttemptSender, clock: Clock, port: int, until: Callable[[], bool]
) -> AttemptOutcome:
    """Start an attempt, wait until ``until`` returns true, and let 20 seconds pass. Return the outcome."""
    result = Deferred.fromCoroutine(sender.send(attempt(port)))
    while not until():
        assert not result.called
        await pause()
    clock.advance(19.9)
    assert not result.called
    clock.advance(0.1)
    return await result


@pytest.fixture
def receiver() -> Receiver:
    """Return a receiver that responds with 200 by default."""
    return Receiver()


async def test_delivery_is_one_signed_post_of_the_exact_body(world: World, receiver: Receiver) -> None:
    port = world.listen(receiver)
    outcome = await world.sender().send(attempt(port, "/hooks?a=%20b", custom_headers=(("X-Team", "blue"),)))
    assert outcome.success
    assert (outcome.response_code, outcome.response_body, outcome.error) == (200, "ok", None)
    assert outcome.signed_at.timestamp() == 1_614_265_330.9
    [request] = receiver.received
    assert request.line == "POST /hooks?a=%20b HTTP/1.1"
    assert request.body == b'{"a": 1}'
    assert request.headers == {
        "host": f"hooks.example.com:{port}",
        "content-length": "8",
        "content-type": "application/json",
        "accept-encoding": "identity",
        "user-agent": "dataapi-webhooks/1",
        "x-team": "blue",
        "webhook-id": "evt",
        "webhook-timestamp": "1614265330",
        "webhook-signature": sign(SECRET, "evt", 1_614_265_330, request.body),
    }


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("", "/"),
        ("?", "/?"),
        ("/a?", "/a?"),
        ("/a;", "/a;"),
        ("//a//b", "//a//b"),
        ("//[::1", "//%5B::1"),
        ("//b@c:d?e[f]=g", "//b@c:d?e[f]=g"),
        ("/../%2e", "/../%2e"),
    ],
)
async def test_path_and_query_are_sent_unchanged(
    world: World, receiver: Receiver, path: str, sent: str
) -> None:
    """Only brackets are encoded, because RFC 3986 forbids them in a path."""
    outcome = await world.sender().send(attempt(world.listen(receiver), path))
    assert outcome.success
    assert receiver.received[0].line == f"POST {sent} HTTP/1.1"


async def test_connections_are_reused(world: World, receiver: Receiver) -> None:
    port = world.listen(receiver)
    sender = world.sender()
    for _ in range(3):
        assert (await sender.send(attempt(port))).success
    assert len(receiver.received) == 3
    assert len(receiver.connections) == 1


async def test_idle_connection_closed_on_request_fails_the_attempt(world: World, receiver: Receiver) -> None:
    """The POST is not repeated, because the receiver may have processed the event."""
    port = world.listen(receiver)
    sender = world.sender()
    assert (await sender.send(attempt(port))).success
    receiver.answer = hang_up
    outcome = await sender.send(attempt(port, event_id="once"))
    assert (outcome.response_code, outcome.error) == (0, AttemptError.CONNECT)
    assert [request.headers["webhook-id"] for request in receiver.received] == ["evt", "once"]
    assert len(receiver.connections) == 1
    receiver.sends(OK)
    assert (await sender.send(attempt(port))).success
    assert len(receiver.connections) == 2


def close(handle: socket.socket) -> None:
    """Close the sending side, like a receiver that closes idle connections."""
    handle.shutdown(socket.SHUT_WR)


def send_unsolicited(handle: socket.socket) -> None:
    handle.sendall(OK)


@pytest.mark.parametrize("does", [close, send_unsolicited])
async def test_stale_idle_connection_is_detected_before_use(
    world: World, receiver: Receiver, does: Callable[[socket.socket], None]
) -> None:
    """The reactor has not yet processed the receiver's data, but the attempt uses a new connection."""
    port = world.listen(receiver)
    sender = world.sender()
    assert (await sender.send(attempt(port))).success
    transport: Any = receiver.connections[0].transport
    does(transport.getHandle())
    outcome = await sender.send(attempt(port, event_id="once"))
    assert outcome.success
    assert [request.headers["webhook-id"] for request in receiver.received] == ["evt", "once"]
    assert len(receiver.connections) == 2
    assert receiver.received[1].connection is receiver.connections[1]


async def test_connection_closed_while_idle_fails_no_attempt(world: World, receiver: Receiver) -> None:
    port = world.listen(receiver)
    sender = world.sender()
    for expected in (1, 2, 3):
        assert (await sender.send(attempt(port))).success
        assert len(receiver.received) == len(receiver.connections) == expected
        transport: Any = receiver.connections[-1].transport
        transport.loseConnection()
        await receiver.connections[-1].lost
        await pause()


async def test_close_without_a_response_fails_with_connect(world: World, receiver: Receiver) -> None:
    receiver.answer = hang_up
    outcome = await world.sender().send(attempt(world.listen(receiver)))
    assert (outcome.response_code, outcome.response_body, outcome.error) == (0, None, AttemptError.CONNECT)
    assert len(receiver.received) == 1


async def test_closed_port_fails_with_connect(world: World) -> None:
    assert (await world.sender().send(attempt(1))).error is AttemptError.CONNECT


async def test_response_delimited_by_close_is_complete(world: World, receiver: Receiver) -> None:
    receiver.sends(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it", close=True)
    sender = world.sender()
    port = world.listen(receiver)
    for _ in range(2):
        outcome = await sender.send(attempt(port))
        assert (outcome.success, outcome.response_body) == (True, "all of it")
    assert len(receiver.connections) == 2


async def test_switching_protocols_fails_with_protocol(
    world: World, receiver: Receiver, failures: list[LogEvent]
) -> None:
    receiver.sends(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
    outcome = await world.sender().send(attempt(world.listen(receiver)))
    assert (outcome.response_code, outcome.error) == (0, AttemptError.PROTOCOL)
    await receiver.connections[0].lost
    assert failures == []


async def test_truncated_response_fails_with_protocol(world: World, receiver: Receiver) -> None:
    receiver.sends(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", close=True)
    outcome = await world.sender().send(attempt(world.listen(receiver)))
    assert (outcome.response_code, outcome.response_body, outcome.error) == (
        200,
        "half",
        AttemptError.PROTOCOL,
    )
    assert not outcome.success


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_not_followed_and_is_a_failure(
    world: World, receiver: Receiver, status: int
) -> None:
    other = Receiver()
    target_port = world.listen(other)
    receiver.sends(
        f"HTTP/1.1 {status} Away\r\nLocation: http://hooks.example.com:{target_port}/\r\n"
        "Content-Length: 0\r\n\r\n".encode()
    )
    outcome = await world.sender().send(attempt(world.listen(receiver)))
    assert (outcome.response_code, outcome.success, outcome.error) == (status, False, None)
    assert ("location", f"http://hooks.example.com:{target_port}/") in outcome.response_headers
    assert other.received == []


@pytest.mark.parametrize(
    ("status", "succeeded"), [(200, True), (201, True), (204, True), (299, True), (400, False), (500, False)]
)
async def test_only_2xx_is_a_success(world: World, receiver: Receiver, status: int, succeeded: bool) -> None:
    receiver.sends(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())
    outcome = await world.sender().send(attempt(world.listen(receiver)))
    assert (outcome.response_code, outcome.success, outcome.error) == (status, succeeded, None)


async def test_interim_responses_are_ignored(world: World, receiver: Receiver) -> None:
    receiver.sends(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK)
    outcome = await world.sender().send(attempt(world.listen(receiver)))
    assert (outcome.response_code, outcome.response_body) == (200, "ok")
    assert outcome.response_headers == ()


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"220 mail.example.com ESMTP\r\n\r\n",
        b"RTSP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 -5 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 1000 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 abc Odd\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"\x15\x03\x01\x00\x02\x02\x28\n\n",
    ],
)
async def test_invalid_http_fails_with_protocol(world: World, receiver: Receiver, answer: bytes) -> None:
    receiver.sends(answer)
    outcome = await world.sender().send(attempt(world.listen(receiver)))
    assert outcome.error is AttemptError.PROTOCOL
    await receiver.connections[0].lost


async def test_endless_body_is_truncated_and_the_attempt_succeeds(world: World, receiver: Receiver) -> None:
    """The receiver has responded, so the connection is closed after 16 KiB."""
    receiver.answer = pour(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 10_000)
    outcome = await world.sender().send(attempt(world.listen(receiver)))
    assert outcome.success
    assert outcome.response_body == "x" * 16_384
    await receiver.connections[0].lost


async def test_compressed_body_is_stored_unchanged(world: World, receiver: Receiver) -> None:
    packed = gzip.compress(b"0" * 1_000_000)
    receiver.sends(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
    )
    outcome = await world.sender().send(attempt(world.listen(receiver)))
    assert outcome.response_body is not None
    assert len(outcome.response_body) <= len(packed)
    assert ("content-encoding", "gzip") in outcome.response_headers


@pytest.mark.parametrize(
    ("head", "chunk"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"x" * 1_000 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Folded: a\r\n", b" " + b"x" * 1_000 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 10_000),
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 100),
        (b"", b"x" * 10_000),
    ],
    ids=["many", "folded", "one long line", "interim responses", "status line"],
)
async def test_endless_headers_fail_with_protocol(
    world: World, receiver: Receiver, head: bytes, chunk: bytes
) -> None:
    receiver.answer = pour(head, chunk)
    outcome = await world.sender().send(attempt(world.listen(receiver)))
    assert outcome.error is AttemptError.PROTOCOL
    assert (outcome.response_code, outcome.response_headers) == (0, ())
    await receiver.connections[0].lost


async def test_number_of_stored_headers_is_limited(world: World, receiver: Receiver) -> None:
    many = b"".join(b"X-%d: %s\r\n" % (number, b"v" * 100) for number in range(300))
    receiver.sends(b"HTTP/1.1 200 OK\r\n" + many + b"Content-Length: 0\r\n\r\n")
    outcome = await world.sender().send(attempt(world.listen(receiver)))
    assert outcome.success
    assert len(outcome.response_headers) == 64
    assert outcome.response_headers[0] == ("x-0", "v" * 100)


async def test_stored_response_is_valid_text(world: World, receiver: Receiver) -> None:
    """NUL and invalid characters are replaced. A character that the limit truncates is omitted."""
    body = b"\0\xff" + "é".encode() * 10_000
    receiver.sends(b"HTTP/1.1 200 OK\r\nX-A: \xe9\0\r\nX-A: 2\r\n\r\n" + body, close=True)
    outcome = await world.sender().send(attempt(world.listen(receiver)))
    assert outcome.response_body == "\ufffd\ufffd" + "é" * 8_191
    assert outcome.response_headers == (("x-a", "é\ufffd, 2"),)


async def test_unsolicited_response_is_not_used_for_the_next_request(
    world: World, receiver: Receiver
) -> None:
    port = world.listen(receiver)
    sender = world.sender()
    assert (await sender.send(attempt(port))).success
    receiver.connections[0].write(b"HTTP/1.1 500 Old\r\nContent-Length: 0\r\n\r\n")
    await receiver.connections[0].lost
    assert (await sender.send(attempt(port))).success


async def test_unresponsive_receiver_times_out(world: World, receiver: Receiver) -> None:
    receiver.answer = never_respond
    port, clock = world.listen(receiver), Clock()
    outcome = await timed_out(
        world.sender(clock=clock, timeout=20.0), clock, port, lambda: bool(receiver.received)
    )
    assert (outcome.error, outcome.response_code, outcome.duration_ms) == (AttemptError.TIMEOUT, 0, 20_000)
    await receiver.connections[0].lost


async def test_slow_headers_time_out(world: World, receiver: Receiver) -> None:
    receiver.sends(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    port, clock = world.listen(receiver), Clock()
    outcome = await timed_out(
        world.sender(clock=clock, timeout=20.0), clock, port, lambda: bool(receiver.received)
    )
    assert (outcome.error, outcome.response_code) == (AttemptError.TIMEOUT, 0)
    await receiver.connections[0].lost


async def test_slow_body_times_out_despite_a_2xx_status(world: World, receiver: Receiver) -> None:
    receiver.sends(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nslow")
    port, clock = world.listen(receiver), Clock()
    sender = world.sender(clock=clock, timeout=20.0)
    result = Deferred.fromCoroutine(sender.send(attempt(port)))
    while not receiver.received:
        await pause()
    await pause(0.05)
    clock.advance(20)
    outcome = await result
    assert not outcome.success
    assert (outcome.error, outcome.response_code) == (AttemptError.TIMEOUT, 200)
    assert outcome.response_body == "slow"
    await receiver.connections[0].lost


async def test_delayed_process_sends_nothing_after_the_deadline(world: World, receiver: Receiver) -> None:
    """Another process may already repeat the attempt when the delayed process has connected."""
    port, clock = world.listen(receiver), Clock()

    class SlowResolver:
        async def addresses(self, _name: str) -> Any:
            clock.rightNow += 20
            return [ipaddress.ip_address("127.0.0.1")]

    outcome = await world.sender(SlowResolver(), clock=clock, timeout=20.0).send(attempt(port))
    assert (outcome.success, outcome.error, outcome.response_code) == (False, AttemptError.TIMEOUT, 0)
    await receiver.connections[0].lost
    assert receiver.received == []


async def test_unresponsive_name_server_times_out(world: World) -> None:
    clock, names = Clock(), []

    class Silent:
        async def addresses(self, name: str) -> Any:
            names.append(name)
            await Deferred()

    sender = world.sender(Silent(), clock=clock, timeout=20.0)
    assert (await timed_out(sender, clock, 80, lambda: bool(names))).error is AttemptError.TIMEOUT


async def test_cancelling_closes_the_connection(world: World, receiver: Receiver) -> None:
    receiver.answer = never_respond
    result = Deferred.fromCoroutine(world.sender().send(attempt(world.listen(receiver))))
    while not receiver.received:
        await pause()
    result.cancel()
    with pytest.raises(CancelledError):
        await result
    await receiver.connections[0].lost


async def test_cancellation_and_deadline_end_a_connection_attempt() -> None:
    address_check = AddressCheck(Names(["93.184.215.14"]))
    for seconds, cancel in ((0.0, True), (20.0, False)):
        reactor = MemoryReactorClock()
        result = Deferred.fromCoroutine(
            AttemptSender(reactor, address_check, reactor.seconds).send(attempt(80))
        )
        assert len(reactor.connectors) == 1
        reactor.advance(seconds)
        if cancel:
            result.cancel()
            with pytest.raises(CancelledError):
                await result
        else:
            assert (await result).error is AttemptError.TIMEOUT
        assert reactor.connectors[0].stoppedConnecting
        assert reactor.getDelayedCalls() == []


async def test_internal_error_is_raised(world: World) -> None:
    class Broken:
        async def addresses(self, name: str) -> Any:
            raise RuntimeError(f"a mistake about {name}")

    with pytest.raises(RuntimeError, match=r"a mistake about hooks\.example\.com"):
        await world.sender(Broken()).send(attempt(80))


async def test_cookies_are_not_stored(world: World, receiver: Receiver) -> None:
    """Otherwise, the cookie of one receiver would be sent to other receivers at the same host."""
    receiver.sends(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n")
    sender, port = world.sender(), world.listen(receiver)
    await sender.send(attempt(port))
    await sender.send(attempt(port))
    assert all("cookie" not in request.headers for request in receiver.received)


async def test_proxies_of_the_environment_are_not_used(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Receiver()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{world.listen(proxy)}")
    assert (await world.sender().send(attempt(world.listen(receiver)))).success
    assert proxy.received == []


async def test_url_forbidden_by_new_rules_fails_with_refused_address(world: World) -> None:
    """``require-https`` and ``allow-addresses`` can change after an endpoint has been created."""
    sender = world.sender(require_https=True)
    assert (await sender.send(attempt(80))).error is AttemptError.REFUSED_ADDRESS


async def test_receiver_that_does_not_read_the_event_times_out(world: World) -> None:
    receiver = Receiver(reads=False)
    port, clock = world.listen(receiver), Clock()
    sender = world.sender(clock=clock, timeout=20.0)
    result = Deferred.fromCoroutine(sender.send(attempt(port, body=b"x" * 20_000_000)))
    while not receiver.connections:
        await pause()
    clock.advance(20)
    outcome = await result
    assert (outcome.error, outcome.response_code) == (AttemptError.TIMEOUT, 0)
    transport: Any = receiver.connections[0].transport
    transport.resumeProducing()
    await receiver.connections[0].lost
    assert receiver.received == []


async def test_connections_are_closed_when_idle_for_15_seconds(
    reactor: Any, world: World, receiver: Receiver
) -> None:
    port, clock = world.listen(receiver), Clock()
    address_check = AddressCheck(Names(["127.0.0.1"]), networks(["127.0.0.0/8"]))
    sender = AttemptSender(Timed(reactor, clock), address_check, clock.seconds)  # type: ignore[arg-type]
    for _ in range(3):
        clock.advance(14)
        assert (await sender.send(attempt(port))).success
    assert len(receiver.connections) == 1
    clock.advance(15)
    await receiver.connections[0].lost
    assert clock.getDelayedCalls() == []
    assert (await sender.send(attempt(port))).success
    assert len(receiver.connections) == 2
    sender.close()


async def test_number_of_idle_connections_is_limited(reactor: Any, world: World, receiver: Receiver) -> None:
    connections = ReceiverConnections(reactor, OutgoingTls(), max_idle=2)
    target = parse(f"http://hooks.example.com:{world.listen(receiver)}/")
    addresses = [ipaddress.ip_address("127.0.0.1")]
    opened = [await connections.get(target, addresses) for _ in range(3)]
    for connection in opened:
        connections.release(connection)
    await receiver.connections[0].lost
    assert await connections.get(target, addresses) is opened[2]
    assert await connections.get(target, addresses) is opened[1]
    assert await connections.get(target, addresses) not in opened
    connections.close()
