"""Subscribers that share one result, and the request that refreshes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from twisted.internet.task import deferLater

from dataapi.http.errors import ApiError
from dataapi.http.headers import Headers
from dataapi.http.messages import Chunk, Fact, Request, RoundTrip
from dataapi.live.changes import UNKNOWN, DatabaseState, depends_on_time
from dataapi.live.events import fingerprint
from dataapi.live.subscribers import Subscriber

WRITTEN_PER_TURN = 50
"""Number of subscribers to write to before the reactor serves requests again, about a millisecond of work."""


class Finished(Exception):
    """Raised for the last result of a stream: an error, or the result of an operation that runs only once.

    ``rejected`` is true if the operation was not executed. The body then contains only errors.
    """

    def __init__(self, body: bytes, code: str, *, rejected: bool) -> None:
        super().__init__(code or "an operation that runs once")
        self.body = body
        self.code = code
        self.rejected = rejected


class LiveProtocol(NamedTuple):
    """A protocol that supports live queries.

    :ivar respond: returns the response body for a request. Raises ``ApiError``, or ``Finished`` for a last
        result.
    :ivar event: returns the event for a body and its identifier.
    :ivar end: returns the last event of a subscription, given its request and the exception that ended it.
    :ivar reconnect: returns an event that ends a stream and makes its client reconnect after a delay in
        seconds.
    """

    respond: Callable[[Request], Awaitable[bytes]]
    event: Callable[[bytes, str], bytes]
    end: Callable[[Request, ApiError | Finished], bytes]
    reconnect: Callable[[float], bytes]


class LiveProtocols(NamedTuple):
    """The live query protocols of a project."""

    rest: LiveProtocol
    graphql: LiveProtocol
    websocket: LiveProtocol


class Cohort:
    """The subscribers that share one result.

    :param key: key of the request. Equal requests have equal keys.
    :param request: the request to run. Its headers identify the caller.
    :param cost: duration of the request's first execution, in seconds.
    :param expires: expiry of the token, in Unix seconds.
    :ivar state: database state of the last result, or ``UNKNOWN`` if the request must run again.
    :ivar last_run: reactor time when the last execution began.
    :ivar authenticated: reactor time of the last authentication.
    :ivar running: whether the request is running or its result is being sent.
    :ivar outdated: reactor time when a name was first unknown because the catalog was outdated.
    """

    def __init__(
        self,
        clock: Any,
        key: object,
        request: Request,
        protocol: LiveProtocol,
        first: bytes,
        cost: float,
        expires: float,
    ) -> None:
        self.key = key
        self._clock = clock
        self.request = request
        self.protocol = protocol
        self.cost = cost
        self.expires = expires
        self.subscribers: dict[Subscriber, None] = {}
        self.callers: Counter[str] = Counter()
        self.state: DatabaseState = UNKNOWN
        self.last_run = self.authenticated = clock.seconds()
        self.running = False
        self.outdated: float | None = None
        self._text = ""
        self._compares_time = depends_on_time(request)
        self._identifier = fingerprint(first)
        self._events: WeakValueDictionary[str, Chunk] = WeakValueDictionary()

    def event(self, body: bytes, identifier: str) -> Chunk:
        """Return the event for a body. Subscribers share one object, so that its bytes are stored once."""
        event = self._events.get(identifier)
        if event is None:
            event = self._events[identifier] = Chunk(self.protocol.event(body, identifier))
        return event

    def join(self, subscriber: Subscriber) -> None:
        self.subscribers[subscriber] = None
        self.callers[subscriber.caller] += 1
        if subscriber.identifier != self._identifier:
            self.state = UNKNOWN

    def leave(self, subscriber: Subscriber) -> None:
        if self.subscribers.pop(subscriber, subscriber) is None:
            self.callers[subscriber.caller] -= 1
            if not self.callers[subscriber.caller]:
                del self.callers[subscriber.caller]

    def changes_without_transaction(self, untracked: Iterable[str]) -> bool:
        """Whether the result may change without a commit.

        :param untracked: see ``Changes.untracked``.
        """
        return self._compares_time or (bool(self._text) and any(name in self._text for name in untracked))

    def mentions_any(self, names: Iterable[str]) -> bool:
        # The request's first execution does not record the text of its statements.
        return not self._text or any(name in self._text for name in names)

    async def run(self, state: DatabaseState) -> bytes:
        """Run the request again, and return the body. Raises the request's errors."""
        texts: list[str] = []

        def report(fact: Fact) -> None:
            if isinstance(fact, RoundTrip):
                texts.append(fact.text)

        self.last_run, self.state = self._clock.seconds(), state
        request = self.request._replace(context=self.request.context._replace(report=report))
        if state.position:  # a replica must have replayed this position
            headers = Headers(request.headers)
            headers["dataapi-lsn"] = ", ".join(filter(None, (headers.get("dataapi-lsn"), state.position)))
            request = request._replace(headers=headers)
        body = await self.protocol.respond(request)
        self.cost = self._clock.seconds() - self.last_run
        self.authenticated, self._text, self.outdated = self.last_run, "".join(texts), None
        return body

    async def publish(self, body: bytes) -> bool:
        """Send a result to subscribers whose last result differs. Return whether the result changed."""
        identifier = fingerprint(body)
        changed = identifier != self._identifier
        self._identifier = identifier
        outdated = [
            subscriber
            for subscriber in self.subscribers
            if subscriber.identifier != identifier and subscriber.since < self.last_run
        ]
        if outdated:
            event = self.event(body, identifier)
            await self._for_each(outdated, lambda subscriber: subscriber.offer(event, identifier))
        return changed

    async def end(self, last: Callable[[], Chunk]) -> None:
        await self._for_each(tuple(self.subscribers), lambda subscriber: subscriber.end(last()))

    async def _for_each(self, subscribers: Sequence[Subscriber], act: Callable[[Subscriber], None]) -> None:
        for number, subscriber in enumerate(subscribers, 1):
            act(subscriber)
            if number % WRITTEN_PER_TURN == 0:
                await deferLater(self._clock, 0)
