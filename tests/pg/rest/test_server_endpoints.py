"""Connections to PostgreSQL over TLS and Unix sockets."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from support.messages import message, running
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dataapi.database.pool import Pool
    from support.postgres import Database, Server

    MakePool = Callable[..., Pool]

pytestmark = pytest.mark.own_sql

LARGE = "é" * 3_000_000  # larger than the buffers of sockets and TLS


async def exercise(pool: Pool) -> None:
    """Run small, large and concurrent messages, and cancel one."""
    await pool.start()
    assert pool.available
    assert await pool.run(message("select $1", LARGE)) == [(LARGE,)]
    several = [running(pool.run(message("select $1, pg_sleep(0.01)", str(number)))) for number in range(10)]
    assert [rows[0][0] for rows in await defer.gatherResults(several)] == [
        str(number) for number in range(10)
    ]
    slow = running(pool.run(message("select pg_sleep(30)")))
    slow.cancel()
    with pytest.raises(defer.CancelledError):
        await slow
    assert await pool.run(message("select 1")) == [(1,)]


async def test_pool_connects_through_a_unix_socket(
    make_pool: MakePool, server: Server, database: Database
) -> None:
    """The URI contains the socket's directory as its host."""
    uri = f"postgresql://authenticator@/{database.name}?host={server.folder}&port={server.port}"
    await exercise(make_pool(uri=uri, size=2))


@pytest.fixture
def certificate(server: Server) -> Iterator[str]:
    """Enable TLS and yield the path of the server's certificate."""
    if server.admin.execute("show ssl_library") == [("",)]:
        pytest.skip("this PostgreSQL was built without TLS")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_format = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths = server.folder / "server.crt", server.folder / "server.key"
    for path, content in zip(
        paths, (made.public_bytes(pem), key.private_bytes(pem, *key_format)), strict=True
    ):
        path.write_bytes(content)
        server.own(path)
    try:
        server.admin.execute(f"alter system set ssl_cert_file = '{paths[0]}'")
        server.admin.execute(f"alter system set ssl_key_file = '{paths[1]}'")
        server.admin.execute("alter system set ssl = on")
        server.restart()
        yield str(paths[0])
    finally:
        server.admin.execute("alter system reset all")
        server.restart()


async def test_pool_verifies_the_certificate(
    make_pool: MakePool, server: Server, database: Database, certificate: str
) -> None:
    """The pool verifies the host name of the URI, although it passes the resolved address to libpq."""
    uri = f"postgresql://authenticator@localhost:{server.port}/{database.name}"
    pool = make_pool(uri=f"{uri}?sslmode=verify-full&sslrootcert={certificate}", size=2)
    await exercise(pool)
    assert await pool.fetch("select ssl from pg_stat_ssl where pid = pg_backend_pid()") == [(True,)]


async def test_certificate_for_another_host_is_rejected(
    make_pool: MakePool, server: Server, database: Database, certificate: str
) -> None:
    uri = f"postgresql://authenticator@127.0.0.1:{server.port}/{database.name}"
    pool = make_pool(uri=f"{uri}?sslmode=verify-full&sslrootcert={certificate}", size=2)
    await pool.start()
    assert not pool.available
