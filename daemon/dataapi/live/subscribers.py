"""The streams of a project: what each client has yet to take, heartbeats, and who is disconnected."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from dataapi.http.messages import Chunk, Outlet
from dataapi.live.events import HEARTBEAT
from dataapi.live.unsent import UnsentBytes

SILENCE = 15.0
"""Seconds without an event after which a heartbeat is sent."""

STALLED = 60.0
"""Seconds that a client has to take an event before it is disconnected."""

MAX_UNSENT = 64 * 1024 * 1024
"""Bytes of events that may wait to be taken before those who do not keep up are disconnected."""

KEEPS_UP = 2.0, 20.0
"""A client keeps up if it takes a part of an event every 2 seconds, and each event within 20."""


class Subscriber:
    """One stream and its client.

    :ivar caller: whom the stream counts for.
    :ivar identifier: the identifier of the newest event that was sent or is waiting.
    :ivar since: when its own first answer was requested. Answers that were requested earlier may be older.
    :ivar began: when the last event was sent, by the reactor's clock.
    :ivar outlet: None before the response begins and after the client was disconnected.
    :ivar sending: the event that the client is taking.
    :ivar waiting: the event that follows it.
    :ivar last: the event that ended the subscription, None before.
    :param left: called when the stream has ended and its connection is closed.
    :param first: the first event.
    """

    __slots__ = (
        *(
            "_streams",
            "_ended",
            "_gone",
            "_left",
            "began",
            "caller",
            "identifier",
            "last",
            "outlet",
            "sending",
        ),
        *("since", "waiting"),
    )

    def __init__(
        self,
        streams: Subscribers,
        left: Callable[[Subscriber], object],
        caller: str,
        identifier: str,
        since: float,
        first: Chunk,
    ) -> None:
        self._left = left
        self.caller = caller
        self.identifier = identifier
        self.since = self.began = since
        self.outlet: Outlet | None = None
        self.sending: Chunk | None = None
        self.waiting: Chunk | None = first
        self.last: Chunk | None = None
        self._streams = streams
        self._gone = False
        self._ended: Deferred[None] = Deferred()
        streams.unsent.hold(first, caller)

    async def write_to(self, outlet: Outlet) -> None:
        """Write events until the subscription ends, and then the last event."""
        if self.last is None:
            self.outlet = outlet
            self._send_waiting()
            await self._ended
        outlet.write(self.last or Chunk(b""))

    def offer(self, event: Chunk, identifier: str) -> None:
        """Send an event as soon as the client has taken the one before, unless a newer one follows."""
        if self._gone or self.last is not None:
            return
        self.identifier = identifier
        self._streams.unsent.hold(event, self.caller)
        self._release(self.waiting)
        self.waiting = event
        if self.outlet is not None and self.sending is None:
            self._send_waiting()

    def send_heartbeat(self) -> None:
        """Send a heartbeat, by which both sides notice a lost connection."""
        self.offer(HEARTBEAT, self.identifier)

    def _send_waiting(self) -> None:
        event, self.waiting = self.waiting, None
        assert event is not None
        assert self.outlet is not None
        self.sending = event
        self.began = self._streams.clock.seconds()
        self._streams.sending(self, event)
        self.outlet.write(event)
        if not self.outlet.waits:
            self.resume()

    def resume(self) -> None:
        """Send the event that is waiting, now that the client has taken the one before."""
        if self.sending is None:
            return
        sent, self.sending = self.sending, None
        self._release(sent)
        if self.waiting is not None:
            self._send_waiting()
        else:
            self._streams.idle(self)

    def end(self, last: Chunk) -> None:
        """End the subscription with a last event. The stream counts until its connection is closed."""
        if self.last is None:
            self.last = last
            self._release(self.waiting)
            self.waiting = None
            self._ended.callback(None)

    def disconnect(self) -> None:
        """Close the connection, and drop what the client has not taken."""
        outlet, self.outlet = self.outlet, None
        self._drop()
        if outlet is not None:
            outlet.abort()

    def leave(self) -> None:
        """Leave the cohort, because the connection is closed or the response was not begun."""
        self._drop()
        self._left(self)

    def _drop(self) -> None:
        self._gone = True
        self._streams.gone(self)
        for event in (self.sending, self.waiting):
            self._release(event)
        self.sending = self.waiting = None

    def _release(self, event: Chunk | None) -> None:
        if event is not None:
            self._streams.release(event, self.caller)


class Subscribers:
    """All streams of a project.

    :ivar unsent: the bytes that clients have not taken.
    :ivar sent: bytes of events since the start.
    :param has_room: called when the bytes of unsent events fall below the limit.
    """

    def __init__(self, clock: Any, has_room: Callable[[], object]) -> None:
        self.clock = clock
        self.unsent = UnsentBytes()
        self.sent = 0
        self._has_room = has_room
        # Subscribers that have taken everything, the longest silence first.
        self._idle: OrderedDict[Subscriber, None] = OrderedDict()
        self._busy: dict[Subscriber, None] = {}

    @property
    def is_full(self) -> bool:
        """Whether clients hold more unsent bytes than they may."""
        return self.unsent.total > MAX_UNSENT

    def sending(self, subscriber: Subscriber, event: Chunk) -> None:
        """Record that an event is being sent."""
        self.sent += len(event)
        self._idle.pop(subscriber, None)
        self._busy[subscriber] = None

    def idle(self, subscriber: Subscriber) -> None:
        """Record that a client has taken everything."""
        self._busy.pop(subscriber, None)
        self._idle[subscriber] = None

    def gone(self, subscriber: Subscriber) -> None:
        """Send nothing more."""
        self._idle.pop(subscriber, None)
        self._busy.pop(subscriber, None)

    def release(self, event: Chunk, caller: str) -> None:
        """Count an event no longer."""
        was_full = self.is_full
        self.unsent.release(event, caller)
        if was_full and not self.is_full:
            self._has_room()

    def may_subscribe(self, caller: str) -> bool:
        """Return whether there is room for the events of one more stream of a caller.

        A caller whose clients do not keep up may hold a quarter of the limit.
        """
        self.make_room()
        if self.is_full:
            return False
        return self.unsent.of(caller) <= MAX_UNSENT // 4 or caller not in {one.caller for one in self._late()}

    def make_room(self) -> None:
        """Disconnect clients that do not keep up, those of the caller who holds the most first."""
        if not self.is_full:
            return
        late: dict[str, list[Subscriber]] = {}
        for subscriber in self._late():
            late.setdefault(subscriber.caller, []).append(subscriber)
        for caller in sorted(late, key=self.unsent.of, reverse=True):
            for subscriber in late[caller]:
                subscriber.disconnect()
                if not self.is_full:
                    return

    def _late(self) -> list[Subscriber]:
        """Return the subscribers that do not keep up."""
        now = self.clock.seconds()
        progress, whole = KEEPS_UP
        return [
            one
            for one in self._busy
            if one.outlet is not None
            and (max(one.began, one.outlet.progressed) < now - progress or one.began < now - whole)
        ]

    def tend(self) -> None:
        """Disconnect clients that take too long, and send heartbeats to those that are idle."""
        now = self.clock.seconds()
        for subscriber in [one for one in self._busy if one.began < now - STALLED]:
            subscriber.disconnect()
        self.make_room()
        while self._idle:
            subscriber = next(iter(self._idle))
            if subscriber.began > now - SILENCE:
                return
            subscriber.send_heartbeat()
