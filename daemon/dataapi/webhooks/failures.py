"""What made an attempt fail, as the short stable word that its record shows (reference/webhooks.md 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from OpenSSL import SSL
from service_identity import VerificationError
from twisted.internet.defer import CancelledError
from twisted.internet.error import CertificateError, ConnectError, ConnectingCancelledError
from twisted.web.client import RequestGenerationFailed, RequestTransmissionFailed, ResponseFailed
from twisted.web.client import ResponseNeverReceived as NothingReceived

from dataapi.webhooks.resolver import AddressRefused, Unresolvable
from dataapi.webhooks.urls import UrlRefused
from dataapi.webhooks.work import ErrorWord

if TYPE_CHECKING:
    from collections.abc import Iterator


class BadAnswer(Exception):
    """The receiver's answer is not one of HTTP."""


_WRAPPERS = (ResponseFailed, RequestTransmissionFailed, RequestGenerationFailed)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that Twisted wrapped in it."""
    yield error
    if isinstance(error, _WRAPPERS):
        for failure in error.reasons:
            yield from causes(failure.value)


def is_cancelled(error: BaseException) -> bool:
    """Tell whether an error came about because somebody gave up."""
    return any(isinstance(cause, (CancelledError, ConnectingCancelledError)) for cause in causes(error))


def error_word(error: BaseException) -> ErrorWord | None:
    """Return the word for an error, None for one that no receiver can bring about."""
    if any(isinstance(cause, (SSL.Error, VerificationError, CertificateError)) for cause in causes(error)):
        return ErrorWord.TLS
    match error:
        case UrlRefused() | AddressRefused():
            return ErrorWord.REFUSED_ADDRESS
        case Unresolvable():
            return ErrorWord.DNS
        case ConnectError() | NothingReceived() | RequestTransmissionFailed():
            return ErrorWord.CONNECT
        case ResponseFailed() | BadAnswer():
            return ErrorWord.PROTOCOL
    return None
