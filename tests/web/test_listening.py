"""Binding sockets and accepting connections, on real sockets."""

from __future__ import annotations

import errno
import gc
import os
import select
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dataapi.http.messages import Reply, Request
from dataapi.service.sockets import Acceptor, ConnectionShare, StartFailed, accept, bind, make_counts
from dataapi.testing import free_port
from dataapi.web.app import make_site
from support.certificates import make_certificate
from support.daemon import PATIENCE
from support.memory_http import Web, raw
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock, deferLater
from twisted.internet.threads import deferToThread


class Greeter(Protocol):
    """Sends a greeting and disconnects."""

    def connectionMade(self) -> None:  # noqa: N802 - Protocol
        assert self.transport is not None
        self.transport.write(b"hello")
        self.transport.loseConnection()


def greeter() -> Factory:
    return Factory.forProtocol(Greeter)


def received(stream: socket.socket) -> bytes:
    """Read until the peer closes the connection."""
    data = b""
    while piece := stream.recv(100_000):
        data += piece
    return data


def greeting(port: int, host: str = "127.0.0.1") -> bytes:
    with socket.create_connection((host, port), timeout=PATIENCE) as stream:
        return received(stream)


async def test_connections_wait_until_they_are_accepted(reactor: Any) -> None:
    port = free_port()
    [bound] = bind(reactor, [f"tcp:{port}:interface=127.0.0.1"])
    waiting = deferToThread(greeting, port)
    accepting = accept(reactor, bound.as_descriptor, greeter())
    assert await waiting == b"hello"
    accepting.stop()
    await bound.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


# Older versions of Twisted leave the unbound socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["tcp", "tcp6"])
async def test_replacement_can_listen_on_the_same_port(reactor: Any, kind: str) -> None:
    """Both sockets use ``server-reuseport``, so the remaining socket serves the client."""
    port = free_port()
    endpoint = f"tcp:{port}:interface=127.0.0.1" if kind == "tcp" else rf"tcp6:{port}:interface=\:\:1"
    [old] = bind(reactor, [endpoint], reuse_port=True)
    [new] = bind(reactor, [endpoint], reuse_port=True)
    with pytest.raises(StartFailed, match="in use"):
        bind(reactor, [endpoint])
    await old.close()
    accepting = accept(reactor, new.as_descriptor, greeter())
    host = "127.0.0.1" if kind == "tcp" else "::1"
    assert await deferToThread(greeting, port, host) == b"hello"
    accepting.stop()
    await new.close()
    gc.collect()


async def test_drain_accepts_existing_connections_before_closing(reactor: Any) -> None:
    clock = Clock()
    [bound] = bind(reactor, [f"tcp:{free_port()}:interface=127.0.0.1"])
    listening = bound.port.socket
    with (
        socket.create_connection(listening.getsockname()) as early,
        socket.socket() as late,
    ):
        emptied = Deferred.fromCoroutine(bound.drain(clock))
        late.setblocking(False)
        assert late.connect_ex(listening.getsockname()) == errno.EINPROGRESS
        clock.advance(1)
        clock.advance(1)
        assert not emptied.called
        accepted, address = listening.accept()
        with accepted:
            assert address == early.getsockname()
            early.sendall(b"hello")
            accepted.settimeout(PATIENCE)
            assert accepted.recv(5) == b"hello"
        clock.advance(1)
        assert emptied.called
        assert select.select([], [late], [], 0)[1] == []
    await bound.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_accepted_connection_does_not_inherit_packet_filter(reactor: Any, host: str) -> None:
    """Connections that are completed while the listening socket drops packets inherit its socket options."""
    [bound] = bind(reactor, [f"tcp:{free_port()}:interface={host.replace(':', chr(92) + ':')}"])
    options = [(socket.IPPROTO_IP, 21)]
    if host == "::1":
        options.append((socket.IPPROTO_IPV6, 73))
    for level, option in options:
        bound.port.socket.setsockopt(level, option, 1)
    opened: Deferred[Any] = Deferred()

    class Accepted(Protocol):
        def connectionMade(self) -> None:  # noqa: N802 - Protocol
            opened.callback(self.transport)

    accepting = accept(reactor, bound.as_descriptor, Factory.forProtocol(Accepted))
    with socket.create_connection((host, bound.port.socket.getsockname()[1])):
        transport = await opened
        assert all(transport.socket.getsockopt(level, option) == 0 for level, option in options)
        transport.loseConnection()
    accepting.stop()
    await bound.close()


