"""The subscribers that share one answer, and how it is kept current."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from dataapi.http.errors import ApiError
from dataapi.http.headers import Headers
from dataapi.http.messages import Fact, Outlet, Request, RoundTrip
from dataapi.live.changes import UNKNOWN, State
from dataapi.live.events import Snapshot
from dataapi.live.writer import Writer

AT_ONCE = 50
"""Subscribers that are written to before requests are answered again, about a millisecond."""


class Finished(Exception):
    """The last answer of a stream: an error, or the result of an operation that runs only once.

    :ivar code: that of the first error, "" without one.
    """

    def __init__(self, body: bytes, code: str) -> None:
        super().__init__(code or "an operation that runs once")
        self.body = body
        self.code = code


class Dialect(NamedTuple):
    """A protocol whose answers can be kept open.

    :ivar answer: gives the body of a request's answer; raises ``ApiError``, and ``Finished`` for a last one.
    :ivar snapshot: makes the event of a body.
    :ivar end: makes what ends a subscription, of its request and what was raised.
    :ivar reconnect: makes what ends a subscription that the client should begin again after some seconds.
    """

    answer: Callable[[Request], Awaitable[bytes]]
    snapshot: Callable[[bytes], Snapshot]
    end: Callable[[Request, ApiError | Finished], bytes]
    reconnect: Callable[[float], bytes]


class Subscriber:
    """The feed of a client: what it was sent, and what it has to take.

    :ivar caller: whose it is, for the limit on one caller's.
    :ivar identifier: of the snapshot that it was sent last.
    :ivar since: when its own first answer was asked for; others that were asked for earlier may be older.
    :ivar outlet: None before the stream begins and after its end.
    :ivar heard: when it was sent something, by the reactor's clock.
    :ivar held: bytes that it has not taken, 0 once it has taken all.
    :ivar last: the event that ended the subscription, None before.
    :param gone: called when the stream has ended, or did not begin.
    """

    __slots__ = (
        *("_ended", "_gone", "caller", "cohort", "heard", "held", "identifier", "last", "outlet", "since"),
    )

    def __init__(
        self, cohort: Cohort, caller: str, identifier: str, since: float, gone: Callable[[Subscriber], object]
    ) -> None:
        self.cohort = cohort
        self.caller = caller
        self.identifier = identifier
        self.since = self.heard = since
        self.held = 0
        self.last: bytes | None = None
        self.outlet: Outlet | None = None
        self._gone = gone
        self._ended: Deferred[None] = Deferred()

    async def write_to(self, outlet: Outlet) -> None:
        """Write events until the subscription ends."""
        if self.last is None:
            self.outlet = outlet
            self.cohort.writer.begin(self)
            await self._ended
        outlet.write(self.last or b"")

    def end(self, last: bytes) -> None:
        """End the subscription by a last event."""
        if self.last is None:
            self.last, self.outlet = last, None
            self._ended.callback(None)

    def leave(self) -> None:
        """Leave, whether the stream began or not."""
        self.outlet = None
        self._gone(self)


class Cohort:
    """The subscribers that share one answer.

    :param key: equal for equal requests.
    :param request: gives the answer, and tells by itself whose it is.
    :param first: the first one that was given.
    :ivar seen: the state of the database that the last answer is of, ``UNKNOWN`` where another is needed.
    :ivar asked: when that was asked for, by the reactor's clock.
    :ivar expires: when the token does, in Unix seconds.
    :ivar authenticated: when the request was last found to be the caller's.
    :ivar polling: whether the next answer is being made or sent.
    :ivar outdated: since when its answer is that a name is unknown, which a newer catalog may know.
    """

    def __init__(
        self,
        clock: Any,
        writer: Writer,
        key: object,
        request: Request,
        dialect: Dialect,
        first: Snapshot,
        expires: float,
    ) -> None:
        self.key = key
        self._clock = clock
        self.writer = writer
        self.request = request
        self.dialect = dialect
        self.expires = expires
        self.subscribers: dict[Subscriber, None] = {}
        self.seen: State = UNKNOWN
        self.asked = self.authenticated = clock.seconds()
        self.polling = False
        self.outdated: float | None = None
        self._text = ""
        self._snapshot = first
        self._asked_of_snapshot = self.asked

    def join(self, subscriber: Subscriber) -> None:
        """Add a subscriber, which has got an answer of its own."""
        self.subscribers[subscriber] = None
        if subscriber.identifier != self._snapshot.identifier:
            self.seen = UNKNOWN

    def names(self, names: Iterable[str]) -> bool:
        """Return whether the statement of the last answer may name one of these, or is not known."""
        return not self._text or any(name in self._text for name in names)

    async def ask(self, state: State) -> bytes:
        """Run the request again; raises like the request."""
        texts: list[str] = []

        def report(fact: Fact) -> None:
            if isinstance(fact, RoundTrip):
                texts.append(fact.text)

        self.asked, self.seen = self._clock.seconds(), state
        request = self.request._replace(context=self.request.context._replace(report=report))
        if state.position:  # as no replica may answer that is behind it
            headers = Headers(request.headers)
            headers["dataapi-lsn"] = ", ".join(filter(None, (headers.get("dataapi-lsn"), state.position)))
            request = request._replace(headers=headers)
        body = await self.dialect.answer(request)
        self.authenticated, self._text, self.outdated = self.asked, "".join(texts), None
        return body

    def take(self, body: bytes) -> bool:
        """Make an answer the newest one, and return whether it differs from the one before."""
        snapshot = self.dialect.snapshot(body)
        self._asked_of_snapshot = self.asked
        if snapshot.identifier == self._snapshot.identifier:
            return False
        self._snapshot = snapshot
        return True

    async def publish(self) -> None:
        """Send the newest answer to all who have another one."""
        newest = self._snapshot.identifier
        await self._in_turn([one for one in self.subscribers if one.identifier != newest], self.write)

    def write(self, subscriber: Subscriber) -> None:
        """Send a subscriber the newest snapshot that is newer than its own."""
        is_newer = self._asked_of_snapshot > subscriber.since
        if is_newer and subscriber.outlet is not None and subscriber.identifier != self._snapshot.identifier:
            self.writer.send(subscriber, self._snapshot)

    async def end(self, last: Callable[[], bytes]) -> None:
        """End every subscription by a last event."""
        await self._in_turn(list(self.subscribers), lambda one: one.end(last()))

    async def _in_turn(self, subscribers: list[Subscriber], act: Callable[[Subscriber], None]) -> None:
        """Do something for each subscriber, while requests are answered between them."""
        for number, subscriber in enumerate(subscribers, 1):
            act(subscriber)
            if number % AT_ONCE == 0:
                await deferLater(self._clock, 0)
