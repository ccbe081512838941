"""Certificate checks for webhook receivers and key issuers (docs/reference/webhooks.md, Addresses)."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509 import DNSName, IPAddress, RFC822Name, UniformResourceIdentifier
from dataapi.auth.published_keys import FetchError, fetcher
from dataapi.http import outgoing_tls
from dataapi.webhooks.model import AttemptError
from support.certificates import Authority
from support.connect_proxy import ConnectProxy
from support.receiver import NAME, Names, Receiver, World, attempt
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IHostnameResolver
from twisted.logger import LogEvent
from zope.interface import implementer

LOOPBACK = IPAddress(ip_address("127.0.0.1"))
OTHER_NAME = x509.OtherName(x509.ObjectIdentifier("1.3.6.1.4.1.311.20.2.3"), b"\x0c\x11" + NAME.encode())
SRV_NAME = x509.OtherName(x509.ObjectIdentifier("1.3.6.1.5.5.7.8.7"), b"\x16\x18_https." + NAME.encode())
REGISTERED_ID = x509.RegisteredID(x509.ObjectIdentifier("1.2.3.4"))
URI = UniformResourceIdentifier(f"https://{NAME}:443/")

VALID: list[tuple[str, tuple[x509.GeneralName, ...]]] = [
    (NAME, (DNSName(NAME),)),
    (NAME, (DNSName("Hooks.EXAMPLE.com"),)),
    (NAME, (DNSName("*.example.com"),)),
    ("a.b.example.com", (DNSName("*.b.example.com"),)),
    ("xn--bcher-kva.example", (DNSName("xn--bcher-kva.example"),)),
    ("127.0.0.1", (LOOPBACK,)),
    # The certificate may also contain invalid names and names of other types.
    (NAME, (DNSName("*"), DNSName("127.0.0.1"), URI, OTHER_NAME, SRV_NAME, LOOPBACK, DNSName(NAME))),
    ("127.0.0.1", (DNSName("127.0.0.1"), DNSName("*"), URI, LOOPBACK)),
]

INVALID: list[tuple[str, tuple[x509.GeneralName, ...]]] = [
    # The certificate's common name is the host in all of these cases.
    (NAME, ()),
    ("127.0.0.1", ()),
    (NAME, (RFC822Name(f"admin@{NAME}"),)),
    (NAME, (RFC822Name(NAME),)),
    (NAME, (REGISTERED_ID,)),
    (NAME, (OTHER_NAME,)),
    (NAME, (SRV_NAME,)),
    (NAME, (URI,)),
    (NAME, (x509.DirectoryName(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])),)),
    (NAME, (LOOPBACK,)),
    (NAME, (DNSName("127.0.0.1"),)),
    ("127.0.0.1", (DNSName("127.0.0.1"),)),
    ("127.0.0.1", (IPAddress(ip_address("127.0.0.2")),)),
    ("127.0.0.1", (IPAddress(ip_address("::ffff:127.0.0.1")),)),
    ("127.0.0.1", (DNSName("*.0.0.1"),)),
    (NAME, (DNSName("*"),)),
    (NAME, (DNSName("*.com"),)),
    ("hooks.test", (DNSName("*.test"),)),
    ("a.b.test", (DNSName("*.test"),)),
    ("a.b.test", (DNSName("*.*.test"),)),
    ("a.b.example.com", (DNSName("*.example.com"),)),
    ("example.com", (DNSName("*.example.com"),)),
    (NAME, (DNSName("h*.example.com"),)),
    (NAME, (DNSName("hooks.*.com"),)),
    ("xn--bcher-kva.example.com", (DNSName("xn--*.example.com"),)),
    (NAME, (DNSName("other.example.com"), DNSName("example.com"))),
    (NAME, (DNSName(f"{NAME}\0.example.org"),)),
    (NAME, (DNSName(f"{NAME}.example.org"),)),
    (NAME, (DNSName(""),)),
]

SHAPES = [pytest.param(host, names, True) for host, names in VALID] + [
    pytest.param(host, names, False) for host, names in INVALID
]


@pytest.fixture(scope="module")
def authority() -> Authority:
    """Create a certificate authority for all tests of this module."""
    return Authority.create()


@pytest.fixture
def trusting(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the authority to the system's trusted certificate authorities."""
    file = tmp_path / "authorities.pem"
    file.write_bytes(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))


