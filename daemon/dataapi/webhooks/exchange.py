"""One request and its answer on a checked connection, through treq."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyperlink import EncodedURL
from treq.client import HTTPClient
from treq.content import collect
from twisted.internet.defer import Deferred, succeed
from twisted.web._newclient import Request
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer
from zope.interface import implementer

from dataapi.webhooks.failures import BadAnswer
from dataapi.webhooks.response import BODY_KEPT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twisted.internet.interfaces import IConsumer
    from twisted.web.iweb import IResponse

    from dataapi.webhooks.connection import Connection
    from dataapi.webhooks.urls import Target

_URL = EncodedURL.from_text("http://receiver/")
"""What treq takes apart for every request; where it goes to is the connection's matter."""


class _Enough(Exception):
    """More of the body came than is kept."""


@implementer(IBodyProducer)
class _Body:
    """A body that is written at once: it is small, and what is written first must be whole."""

    def __init__(self, body: bytes) -> None:
        self.length = len(body)
        self._body = body

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:  # noqa: N802 - twisted's name
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:  # noqa: N802 - twisted's name
        """Nothing is left to be written."""

    def resumeProducing(self) -> None:  # noqa: N802 - twisted's name
        """Nothing is left to be written."""

    def stopProducing(self) -> None:  # noqa: N802 - twisted's name
        """Nothing is left to be written."""


@implementer(IAgent)
class _BoundAgent:
    """Sends one request over a given connection, whatever host its URL names.

    treq advertises and undoes compression; a small compressed answer can be a very large one, so what it adds
    to the headers is not sent and it does not see that an answer is compressed.
    """

    def __init__(self, connection: Connection, target: Target, headers: Headers, exchange: Exchange) -> None:
        self._connection = connection
        self._target = target
        self._headers = headers
        self._exchange = exchange

    def request(
        self,
        method: bytes,
        uri: bytes,  # noqa: ARG002 - the connection says where
        headers: Headers | None = None,  # noqa: ARG002 - see above
        bodyProducer: IBodyProducer | None = None,  # noqa: N803 - twisted's name
    ) -> Deferred[IResponse]:
        """Send the request; the answer's head is noted."""
        path = self._target.path_and_query.encode("ascii")
        request = Request(method, path, self._headers, bodyProducer, persistent=True)
        return self._connection.request(request).addCallback(self._exchange.note)


class Exchange:
    """What is known of a request and its answer, while it goes on and after it broke off.

    :ivar signed: Unix time when it was signed; when it was begun, where it never came to that.
    :ivar code: the status, 0 before one came.
    :ivar headers: raw names and values of the answer.
    :ivar body: as much of the answer's body as is read.
    """

    def __init__(self, begun: float) -> None:
        self.signed = begun
        self.code = 0
        self.headers: list[tuple[bytes, list[bytes]]] = []
        self.body = b""
        self._complete = False
        self._connection: Connection | None = None

    async def post(
        self, connection: Connection, target: Target, headers: Iterable[tuple[str, str]], body: bytes
    ) -> None:
        """Send a request and read the answer up to what is kept of it."""
        self._connection = connection
        sent = Headers({"host": [target.host_header], "accept-encoding": ["identity"]})
        for name, value in headers:
            sent.setRawHeaders(name, [value])
        # A client of its own keeps no cookies: what one receiver sets must not reach another's deliveries.
        client = HTTPClient(_BoundAgent(connection, target, sent, self), data_to_body_producer=_Body)
        answer = await client.request("POST", _URL, data=body, allow_redirects=False, unbuffered=True)
        try:
            await collect(answer, self._collect)
            self._complete = True
        except _Enough:
            # The status is known, and no more of the answer is wanted.
            pass

    def note(self, response: IResponse) -> IResponse:
        """Take the answer's head; ``BadAnswer`` when it cannot be one of HTTP."""
        if response.version[0] != b"HTTP" or not 200 <= response.code <= 999:
            raise BadAnswer("The receiver's status line is not one of HTTP")
        self.code = response.code
        self.headers = list(response.headers.getAllRawHeaders())
        response.headers.removeHeader("content-encoding")
        return response

    def _collect(self, data: bytes) -> None:
        # One byte more than is kept tells that something was left out.
        self.body += data[: BODY_KEPT + 1 - len(self.body)]
        if len(self.body) > BODY_KEPT:
            raise _Enough

    def finish(self) -> None:
        """Let go of the connection, which is dropped unless the answer came whole."""
        if self._connection is not None:
            self._connection.finish(complete=self._complete)
