"""Subscribers, and writing to them: events, heartbeats, and no more than what they take."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from dataapi.http.messages import Outlet
from dataapi.live.events import HEARTBEAT, Snapshot

SILENCE = 15.0
"""Seconds without an event after which a heartbeat is sent."""

STALLED = 60.0
"""Seconds in which a client has to take an event; one that does not is disconnected."""

HELD = 64 * 1024 * 1024
"""Bytes of events that clients may leave waiting together; one that would hold more is disconnected."""


class Subscriber:
    """The feed of a client: what it was sent, and what it has to take.

    :ivar caller: whose it is, for the limit on one caller's.
    :ivar identifier: of the snapshot that it was sent last.
    :ivar since: when its own first answer was asked for; others that were asked for earlier may be older.
    :ivar outlet: None before the stream begins and after its end.
    :ivar heard: when it was sent something, by the reactor's clock.
    :ivar held: bytes that it has not taken, 0 once it has taken all.
    :ivar last: the event that ended the subscription, None before.
    :param begin: called when the stream begins.
    :param leave: called when it has ended, or did not begin.
    """

    __slots__ = (
        *("_begin", "_ended", "_leave", "caller", "heard", "held", "identifier", "last", "outlet", "since"),
    )

    def __init__(
        self,
        caller: str,
        identifier: str,
        since: float,
        begin: Callable[[Subscriber], object],
        leave: Callable[[Subscriber], object],
    ) -> None:
        self.caller = caller
        self.identifier = identifier
        self.since = self.heard = since
        self.held = 0
        self.last: bytes | None = None
        self.outlet: Outlet | None = None
        self._begin = begin
        self._leave = leave
        self._ended: Deferred[None] | None = None

    async def write_to(self, outlet: Outlet) -> None:
        """Write events until the subscription ends."""
        if self.last is None:
            self.outlet = outlet
            self._ended = Deferred()
            self._begin(self)
            await self._ended
        outlet.write(self.last or b"")

    def end(self, last: bytes) -> None:
        """End the subscription by a last event."""
        self.last = last
        self.outlet = None
        ended, self._ended = self._ended, None
        if ended is not None:
            ended.callback(None)

    def leave(self) -> None:
        """Leave, whether the stream began or not."""
        self.outlet = None
        self._leave(self)


class Writer:
    """Writes to the subscribers of a project.

    :ivar sent: bytes of events since the start.
    :ivar held: bytes of events that clients have not taken yet.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        # Those that have taken all, the one first that was sent nothing for the longest time.
        self._silent: OrderedDict[Subscriber, None] = OrderedDict()
        self._slow: dict[Subscriber, Callable[[], None] | None] = {}  # what follows when all was taken
        self.sent = self.held = 0

    def send(self, subscriber: Subscriber, snapshot: Snapshot, again: Callable[[], None]) -> None:
        """Send a snapshot, unless the client has not taken the one before.

        :param again: called when it has.
        """
        if subscriber.held and not self._has_taken(subscriber):
            self._slow[subscriber] = again
            return
        subscriber.identifier = snapshot.identifier
        self._write(subscriber, snapshot.event)

    def _write(self, subscriber: Subscriber, data: bytes) -> None:
        outlet = subscriber.outlet
        if outlet is None:
            return
        outlet.write(data)
        self.sent += len(data)
        subscriber.heard = self._clock.seconds()
        self._silent.move_to_end(subscriber)
        self._expect(subscriber, outlet, len(data))

    def _expect(self, subscriber: Subscriber, outlet: Outlet, size: int) -> None:
        """Wait until a client has taken what it was sent, if it has not at once."""
        if not outlet.waits:
            return
        del self._silent[subscriber]
        self._slow[subscriber] = None
        subscriber.held = size
        self.held += size
        if self.held > HELD:
            outlet.abort()

    def _has_taken(self, subscriber: Subscriber) -> bool:
        """Return whether a client has taken what it was sent."""
        if subscriber.outlet is not None and subscriber.outlet.waits:
            return False
        self.held -= subscriber.held
        subscriber.held = 0
        self._silent[subscriber] = None
        return True

    def begin(self, subscriber: Subscriber) -> None:
        """Take care of a subscriber, whose first answer was sent, from now on."""
        self._silent[subscriber] = None
        if subscriber.outlet is not None:
            self._expect(subscriber, subscriber.outlet, 1)

    def forget(self, subscriber: Subscriber) -> None:
        """Write nothing more to a subscriber."""
        self.held -= subscriber.held
        subscriber.held = 0
        self._silent.pop(subscriber, None)
        self._slow.pop(subscriber, None)

    def tend(self) -> None:
        """Go on with clients that have taken what they were sent, and send heartbeats."""
        now = self._clock.seconds()
        slow, self._slow = self._slow, {}
        for subscriber, again in slow.items():
            if self._has_taken(subscriber):
                if again is not None:
                    again()
            elif subscriber.heard < now - STALLED and subscriber.outlet is not None:
                subscriber.outlet.abort()
            else:
                self._slow[subscriber] = again
        while self._silent:
            subscriber = next(iter(self._silent))
            if subscriber.heard > now - SILENCE:
                return
            self._write(subscriber, HEARTBEAT)
