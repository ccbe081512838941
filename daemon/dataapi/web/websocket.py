"""GraphQL over WebSocket: a connection with many operations.

Each operation is a request that passes through the pipeline, with the same limits, timeouts and logs as a
request over HTTP. See docs/decisions/websockets.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from websockets.datastructures import Headers as HandshakeHeaders
from websockets.frames import Frame, Opcode
from websockets.http11 import Request as HandshakeRequest
from websockets.protocol import Protocol, Side, State
from websockets.server import ServerProtocol

from dataapi.auth.caller import identity
from dataapi.concurrency.tasks import Background
from dataapi.http.errors import ApiError
from dataapi.http.headers import WEBSOCKET, Headers
from dataapi.http.messages import Chunk, Fact, Feed, Outlet, Reply, Request, RequestContext
from dataapi.live import websocket_messages as messages
from dataapi.live.events import HEARTBEAT
from dataapi.live.queries import LiveQueries
from dataapi.live.subscribers import HEARTBEAT_INTERVAL, STALL_TIMEOUT
from dataapi.live.websocket_messages import ClientMessage
from dataapi.web.families import GRAPHQL
from dataapi.web.origins import is_of_another_origin
from dataapi.web.routing import Backend, Route, RoutedRequest
from dataapi.web.server.parser import Head
from dataapi.web.server.request import UNCOUNTED, OutgoingData, RequestConnection, ServerRequest, SiteState

INITIALISATION_TIMEOUT = 10.0
"""Seconds for the client to send ``connection_init``."""

CLOSE_TIMEOUT = 5.0
"""Seconds for the client to acknowledge the close of a connection."""

MAX_RUNNING = 10
"""Maximum number of concurrent operations of a connection. At the limit, messages are not read."""

_MAX_UNANSWERED = 3
"""Number of consecutive pings without data from the client after which the connection counts as lost."""

_TRY_AGAIN_LATER = 1013

_log = Logger(namespace="dataapi.web")


def is_requested(request: Request) -> bool:
    """Whether a client requests a WebSocket. Requests for other protocols are ordinary requests."""
    upgrade, connection = request.headers["upgrade"], request.headers.get("connection", "")
    return request.method == "GET" and upgrade.lower() == WEBSOCKET and "upgrade" in connection.lower()


def upgrade(backend: Backend, live: LiveQueries, request: Request) -> Reply:
    """Return the response that hands the connection over to a session.

    :raises ApiError: the handshake is invalid, the origin is not allowed, or there are too many connections.
    """
    headers, origins = request.headers, backend.project.server_cors_allowed_origins
    if origins and headers.get("origin", origins[0]) not in origins and is_of_another_origin(headers):
        hint = "Add the origin to server-cors-allowed-origins."
        raise ApiError(403, "ORIGIN_NOT_ALLOWED", "Scripts from this origin may not connect", hint=hint)
    # An unsupported subprotocol is reported with a close code.
    ours = messages.SUBPROTOCOL
    server = ServerProtocol(select_subprotocol=lambda _, offered: ours if ours in offered else None)
    response = server.accept(HandshakeRequest(request.path, HandshakeHeaders(headers.items())))
    if server.handshake_exc is not None:
        message = f"The WebSocket handshake is invalid: {server.handshake_exc}"[:300]
        version = ("Sec-WebSocket-Version", "13")
        raise ApiError(response.status_code, "BAD_REQUEST", message, headers=(version,))
    accepted = tuple((name, value) for name, value in response.headers.raw_items() if name != "Date")
    session = GraphQLSession(backend, live, request, is_supported=server.subprotocol is not None)
    live.connect(session, f"at {request.client}")
    return Reply(response.status_code, accepted, b"", feed=session)


class GraphQLSession:
    """A WebSocket connection for GraphQL operations. Implements ``Feed`` for the reply to the handshake.

    :param is_supported: whether the client offered the subprotocol.
    """

    site: SiteState
    sender: OutgoingData
    abort: Callable[[], None]

    def __init__(self, backend: Backend, live: LiveQueries, request: Request, *, is_supported: bool) -> None:
        self._live, self._is_supported = live, is_supported
        self._authenticator = backend.authenticator
        self._headers = messages.headers(request.headers)
        request = request._replace(method="POST", query="", body=b"")
        route = Route(request.path, GRAPHQL, self._subscribe, {}, request.context.route)
        self._routed = RoutedRequest(route, request, backend, 0.0, [])
        self._protocol = Protocol(Side.SERVER, max_size=self._routed.max_body)
        self._operations: dict[str, WebSocketOperation] = {}
        self._unhandled: deque[bytes | ClientMessage] = deque()
        self._message = bytearray()
        self._caller = ""
        self._closing: tuple[int, str] | None = None
        self._count = self._unanswered = self._unparsed = self._held = 0
        self._initialised = False
        self._advancing = True  # until the connection is handed over
        self._background = Background()
        self._timer: Any = None
        self._ended: Deferred[None] = Deferred()

    # Implementation of ``Feed``

    async def write_to(self, outlet: Outlet) -> None:
        assert isinstance(outlet, ServerRequest)
        self._connection = outlet.connection
        self.site, self.sender, self.abort = outlet.site, outlet.connection.sender, outlet.abort
        self._advancing = False
        self._call_later(INITIALISATION_TIMEOUT, self._check)
        self._connection.upgrade(self._received)
        if not self._is_supported:
            self.close(4406, f"expected {messages.SUBPROTOCOL}")
        await self._ended
        self._connection.pause(paused=False)  # with TLS, the client must acknowledge the close

    def resume(self) -> None:
        for feed in [operation.feed for operation in self._operations.values() if operation.feed is not None]:
            feed.resume()
        self.advance()

    def leave(self) -> None:
        self._end()
        self._background.cancel()
        self._hold(0)
        self._live.disconnect(self)

    # Receiving messages

    def _received(self, data: bytes) -> None:
        if self._ended.called:
            return
        self._unanswered = 0
        for start in range(0, len(data), UNCOUNTED):
            self._protocol.receive_data(piece := data[start : start + UNCOUNTED])
            frames = self._protocol.events_received()
            self._unparsed = 0 if frames else self._unparsed + len(piece)
            for frame in frames:
                if isinstance(frame, Frame) and frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                    self._message += frame.data
                    if frame.fin:
                        self._unhandled.append(bytes(self._message))
                        self._message.clear()
        self._flush()
        self.advance()

    def advance(self) -> None:
        """Handle messages, unless the client reads too slowly or too many of its operations are running."""
        if self._advancing or self._ended.called:
            return
        self._advancing = True
        while self._unhandled and not self.sender.waits:
            if len(self._operations) - len(self._subscriptions) >= MAX_RUNNING:
                break
            self._handle(self._unhandled.popleft())
        self._advancing = False
        if not (self._unhandled or self._hold(len(self._message) + self._unparsed)):
            self.close(_TRY_AGAIN_LATER, "Too many large messages are being received")
        self._connection.pause(paused=not self._is_reading)

    @property
    def _is_reading(self) -> bool:
        """Whether the connection is read. If a slow client's pings were read, pongs would accumulate."""
        return not (self._unhandled or self.sender.waits)

    def _hold(self, size: int) -> bool:
        """Count the bytes of an incomplete message towards the limit for request bodies."""
        more = max(0, size - UNCOUNTED) - self._held
        if more > 0 and not self.site.bodies.reserve(more):
            return False
        if more < 0:
            self.site.bodies.release(-more)
        self._held += more
        return True

    def _handle(self, received: bytes | ClientMessage) -> None:
        if self._closing is not None:
            return
        try:
            self._dispatch(messages.parse(received) if isinstance(received, bytes) else received)
        except messages.InvalidMessage as error:
            self.close(4400, str(error))
        except ApiError as error:
            self.close(_TRY_AGAIN_LATER, error.message)
        except Exception:
            _log.failure("a WebSocket message could not be handled", request_id=self._routed.request.id)
            self.close(4500, "Internal server error")

    def _dispatch(self, message: ClientMessage) -> None:
        match message.type:
            case "connection_init" if self._initialised:
                self.close(4429, "Too many initialisation requests")
            case "connection_init":
                self._initialised = True
                self._background.spawn(self._authenticate(messages.credentials(message.payload)))
            case "ping":
                self.sender.send(messages.plain("pong"))
                credentials = messages.credentials(message.payload)
                if credentials and self._caller:
                    self._background.spawn(self._authenticate(credentials))
            case "subscribe" if not self._caller:
                self.close(4401, "Unauthorized")
            case "subscribe" if message.id in self._operations:
                self.close(4409, f"Subscriber for {message.id} already exists")
            case "subscribe":
                self._start(message)
            case "complete" if message.id in self._operations:
                self._drop(self._operations[message.id])

    async def _authenticate(self, credentials: dict[str, str]) -> None:
        """Check an API key and a token. If they replace earlier credentials, run the subscriptions again."""
        self._headers |= credentials
        request = self._routed.request._replace(headers=Headers(self._headers), context=RequestContext())
        try:
            caller = identity(request, await self._authenticator.authenticate(request))
            if self._closing is not None:
                return
            if not self._caller:
                self._live.connect(self, caller)
        except ApiError as error:
            is_forbidden = error.status == messages.UNAUTHORIZED
            self.close(messages.FORBIDDEN if is_forbidden else _TRY_AGAIN_LATER, error.message, cancels=False)
            return
        self._routed = self._routed._replace(request=request)
        if not self._caller:
            self._caller = caller
            self.sender.send(messages.plain("connection_ack"))
        elif self._caller != caller:
            self.close(messages.FORBIDDEN, "The token belongs to another caller", cancels=False)
        else:
            self._advancing, subscriptions = True, self._subscriptions
            self._drop(*subscriptions)
            self._unhandled.extendleft(operation.message for operation in reversed(subscriptions))
            self._advancing = False
        self.advance()

    # Operations

    def _start(self, message: ClientMessage) -> None:
        self._count += 1
        facts: list[Fact] = []
        request = self._routed.request
        context = RequestContext(self._routed.route.form, request.context.traceparent, facts.append)
        request = request._replace(id=f"{request.id}/{self._count}", context=context)
        operation = WebSocketOperation(self, message)
        operation.routed = self._routed._replace(request=request, facts=facts)
        operation.add(message.body)
        self._operations[message.id] = operation
        self.site.handle(operation, operation.pop_body())

    async def _subscribe(self, _backend: Backend, request: Request) -> Reply:
        return await self._live.subscribe(request, (await self._live.protocols.get()).websocket)

    def begin_feed(self, _feed: Feed) -> bool:
        return self.site.add_feed()

    def ended(self, operation: WebSocketOperation) -> None:
        del self._operations[operation.message.id]
        if operation.feed is not None:
            self.site.remove_feed()
            operation.feed.leave()
        self._close_if_idle()
        self.advance()

    def _drop(self, *operations: WebSocketOperation) -> None:
        for operation in operations:
            operation.lost()
            self.ended(operation)

    @property
    def _subscriptions(self) -> list[WebSocketOperation]:
        return [operation for operation in self._operations.values() if operation.feed is not None]

    # Closing

    def drain(self) -> None:
        self.close(*messages.RESTART, cancels=False)

    def close(self, code: int, reason: str, *, cancels: bool = True) -> None:
        """Cancel subscriptions, and close the connection after the other operations have ended.

        ``cancels`` also cancels the other operations.
        """
        self._closing = self._closing or (code, messages.fitting(reason))
        self._drop(*(self._operations.values() if cancels else self._subscriptions))
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        is_open = self._protocol.state is State.OPEN and not self._ended.called
        if self._closing is not None and is_open and not self._operations:
            self._protocol.send_close(*self._closing)
            self._call_later(CLOSE_TIMEOUT, self._end)
            self._flush()

    def _flush(self) -> None:
        data = self._protocol.data_to_send()
        if data:
            self.sender.send(b"".join(data))
        if b"" in data:  # end of the output
            self._end()

    def _end(self) -> None:
        """End the feed. The connection is closed when everything has been sent."""
        if not self._ended.called:
            self._ended.callback(None)
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._drop(*self._operations.values())

    def _check(self) -> None:
        """Send a ping, or end the connection of a client that does not respond or read."""
        self._call_later(HEARTBEAT_INTERVAL, self._check)
        stalled = self.sender.waits and self.progressed < self.site.reactor.seconds() - STALL_TIMEOUT
        if not self._initialised:
            self.close(4408, "Connection initialisation timeout")
        elif stalled or self._unanswered == _MAX_UNANSWERED:
            self.abort()
        elif self._is_reading:  # otherwise, the client's pongs would not be read
            self._unanswered += 1
            self._protocol.send_ping(b"")
            self._flush()

    def _call_later(self, seconds: float, act: Callable[[], None]) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = self.site.reactor.callLater(seconds, act)

    @property
    def progressed(self) -> float:
        return self._connection.progressed


