"""Certificates for test servers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from dataapi.http.outgoing_tls import OutgoingTls
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.ssl import Certificate, trustRootFromCertificates
from zope.interface import implementer

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def make_certificate(folder: Path) -> Path:
    """Create a certificate for localhost, and return the file with the certificate and its key."""
    own = Authority.create(x509.DNSName("localhost"), subject="localhost")
    private = own.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "server.pem"
    file.write_bytes(private + own.pem)
    return file


@dataclass(frozen=True)
class Authority:
    """A certificate authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, *names: x509.GeneralName, subject: str = "authority") -> Authority:
        """Create a self-signed authority.

        :param names: subject alternative names, for a server that is its own authority.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        made = _builder(subject, key.public_key(), subject, names, NOW + DAY)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return cls(key, made.sign(key, hashes.SHA256()))

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def served(self) -> ServedCertificate:
        """The authority's own certificate and key, for a server that presents this certificate."""
        return ServedCertificate(self.certificate, self.key)

    @property
    def trusted(self) -> OutgoingTls:
        """TLS settings that trust only this authority."""
        return OutgoingTls(trustRootFromCertificates([Certificate.loadPEM(self.pem)]))

    def issue(
        self, *names: x509.GeneralName, subject: str = "receiver", until: datetime = NOW + DAY
    ) -> ServedCertificate:
        """Issue a certificate for a server.

        :param names: subject alternative names; if there are none, the extension is omitted.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        made = _builder("authority", key.public_key(), subject, names, until)
        return ServedCertificate(made.sign(self.key, hashes.SHA256()), key)


def _builder(
    issuer: str,
    key: ec.EllipticCurvePublicKey,
    subject: str,
    names: tuple[x509.GeneralName, ...],
    until: datetime,
) -> x509.CertificateBuilder:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    made = x509.CertificateBuilder(
        issuer_name=named(issuer),
        subject_name=named(subject),
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=NOW - 9 * DAY,
        not_valid_after=until,
    )
    return made.add_extension(x509.SubjectAlternativeName(names), critical=False) if names else made


@implementer(IOpenSSLServerConnectionCreator)
class ServedCertificate:
    """Creates the server side of TLS connections."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._context = SSL.Context(SSL.TLS_SERVER_METHOD)
        self._context.use_certificate(certificate)
        self._context.use_privatekey(key)

    def serverConnectionForTLS(self, tlsProtocol: object) -> SSL.Connection:  # noqa: ARG002, N802, N803
        """Create the server side of a connection. Twisted's interface defines these names."""
        return SSL.Connection(self._context, None)
