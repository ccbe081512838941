"""The subscribers that share one answer, and how it is kept current."""

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
"""Subscribers that are written to before the reactor serves requests again, about a millisecond."""


class Finished(Exception):
    """Raised for the last answer of a stream: an error, or the result of an operation that runs only once.

    :ivar code: the code of the first error, "" if there is none.
    """

    def __init__(self, body: bytes, code: str) -> None:
        super().__init__(code or "an operation that runs once")
        self.body = body
        self.code = code


class LiveProtocol(NamedTuple):
    """A protocol whose answers can be kept live.

    :ivar answer: returns the body for a request. Raises ``ApiError``, or ``Finished`` for a last answer.
    :ivar event: returns the event of a body and its identifier.
    :ivar end: returns the last event of a subscription, from its request and the exception that ended it.
    :ivar reconnect: returns the last event of one whose client should reconnect, after some seconds.
    """

    answer: Callable[[Request], Awaitable[bytes]]
    event: Callable[[bytes, str], bytes]
    end: Callable[[Request, ApiError | Finished], bytes]
    reconnect: Callable[[float], bytes]


class Cohort:
    """The subscribers that share one answer.

    :param key: equal for equal requests.
    :param request: the request to run; its headers identify the caller.
    :param first: the body of the first answer.
    :param cost: the seconds that it took, for the order of runs.
    :param expires: when the token expires, in Unix seconds.
    :ivar callers: how many subscribers each caller has.
    :ivar seen: the database state that the last answer belongs to; ``UNKNOWN`` if another run is needed.
    :ivar asked: when the last run began, by the reactor's clock.
    :ivar authenticated: when the request was last authenticated.
    :ivar polling: whether the request is being run or its answer sent.
    :ivar outdated: since when its answer is that a name is unknown, which a newer catalog may know.
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
        self.seen: DatabaseState = UNKNOWN
        self.asked = self.authenticated = clock.seconds()
        self.polling = False
        self.outdated: float | None = None
        self._text = ""
        self._compares_time = depends_on_time(request)
        self._identifier = fingerprint(first)
        self._events: WeakValueDictionary[str, Chunk] = WeakValueDictionary()

    def event(self, body: bytes, identifier: str) -> Chunk:
        """Return the event of a body: the same object for as long as a subscriber holds it."""
        event = self._events.get(identifier)
        if event is None:
            event = self._events[identifier] = Chunk(self.protocol.event(body, identifier))
        return event

    def join(self, subscriber: Subscriber) -> None:
        """Add a subscriber, which has received an answer of its own."""
        self.subscribers[subscriber] = None
        self.callers[subscriber.caller] += 1
        if subscriber.identifier != self._identifier:
            self.seen = UNKNOWN

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        if self.subscribers.pop(subscriber, subscriber) is None:
            self.callers[subscriber.caller] -= 1
            if not self.callers[subscriber.caller]:
                del self.callers[subscriber.caller]

    def changes_alone(self, untracked: Iterable[str]) -> bool:
        """Return whether the answer may change without a transaction.

        :param untracked: names of tables, views and functions with such data.
        """
        return self._compares_time or (bool(self._text) and any(name in self._text for name in untracked))

    def names(self, names: Iterable[str]) -> bool:
        """Return whether the statement of the last answer may contain one of these names, or is unknown."""
        return not self._text or any(name in self._text for name in names)

    async def ask(self, state: DatabaseState) -> bytes:
        """Run the request again and return the body. Raises what the request raises."""
        texts: list[str] = []

        def report(fact: Fact) -> None:
            if isinstance(fact, RoundTrip):
                texts.append(fact.text)

        self.asked, self.seen = self._clock.seconds(), state
        request = self.request._replace(context=self.request.context._replace(report=report))
        if state.position:  # a replica behind this position must not answer
            headers = Headers(request.headers)
            headers["dataapi-lsn"] = ", ".join(filter(None, (headers.get("dataapi-lsn"), state.position)))
            request = request._replace(headers=headers)
        body = await self.protocol.answer(request)
        self.cost = self._clock.seconds() - self.asked
        self.authenticated, self._text, self.outdated = self.asked, "".join(texts), None
        return body

    async def publish(self, body: bytes) -> bool:
        """Send an answer to everybody who has another one; return whether it differs from the one before."""
        identifier = fingerprint(body)
        changed = identifier != self._identifier
        self._identifier = identifier
        outdated = [
            one for one in self.subscribers if one.identifier != identifier and one.since < self.asked
        ]
        if outdated:
            event = self.event(body, identifier)
            await self._for_each(outdated, lambda one: one.offer(event, identifier))
        return changed

    async def end(self, last: Callable[[], Chunk]) -> None:
        """End every subscription with a last event."""
        await self._for_each(tuple(self.subscribers), lambda one: one.end(last()))

    async def _for_each(self, subscribers: Sequence[Subscriber], act: Callable[[Subscriber], None]) -> None:
        """Act on each subscriber, and let the reactor serve requests in between."""
        for number, subscriber in enumerate(subscribers, 1):
            act(subscriber)
            if number % WRITTEN_PER_TURN == 0:
                await deferLater(self._clock, 0)