async def test_unix_socket_has_the_mode_of_its_endpoint(reactor: Any, tmp_path: Path) -> None:
    """The endpoint's mode corresponds to PostgREST's setting ``server-unix-socket-mode``."""
    path = tmp_path / "http.sock"
    [bound] = bind(reactor, [f"unix:{path}:mode=640"])
    assert path.stat().st_mode & 0o777 == 0o640
    await bound.close()


async def test_200_connections_can_wait_to_be_accepted(reactor: Any) -> None:
    port = free_port()
    [bound] = bind(reactor, [f"tcp:{port}:interface=127.0.0.1"])

    def crowd() -> int:
        waiting = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(200)]
        for stream in waiting:
            stream.close()
        return len(waiting)

    assert await deferToThread(crowd) == 200
    await bound.close()


class Counter(Factory):
    """Counts connections and reports their number."""

    protocol = Protocol
    report: Callable[[int], object]

    def __init__(self) -> None:
        self.made = 0

    def buildProtocol(self, addr: Any) -> Any:  # noqa: N802 - IFactory
        self.made += 1
        self.report(self.made)
        return super().buildProtocol(addr)


async def test_simultaneous_connections_are_spread_over_workers(reactor: Any) -> None:
    port = free_port()
    [bound] = bind(reactor, [f"tcp:{port}:interface=127.0.0.1"])
    opened = await deferToThread(
        lambda: [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(16)]
    )
    counters, counts = [Counter(), Counter()], make_counts(2)
    shares = [ConnectionShare(counts, 2, worker) for worker in range(2)]
    accepting = [
        accept(reactor, replace(bound.as_descriptor, share=share), counter)
        for share, counter in zip(shares, counters, strict=True)
    ]
    while sum(counter.made for counter in counters) < 16:
        await deferLater(reactor, 0.01)
    for one in accepting:
        one.stop()
    for stream in opened:
        stream.close()
    await bound.close()
    os.close(counts)
    assert min(counter.made for counter in counters) >= 7


