"""The event streams of a project: unsent events, heartbeats, and disconnection of slow clients."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from dataapi.http.messages import Chunk, Outlet
from dataapi.live.events import HEARTBEAT
from dataapi.live.unsent import UnsentBytes

HEARTBEAT_INTERVAL = 15.0
"""Seconds without an event before a heartbeat is sent."""

STALL_TIMEOUT = 60.0
"""Seconds for a client to receive an event. After that, the client is disconnected."""

MAX_UNSENT = 64 * 1024 * 1024
"""Bytes of unsent events at which slow clients are disconnected."""

SLOW_CLIENT_TIMEOUTS = 2.0, 20.0
"""Maximum seconds until a client receives more of an event, and until it has received a whole event."""


class Subscriber:
    """An event stream and its client.

    :ivar caller: identity of the caller, for quotas.
    :ivar identifier: identifier of the newest event that was sent or is waiting.
    :ivar since: start of the subscription's first execution. Results of earlier executions are not sent.
    :ivar started: reactor time of the last write.
    :ivar outlet: the client's connection, None before the response begins and after a disconnect.
    :ivar sending: event that the client is receiving.
    :ivar waiting: event to send next.
    """

    __slots__ = (
        "_ended",
        "_gone",
        "_left",
        "_streams",
        "caller",
        "identifier",
        "last",
        "outlet",
        "sending",
        "since",
        "started",
        "waiting",
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
        self.since = self.started = since
        self.outlet: Outlet | None = None
        self.sending: Chunk | None = None
        self.waiting: Chunk | None = first
        self.last: Chunk | None = None
        self._streams = streams
        self._gone = False
        self._ended: Deferred[None] = Deferred()
        streams.unsent.add(first, caller)

    async def write_to(self, outlet: Outlet) -> None:
        if self.last is None:
            self.outlet = outlet
            self._send_waiting()
            await self._ended
        outlet.write(self.last or Chunk(b""))

    def offer(self, event: Chunk, identifier: str) -> None:
        """Send an event when the client has received the previous one, unless a newer event replaces it."""
        if self._gone or self.last is not None:
            return
        self.identifier = identifier
        self._streams.unsent.add(event, self.caller)
        self._release(self.waiting)
        self.waiting = event
        if self.outlet is not None and self.sending is None:
            self._send_waiting()

    def send_heartbeat(self) -> None:
        self.offer(HEARTBEAT, self.identifier)

    def _send_waiting(self) -> None:
        event, self.waiting = self.waiting, None
        assert event is not None
        assert self.outlet is not None
        self.sending = event
        self.started = self._streams.clock.seconds()
        self._streams.sending(self, event)
        self.outlet.write(event)
        if not self.outlet.waits:
            self.resume()

    def resume(self) -> None:
        if self.sending is None:
            return
        sent, self.sending = self.sending, None
        self._release(sent)
        if self.waiting is not None:
            self._send_waiting()
        else:
            self._streams.idle(self)

    def end(self, last: Chunk) -> None:
        """End the subscription with a last event.

        The stream counts as a subscription until its connection is closed.
        """
        if self.last is None:
            self.last = last
            self._release(self.waiting)
            self.waiting = None
            self._ended.callback(None)

    def disconnect(self) -> None:
        outlet, self.outlet = self.outlet, None
        self._drop()
        if outlet is not None:
            outlet.abort()

    def leave(self) -> None:
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
    """The event streams of a project. Counts the bytes of sent and unsent events.

    ``has_room`` is called when the number of unsent bytes falls below the limit.
    """

    def __init__(self, clock: Any, has_room: Callable[[], object]) -> None:
        self.clock = clock
        self.unsent = UnsentBytes()
        self.sent = 0
        self._has_room = has_room
        # Subscribers without unsent events, the longest idle first.
        self._idle: OrderedDict[Subscriber, None] = OrderedDict()
        self._busy: dict[Subscriber, None] = {}

    @property
    def is_full(self) -> bool:
        return self.unsent.total > MAX_UNSENT

    def sending(self, subscriber: Subscriber, event: Chunk) -> None:
        self.sent += len(event)
        self._idle.pop(subscriber, None)
        self._busy[subscriber] = None

    def idle(self, subscriber: Subscriber) -> None:
        self._busy.pop(subscriber, None)
        self._idle[subscriber] = None

    def gone(self, subscriber: Subscriber) -> None:
        self._idle.pop(subscriber, None)
        self._busy.pop(subscriber, None)

    def release(self, event: Chunk, caller: str) -> None:
        was_full = self.is_full
        self.unsent.release(event, caller)
        if was_full and not self.is_full:
            self._has_room()

    def may_subscribe(self, caller: str) -> bool:
        """Whether a caller may open another stream.

        A caller with slow clients may not if its unsent bytes exceed a quarter of ``MAX_UNSENT``.
        """
        self.make_room()
        if self.is_full:
            return False
        return self.unsent.of(caller) <= MAX_UNSENT // 4 or caller not in {
            subscriber.caller for subscriber in self._slow()
        }

    def make_room(self) -> None:
        """Disconnect slow clients while too many bytes are unsent.

        The slow clients of the caller with the most unsent bytes come first.
        """
        if not self.is_full:
            return
        slow: dict[str, list[Subscriber]] = {}
        for subscriber in self._slow():
            slow.setdefault(subscriber.caller, []).append(subscriber)
        for caller in sorted(slow, key=self.unsent.of, reverse=True):
            for subscriber in slow[caller]:
                subscriber.disconnect()
                if not self.is_full:
                    return

    def _slow(self) -> list[Subscriber]:
        now = self.clock.seconds()
        progress, complete = SLOW_CLIENT_TIMEOUTS
        return [
            subscriber
            for subscriber in self._busy
            if subscriber.outlet is not None
            and (
                max(subscriber.started, subscriber.outlet.progressed) < now - progress
                or subscriber.started < now - complete
            )
        ]

    def maintain(self) -> None:
        now = self.clock.seconds()
        for subscriber in [
            subscriber for subscriber in self._busy if subscriber.started < now - STALL_TIMEOUT
        ]:
            subscriber.disconnect()
        self.make_room()
        while self._idle:
            subscriber = next(iter(self._idle))
            if subscriber.started > now - HEARTBEAT_INTERVAL:
                return
            subscriber.send_heartbeat()