@implementer(IHostnameResolver)
class LoopbackResolver:
    """A resolver that resolves every name to the loopback address."""

    def resolveHostName(  # noqa: N802 - twisted's names
        self,
        resolutionReceiver: Any,  # noqa: N803
        hostName: str,  # noqa: ARG002, N803
        portNumber: int = 0,  # noqa: N803
        addressTypes: object = None,  # noqa: ARG002, N803
        transportSemantics: str = "TCP",  # noqa: ARG002, N803
    ) -> Any:
        resolutionReceiver.resolutionBegan(self)
        resolutionReceiver.addressResolved(IPv4Address("TCP", "127.0.0.1", portNumber))
        resolutionReceiver.resolutionComplete()
        return self

    def cancel(self) -> None:
        """Do nothing, because the resolution is complete."""


@pytest.fixture
def names_on_loopback(reactor: Any) -> Iterator[None]:
    before = reactor.installNameResolver(LoopbackResolver())
    yield
    reactor.installNameResolver(before)


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize(("host", "names", "valid"), SHAPES)
async def test_delivery_requires_a_certificate_for_the_host(
    world: World,
    authority: Authority,
    failures: list[LogEvent],
    host: str,
    names: tuple[x509.GeneralName, ...],
    valid: bool,
) -> None:
    receiver = Receiver()
    port = world.listen(receiver, tls=authority.issue(*names, subject=host))
    outcome = await world.sender().send(attempt(port, url=f"https://{host}:{port}/"))
    assert (outcome.success, outcome.error) == ((True, None) if valid else (False, AttemptError.TLS))
    assert len(receiver.received) == valid
    if not valid:
        await receiver.connections[0].lost
    assert failures == []


@pytest.mark.usefixtures("trusting", "names_on_loopback")
@pytest.mark.parametrize(("host", "names", "valid"), SHAPES)
async def test_fetching_keys_requires_a_certificate_for_the_host(
    reactor: Any,
    world: World,
    authority: Authority,
    failures: list[LogEvent],
    host: str,
    names: tuple[x509.GeneralName, ...],
    valid: bool,
) -> None:
    receiver = Receiver()
    port = world.listen(receiver, tls=authority.issue(*names, subject=host))
    fetching = fetcher(reactor)(f"https://{host}:{port}/jwks.json", None)
    if valid:
        assert (await fetching).body == b"ok"
    else:
        with pytest.raises(FetchError, match=f"the certificate is not valid for {host}"):
            await fetching
        await receiver.connections[0].lost
    assert len(receiver.received) == valid
    assert failures == []


@pytest.mark.usefixtures("trusting")
async def test_ipv6_address_must_match_the_certificate(world: World, authority: Authority) -> None:
    right, wrong = (authority.issue(IPAddress(ip_address(one))) for one in ("::1", "::2"))
    port, other = (world.listen(Receiver(), "::1", tls=served) for served in (right, wrong))
    sender = world.sender(Names(["::1"]))
    assert (await sender.send(attempt(port, url=f"https://[::1]:{port}/"))).success
    assert (await sender.send(attempt(other, url=f"https://[::1]:{other}/"))).error is AttemptError.TLS


async def test_trusted_self_signed_certificate_must_match_the_host(world: World) -> None:
    own, foreign = Authority.create(DNSName(NAME)), Authority.create(DNSName("other.example.com"))
    for authority, success in ((own, True), (foreign, False)):
        port = world.listen(Receiver(), tls=authority.served)
        outcome = await world.sender(tls=authority.trusted).send(attempt(port, scheme="https"))
        assert outcome.success is success


@pytest.mark.parametrize("names", [(DNSName("other.example.com"),), (DNSName("*"),), ()])
async def test_certificate_must_match_the_host_inside_a_tunnel(
    reactor: Any, world: World, authority: Authority, names: tuple[x509.GeneralName, ...]
) -> None:
    receiver, proxy = Receiver(), ConnectProxy(reactor)
    port = world.listen(receiver, tls=authority.issue(*names, subject=NAME))
    sender = world.sender(tls=authority.trusted, route=proxy.listen(world))
    outcome = await sender.send(attempt(port, scheme="https"))
    assert (outcome.error, receiver.received) == (AttemptError.TLS, [])


@pytest.mark.parametrize("problem", [ValueError("unreadable"), MemoryError(), RecursionError()])
async def test_failing_certificate_check_rejects_the_peer(
    world: World,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception,
) -> None:
    def fail(*_: object) -> bool:
        raise problem

    monkeypatch.setattr(outgoing_tls, "is_valid_for", fail)
    receiver = Receiver()
    port = world.listen(receiver, tls=authority.issue(DNSName(NAME)))
    outcome = await world.sender(tls=authority.trusted).send(attempt(port, scheme="https"))
    assert (outcome.error, receiver.received) == (AttemptError.TLS, [])