class Watcher(Clock):
    """A fake reactor that only records readers."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[object] = set()
        self.addReader = self.readers.add
        self.removeReader = self.readers.discard


class Site:
    """A fake site that counts its connections and reports their number."""

    report: Callable[[int], object]

    def __init__(self) -> None:
        self.made = 0

    def doStart(self) -> None:  # noqa: N802 - IFactory
        """Do nothing."""

    doStop = doStart  # noqa: N815

    def opened(self) -> None:
        self.made += 1
        self.report(self.made)


class WorkerReactor(Watcher):
    """A fake reactor of a worker."""

    def adoptStreamConnection(self, _descriptor: int, _family: object, site: Site) -> None:  # noqa: N802
        site.opened()


async def test_least_loaded_worker_accepts_first(reactor: Any) -> None:
    port = free_port()
    [bound] = bind(reactor, [f"tcp:{port}:interface=127.0.0.1"])
    opened = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(7)]
    counts = make_counts(2)
    machines, sites = (WorkerReactor(), WorkerReactor()), (Site(), Site())
    first, second = (
        accept(machine, replace(bound.as_descriptor, share=ConnectionShare(counts, 2, worker)), site)
        for worker, (machine, site) in enumerate(zip(machines, sites, strict=True))
    )
    first.doRead()
    assert [site.made for site in sites] == [1, 0]
    assert machines[0].readers == set()
    second.doRead()
    assert [site.made for site in sites] == [1, 2]
    machines[1].advance(1)
    assert [site.made for site in sites] == [1, 3]
    assert machines[1].readers == {second}
    machines[0].advance(1)
    assert [site.made for site in sites] == [2, 3]
    second.stop()
    sites[1].report(0)
    first.doRead()
    assert [site.made for site in sites] == [4, 3]
    first.stop()
    for stream in opened:
        stream.close()
    await bound.close()
    os.close(counts)


async def test_accepting_pauses_without_free_file_descriptors(reactor: Any) -> None:
    """A pause of a second avoids a busy loop while the process has no free file descriptors."""
    [bound] = bind(reactor, [f"tcp:{free_port()}:interface=127.0.0.1"])
    watcher = Watcher()
    acceptor = Acceptor(watcher, bound.as_descriptor.descriptor, greeter())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acceptor, "_socket", Exhausted(acceptor._socket))
        acceptor.doRead()
        assert watcher.readers == set()
        watcher.advance(1)
        assert watcher.readers == {acceptor}
        acceptor.doRead()
    acceptor.stop()
    assert watcher.getDelayedCalls() == []
    await bound.close()


class Exhausted:
    """A socket in a process without free file descriptors."""

    def __init__(self, real: socket.socket) -> None:
        self.fileno = real.fileno

    def accept(self) -> None:
        raise OSError(errno.EMFILE, "Too many open files")


# Older versions of Twisted leave the unbound socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_port_in_use_is_reported(reactor: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        endpoint = f"tcp:{other.getsockname()[1]}:interface=127.0.0.1"
        advice = "change listen or admin-listen"
        with pytest.raises(StartFailed, match=rf"cannot listen on {endpoint}: .*in use.*{advice}"):
            bind(reactor, [endpoint])
    gc.collect()


@pytest.mark.parametrize(("passed", "named"), [(None, "none"), ("admin:other", "admin, other")])
async def test_missing_service_manager_socket_is_reported(
    reactor: Any, monkeypatch: pytest.MonkeyPatch, passed: str | None, named: str
) -> None:
    if passed is not None:
        monkeypatch.setenv("LISTEN_FDNAMES", passed)
    with pytest.raises(StartFailed, match=f"name=http: the service manager .* .available: {named}.$"):
        bind(reactor, ["systemd:domain=INET:name=http"])


async def test_invalid_endpoint_is_reported(reactor: Any) -> None:
    with pytest.raises(StartFailed, match="cannot listen on nonsense:1"):
        bind(reactor, ["nonsense:1"])


async def test_unix_socket_path_is_removed_when_the_socket_is_closed(reactor: Any, tmp_path: Path) -> None:
    path = tmp_path / "api"
    [bound] = bind(reactor, [f"unix:{path}"])
    accepting = accept(reactor, bound.as_descriptor, greeter())

    def greeted() -> bytes:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(10)
            stream.connect(str(path))
            return received(stream)

    assert await deferToThread(greeted) == b"hello"
    accepting.stop()
    assert path.exists()
    again = accept(reactor, bound.as_descriptor, greeter())
    assert await deferToThread(greeted) == b"hello"
    again.stop()
    await bound.close()
    assert not path.exists()


def secure(port: int, certificate: Path) -> ssl.SSLSocket:
    """Connect to a TLS server with this certificate."""
    context = ssl.create_default_context(cafile=str(certificate))
    stream = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    return context.wrap_socket(stream, server_hostname="localhost")


@pytest.mark.filterwarnings(
    "ignore:Passing pyOpenSSL:DeprecationWarning"
)  # Twisted passes pyOpenSSL objects itself
async def test_tls_endpoint_serves_its_certificate(reactor: Any, tmp_path: Path) -> None:
    """The socket is bound first and served later."""
    certificate = make_certificate(tmp_path)
    port = free_port()
    [bound] = bind(reactor, [f"ssl:{port}:interface=127.0.0.1:privateKey={certificate}"])
    accepting = accept(reactor, bound.as_descriptor, greeter())

    def greeted() -> bytes:
        with secure(port, certificate) as stream:
            return received(stream)

    assert await deferToThread(greeted) == b"hello"
    accepting.stop()
    await bound.close()


@pytest.mark.filterwarnings(
    "ignore:Passing pyOpenSSL:DeprecationWarning"
)  # Twisted passes pyOpenSSL objects itself
async def test_pipelined_tls_responses_arrive_complete_and_in_order(reactor: Any, tmp_path: Path) -> None:
    """The client pipelines requests and reads the responses late."""

    async def repeat(request: Request, _caller: Any) -> Reply:
        letter, _, count = request.query.partition("=")
        return Reply(200, (), letter.encode() * int(count))

    web = Web(rest=repeat)
    site = make_site(web.backends, reactor, web.served.append)
    certificate = make_certificate(tmp_path)
    port = free_port()
    [bound] = bind(reactor, [f"ssl:{port}:interface=127.0.0.1:privateKey={certificate}"])
    accepting = accept(reactor, bound.as_descriptor, site)
    sizes = {"a": 5_000_000, "b": 3, "c": 5_000_000, "d": 4}

    def exchange() -> bytes:
        with secure(port, certificate) as stream:
            for letter, count in sizes.items():
                last = [("Connection", "close")] if letter == "d" else []
                stream.sendall(raw("GET", f"/rest/v1/blog?{letter}={count}", headers=last))
            return received(stream)

    rest = await deferToThread(exchange)
    for letter, count in sizes.items():
        head, _, rest = rest.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        body, rest = rest[:count], rest[count:]
        assert body == letter.encode() * count
    assert rest == b""
    accepting.stop()
    await bound.close()
    await site.drain(5)
    assert not site.connections
