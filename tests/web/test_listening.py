"""Binding and accepting, on real sockets."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from dataapi.service.listening import StartFailed, accept, bind
from support.daemon import free_port
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThread


class Greeter(Protocol):
    """Says hello and hangs up."""

    def connectionMade(self) -> None:  # noqa: N802 - Protocol
        """Say hello."""
        assert self.transport is not None
        self.transport.write(b"hello")
        self.transport.loseConnection()


def greeter() -> Factory:
    """Return a factory of greeters."""
    return Factory.forProtocol(Greeter)


def received(stream: socket.socket) -> bytes:
    """Return all that a peer says."""
    data = b""
    while piece := stream.recv(100):
        data += piece
    return data


def greeting(port: int) -> bytes:
    """Connect and return what is said."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stream:
        return received(stream)


async def test_connections_wait_until_somebody_accepts(reactor: Any) -> None:
    """A bound socket takes connections in at once and serves them once it is accepted from."""
    port = free_port()
    [bound] = bind(reactor, [f"tcp:{port}:interface=127.0.0.1"])
    waiting = deferToThread(greeting, port)
    accepting = accept(reactor, bound.handed, greeter())
    assert await waiting == b"hello"
    await accepting.stop()
    await bound.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


async def test_a_taken_port_is_named(reactor: Any) -> None:
    """The endpoint that cannot be bound is named, with the system's reason."""
    with socket.create_server(("127.0.0.1", 0)) as taker:
        endpoint = f"tcp:{taker.getsockname()[1]}:interface=127.0.0.1"
        with pytest.raises(StartFailed, match=rf"cannot listen on {endpoint}: .*in use"):
            bind(reactor, [endpoint])


async def test_an_endpoint_that_cannot_be_understood_is_named(reactor: Any) -> None:
    """A wrong endpoint fails the start like a taken port does."""
    with pytest.raises(StartFailed, match="cannot listen on nonsense:1"):
        bind(reactor, ["nonsense:1"])


async def test_a_unix_path_stays_until_the_socket_is_closed(reactor: Any, tmp_path: Path) -> None:
    """Accepting and ending leaves a Unix socket's path to whoever bound it."""
    path = tmp_path / "api"
    [bound] = bind(reactor, [f"unix:{path}"])
    accepting = accept(reactor, bound.handed, greeter())

    def greeted() -> bytes:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(10)
            stream.connect(str(path))
            return received(stream)

    assert await deferToThread(greeted) == b"hello"
    await accepting.stop()
    assert path.exists()
    again = accept(reactor, bound.handed, greeter())
    assert await deferToThread(greeted) == b"hello"
    await again.stop()
    await bound.close()
    assert not path.exists()


@pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")  # Twisted's own doing
async def test_tls_endpoints_speak_tls(reactor: Any, tmp_path: Path) -> None:
    """An ``ssl:`` endpoint serves with its certificate, although it is bound before it is served."""
    certificate = make_certificate(tmp_path)
    port = free_port()
    [bound] = bind(reactor, [f"ssl:{port}:interface=127.0.0.1:privateKey={certificate}"])
    accepting = accept(reactor, bound.handed, greeter())
    context = ssl.create_default_context(cafile=str(certificate))

    def greeted() -> bytes:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as stream,
            context.wrap_socket(stream, server_hostname="localhost") as secure,
        ):
            return received(secure)

    assert await deferToThread(greeted) == b"hello"
    await accepting.stop()
    await bound.close()


def make_certificate(folder: Path) -> Path:
    """Make a certificate for localhost and return the file with it and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "server.pem"
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return file
