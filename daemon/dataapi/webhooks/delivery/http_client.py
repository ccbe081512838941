"""The HTTP client of deliveries: one POST over a connection to a checked address, with limits."""

from __future__ import annotations

import codecs
import ipaddress
import select
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from OpenSSL import SSL
from service_identity import VerificationError
from treq import collect
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.error import CertificateError, ConnectError, ConnectingCancelledError
from twisted.internet.interfaces import (
    IConsumer,
    IDelayedCall,
    IProtocol,
    IProtocolFactory,
    ISSLTransport,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import (
    HTTPConnectionPool,
    ProxyAgent,
    RequestGenerationFailed,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
)
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer, IPolicyForHTTPS, IResponse
from zope.interface import implementer

from dataapi.webhooks.delivery.destinations import Address, Destination, UrlRefused
from dataapi.webhooks.delivery.resolver import AddressRefused, Unresolvable
from dataapi.webhooks.model import AttemptError

MAX_HEAD = 65_536
"""Bytes of status line and headers that a receiver may send for a request, 1xx responses included."""

MAX_BODY = 16_384
"""Bytes of the body that are read and recorded; the connection is dropped when more arrive."""

MAX_RECORDED_HEADERS = 64
MAX_RECORDED_HEADER_BYTES = 16_384

MAX_ADDRESSES = 4
"""Addresses of a receiver that one attempt tries to connect to."""

CONNECT_SECONDS = 5.0
"""Seconds to connect to one address while there is another to try."""

IDLE_SECONDS = 15
"""Seconds after which an idle connection is closed."""

CLOSE_SECONDS = 2.0
"""Seconds that a receiver has to close its side of a connection."""

_REPLACEMENT = "\ufffd"
_WRAPPERS = (ResponseFailed, RequestTransmissionFailed, RequestGenerationFailed)

Key: TypeAlias = "tuple[str, str, int, Address]"
"""What interchangeable connections have in common: scheme, host, port, and the address."""


class NotHttp(Exception):
    """The receiver's response is not HTTP."""


def attempt_error(error: BaseException) -> AttemptError | None:
    """Classify what made an attempt fail; None for an error that no receiver can cause."""
    if any(isinstance(cause, (SSL.Error, VerificationError, CertificateError)) for cause in _causes(error)):
        return AttemptError.TLS
    match error:
        case UrlRefused() | AddressRefused():
            return AttemptError.REFUSED_ADDRESS
        case Unresolvable():
            return AttemptError.DNS
        case ConnectError() | ResponseNeverReceived() | RequestTransmissionFailed():
            return AttemptError.CONNECT
        case ResponseFailed() | NotHttp():
            return AttemptError.PROTOCOL
    return None


def is_cancelled(error: BaseException) -> bool:
    """Whether an error is due to cancellation."""
    return any(isinstance(cause, (CancelledError, ConnectingCancelledError)) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that Twisted wrapped in it."""
    yield error
    if isinstance(error, _WRAPPERS):
        for failure in error.reasons:
            yield from _causes(failure.value)


def body_text(body: bytes) -> str:
    """Return the recorded part of a body as text, with invalid UTF-8 replaced.

    A character that the limit cuts in two is left out.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return storable(decoder.decode(body[:MAX_BODY], final=len(body) <= MAX_BODY))


def header_texts(headers: Iterable[tuple[bytes, Iterable[bytes]]]) -> tuple[tuple[str, str], ...]:
    """Return lower-case names with their values, repeated ones joined by ``", "``, up to the limits."""
    texts: list[tuple[str, str]] = []
    size = 0
    for name, values in headers:
        value = b", ".join(values)
        size += len(name) + len(value)
        if len(texts) == MAX_RECORDED_HEADERS or size > MAX_RECORDED_HEADER_BYTES:
            break
        texts.append((storable(name.decode("latin-1")).lower(), storable(value.decode("latin-1"))))
    return tuple(texts)


def storable(text: str) -> str:
    """Replace what PostgreSQL's text cannot hold: NUL and lone surrogates."""
    return text.replace("\0", _REPLACEMENT).encode("utf-8", "replace").decode()


@implementer(IStreamClientEndpoint)
class ReceiverConnection(Protocol):
    """A connection to a checked address of a receiver, and the only endpoint of an HTTP agent of its own.

    The agent writes requests and parses responses; this class limits what arrives and ends the connection.
    """

    def __init__(self, pool: ReceiverConnections, key: Key, reactor: Any) -> None:
        self.key = key
        self._pool = pool
        # Holds the HTTP protocol of this connection between requests, longer than the connection may be idle.
        self._agent_pool = HTTPConnectionPool(reactor)
        self._agent_pool.retryAutomatically = False
        self._agent_pool.cachedConnectionTimeout = 2 * IDLE_SECONDS
        # Not ``Agent``, which parses a URL and sends ``/a`` for ``/a?``, and ``////a`` for ``//a`` with some
        # versions of Python: ``ProxyAgent`` sends the request target as it is.
        self._agent = ProxyAgent(self, reactor, self._agent_pool)
        self._http: IProtocol | None = None
        self._busy = self._lost = False
        self._head: int | None = None
        self._timer: IDelayedCall | None = None

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:  # noqa: N803 - twisted's name
        """Hand the transport to the agent's HTTP protocol, once: no request ever opens another connection."""
        if self._http is not None or self._lost:
            return fail(ConnectError(string="the connection cannot be used again"))
        self._http = http = protocolFactory.buildProtocol(self._tcp.getPeer())
        assert http is not None
        http.makeConnection(self._tcp)
        return succeed(http)

    def post(self, path: bytes, headers: Headers, body: bytes) -> Deferred[IResponse]:
        """Send a POST; the Deferred fires with the response when its headers are complete."""
        self._busy = True
        self._head = 0
        response: Deferred[IResponse] = self._agent.request(b"POST", path, headers, _RequestBody(body))
        return response.addCallback(self._head_complete)

    def _head_complete(self, response: IResponse) -> IResponse:
        self._head = None
        return response

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Pass on what belongs to a response of acceptable size; anything else ends the connection."""
        if not self._busy or self._http is None:
            self.drop()
            return
        self._http.dataReceived(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self.drop()

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - twisted's name
        """Leave the pool and tell the HTTP protocol."""
        self._lost = True
        self.drop_after(None)
        self._pool.forget(self)
        if self._http is not None:
            self._http.connectionLost(reason)
        self._agent_pool.closeCachedConnections()

    def is_quiet(self) -> bool:
        """Whether an idle connection may be used: nothing has arrived that the reactor has yet to see.

        The receiver may have closed it, or sent what nobody asked for: a response, or a TLS alert.
        """
        # TLS is a protocol over the transport that has the socket.
        secure = ISSLTransport.providedBy(self.transport)
        carrier = self._tcp.transport if secure else self._tcp
        arrived = select.poll()
        arrived.register(carrier.fileno(), select.POLLIN)
        return not arrived.poll(0)

    def finish(self, *, complete: bool) -> None:
        """End the current request: keep the connection, or see that it is closed.

        :param complete: whether the whole response arrived.
        """
        self._busy = False
        if not complete:
            self.drop()
        elif self._lost:
            return
        elif self._tcp.disconnecting:
            # The agent is closing it, which waits for the receiver with TLS.
            self.drop_after(CLOSE_SECONDS)
        else:
            self._pool.keep(self)

    def drop_after(self, seconds: float | None) -> None:
        """Set the timer that drops this connection, in place of any other; None for no timer."""
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
        if seconds is not None:
            self._timer = self._pool.reactor.callLater(seconds, self.drop)

    def drop(self) -> None:
        """Close at once, whatever is still to be sent or received."""
        self._tcp.abortConnection()

    @property
    def _tcp(self) -> Any:
        """The transport, which may be one of TLS."""
        return self.transport


@implementer(IBodyProducer)
class _RequestBody:
    """A body that is written at once: it is small, and must be written whole before the response arrives."""

    def __init__(self, body: bytes) -> None:
        self.length = len(body)
        self._body = body

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:  # noqa: N802 - twisted's name
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:  # noqa: N802 - twisted's name
        """Nothing is left to write."""

    def resumeProducing(self) -> None:  # noqa: N802 - twisted's name
        """Nothing is left to write."""

    def stopProducing(self) -> None:  # noqa: N802 - twisted's name
        """Nothing is left to write."""


class _Factory(Factory):
    """Makes the protocol of one connection."""

    noisy = False

    def __init__(self, connection: ReceiverConnection) -> None:
        self._connection = connection

    def buildProtocol(self, addr: object) -> ReceiverConnection:  # noqa: ARG002, N802 - twisted's names
        return self._connection


class ReceiverConnections:
    """Opens connections to checked addresses and pools the idle ones.

    :param reactor: connects and keeps time.
    :param tls: checks certificates.
    :param max_idle: how many idle connections are kept; the one idle for longest is closed first.
    """

    def __init__(self, reactor: Any, tls: IPolicyForHTTPS, max_idle: int = 256) -> None:
        self.reactor = reactor
        self._tls = tls
        self._max_idle = max_idle
        self._open: set[ReceiverConnection] = set()
        # In the order in which they became idle.
        self._idle: dict[ReceiverConnection, None] = {}
        self._by_key: dict[Key, list[ReceiverConnection]] = {}

    async def get(self, destination: Destination, addresses: Iterable[Address]) -> ReceiverConnection:
        """Return a connection to one of the addresses, which were all checked.

        :raises ConnectError: none accepts a connection.
        :raises AddressRefused: a connection leads to another address.
        """
        candidates = tuple(addresses)[:MAX_ADDRESSES]
        for address in candidates:
            idle = self._take_idle((destination.scheme, destination.host, destination.port, address))
            if idle is not None:
                return idle
        for address in candidates[:-1]:
            try:
                return await self._connect(destination, address, CONNECT_SECONDS)
            except ConnectError:
                continue
        return await self._connect(destination, candidates[-1], None)

    def _take_idle(self, key: Key) -> ReceiverConnection | None:
        """Return an idle connection that is still open, None when there is none."""
        while idle := self._by_key.get(key):
            connection = idle[-1]
            self._remove_idle(connection)
            if connection.is_quiet():
                return connection
            connection.drop()
        return None

    async def _connect(
        self, destination: Destination, address: Address, seconds: float | None
    ) -> ReceiverConnection:
        key = (destination.scheme, destination.host, destination.port, address)
        connection = ReceiverConnection(self, key, self.reactor)
        await self._endpoint(destination, address, seconds).connect(_Factory(connection))
        self._open.add(connection)
        transport: Any = connection.transport
        peer = ipaddress.ip_address(transport.getPeer().host)
        if peer != address:
            connection.drop()
            raise AddressRefused(f"The connection to {address} leads to {peer}")
        return connection

    def _endpoint(
        self, destination: Destination, address: Address, seconds: float | None
    ) -> IStreamClientEndpoint:
        kind: Any = TCP4ClientEndpoint if address.version == 4 else TCP6ClientEndpoint
        # The attempt's own deadline is the limit where no other is given.
        endpoint: IStreamClientEndpoint = kind(self.reactor, str(address), destination.port, timeout=seconds)
        if destination.scheme == "http":
            return endpoint
        creator = self._tls.creatorForNetloc(destination.host.encode("ascii"), destination.port)
        return wrapClientTLS(creator, endpoint)

    def keep(self, connection: ReceiverConnection) -> None:
        """Keep an idle connection for the next request."""
        self._idle[connection] = None
        self._by_key.setdefault(connection.key, []).append(connection)
        connection.drop_after(IDLE_SECONDS)
        if len(self._idle) > self._max_idle:
            oldest = next(iter(self._idle))
            self._remove_idle(oldest)
            oldest.drop()

    def forget(self, connection: ReceiverConnection) -> None:
        """Forget a connection that was lost."""
        self._open.discard(connection)
        self._remove_idle(connection)

    def _remove_idle(self, connection: ReceiverConnection) -> None:
        connection.drop_after(None)
        if connection in self._idle:
            del self._idle[connection]
            idle = self._by_key[connection.key]
            idle.remove(connection)
            if not idle:
                del self._by_key[connection.key]

    def close(self) -> None:
        """Drop every connection, in use or idle."""
        for connection in list(self._open):
            connection.drop()


class _Enough(Exception):
    """More of the body arrived than is recorded."""


class DeliveryExchange:
    """One request and what is known of its response, also while it arrives and after it broke off.

    :ivar signed_at: Unix time at which the request was signed, or at which the attempt began until then.
    :ivar code: the status code, 0 before one arrived.
    :ivar headers: raw names and values of the response.
    :ivar body: as much of the response's body as is read.
    """

    def __init__(self, began_at: float) -> None:
        self.signed_at = began_at
        self.code = 0
        self.headers: list[tuple[bytes, list[bytes]]] = []
        self.body = b""
        self._complete = False
        self._connection: ReceiverConnection | None = None

    async def post(
        self,
        connection: ReceiverConnection,
        destination: Destination,
        headers: Iterable[tuple[str, str]],
        body: bytes,
    ) -> None:
        """Send a request and read the response, its body up to what is recorded.

        No compression is asked for and none is undone: a few compressed bytes can be gigabytes.
        """
        self._connection = connection
        sent = Headers({"host": [destination.host_header], "accept-encoding": ["identity"]})
        for name, value in headers:
            sent.setRawHeaders(name, [value])
        response = await connection.post(destination.path_and_query.encode("ascii"), sent, body)
        if response.version[0] != b"HTTP" or not 200 <= response.code <= 999:
            raise NotHttp("The receiver's status line is not one of HTTP")
        self.code = response.code
        self.headers = list(response.headers.getAllRawHeaders())
        try:
            await collect(response, self._collect)
            self._complete = True
        except _Enough:
            pass  # the status is known

    def _collect(self, data: bytes) -> None:
        # One byte more than is recorded tells that something was left out.
        self.body += data[: MAX_BODY + 1 - len(self.body)]
        if len(self.body) > MAX_BODY:
            raise _Enough

    def finish(self) -> None:
        """Let go of the connection, which is dropped unless the whole response arrived."""
        if self._connection is not None:
            self._connection.finish(complete=self._complete)
