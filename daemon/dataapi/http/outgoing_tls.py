"""TLS for outgoing connections: the peer's certificate must be valid for the requested host.

We verify it ourselves because Twisted accepts a certificate if its own verification raises an unexpected
exception (docs/decisions/outgoing-tls.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from cryptography import x509
from OpenSSL import SSL
from service_identity import CertificateError
from service_identity.hazmat import DNS_ID, DNSPattern
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import CertificateOptions, platformTrust
from twisted.python.failure import Failure
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer


class UnverifiedPeer(SSL.Error):
    """Raised when a peer's certificate is not valid for the requested host."""


def is_valid_for(certificate: x509.Certificate, host: str) -> bool:
    """Whether a certificate is valid for a host name or an IP address (RFC 9525, section 6).

    Only subject alternative names count: IP addresses for an address, DNS names for a host name.

    :raises Exception: if the certificate or the host cannot be parsed.
    """
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    address = _address(host)
    if address is not None:
        return address in names.get_values_for_type(x509.IPAddress)
    return any(map(DNS_ID(host).verify, _dns_patterns(names)))


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _dns_patterns(names: x509.SubjectAlternativeName) -> Iterator[DNSPattern]:
    for name in names.get_values_for_type(x509.DNSName):
        try:
            yield DNSPattern.from_bytes(name.encode("utf-8"))
        except CertificateError:  # the name is an IP address, or a wildcard like *.com
            continue


@implementer(IOpenSSLClientConnectionCreator)
class _HostConnections:
    def __init__(self, context: SSL.Context, host: str) -> None:
        self._context = context
        self._host = host

    def clientConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:  # noqa: N802, N803 - twisted's names
        connection = SSL.Connection(self._context, None)
        # RFC 6066, section 3: literal addresses are not allowed as server names.
        if _address(self._host) is None:
            connection.set_tlsext_host_name(self._host.encode("ascii"))
        connection.set_app_data(tlsProtocol)
        connection.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, self._verify)
        return connection

    def _verify(
        self, connection: SSL.Connection, certificate: Any, _error: int, depth: int, trusted: int
    ) -> bool:
        if not trusted or depth > 0:
            return bool(trusted)
        failure = UnverifiedPeer(f"the certificate is not valid for {self._host}")
        try:
            if is_valid_for(certificate.to_cryptography(), self._host):
                return True
        except Exception as error:
            failure.__cause__ = error
        connection.get_app_data().failVerification(Failure(failure))
        return False


@implementer(IPolicyForHTTPS)
class OutgoingTls:
    """Creates TLS connections to hosts and verifies their certificates.

    :param trust: trusted certificate authorities, as returned by Twisted's ``trustRootFromCertificates``
        (default: the system's).
    """

    # Any, because Twisted's interface for trust roots is private.
    def __init__(self, trust: Any = None) -> None:
        self._trust = trust or platformTrust()

    def creatorForNetloc(self, hostname: bytes, port: int) -> IOpenSSLClientConnectionCreator:  # noqa: ARG002, N802 - twisted's names
        context = CertificateOptions(trustRoot=self._trust).getContext()
        return _HostConnections(context, hostname.decode("ascii"))