class WebSocketOperation(ServerRequest):
    """An operation of a session. ``feed`` is its subscription, or None if there is none yet."""

    __slots__ = ("_last", "_session", "feed", "message")

    def __init__(self, session: GraphQLSession, message: ClientMessage) -> None:
        head = Head("POST", b"", 1, Headers(), len(message.body), closes=False)
        super().__init__(cast("RequestConnection", session), head)
        self._session = session
        self._last = memoryview(b"")
        self.message = message
        self.feed: Feed | None = None

    def send(self, reply: Reply, _headers: tuple[tuple[str, str], ...]) -> None:
        self.response_started = True
        self.write(Chunk(reply.body if reply.code == "" else messages.failure(reply.body, reply.status)))

    async def send_feed(self, _reply: Reply, feed: Feed, _headers: tuple[tuple[str, str], ...]) -> None:
        self.response_started = True
        self.feed = feed
        self._session.advance()
        if self.gone:  # ended by a message that has waited, such as its own ``complete``
            raise CancelledError
        await feed.write_to(self)

    def write(self, piece: Chunk) -> None:
        if piece is not HEARTBEAT:
            self._last = piece.plain
            if messages.parse_closing(self._last) is None:
                self._session.sender.send(messages.beginning(self.message.id))
                self._session.sender.send(self._last)

    def finish(self) -> None:
        self._forget_body()
        closing = messages.parse_closing(self._last)
        if closing is None and not messages.is_failure(self._last):
            self._session.sender.send(messages.plain("complete", id=self.message.id))
        self._session.ended(self)
        if closing is not None:
            self._session.close(*closing, cancels=False)
