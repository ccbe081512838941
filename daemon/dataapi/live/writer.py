"""Writing to subscribers: events, heartbeats, and no more than what they take."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from dataapi.live.events import HEARTBEAT, Snapshot

if TYPE_CHECKING:
    from dataapi.http.messages import Outlet
    from dataapi.live.cohort import Subscriber

SILENCE = 15.0
"""Seconds without an event after which a heartbeat is sent."""

STALLED = 60.0
"""Seconds in which a client has to take an event; one that does not is disconnected."""

HELD = 64 * 1024 * 1024
"""Bytes of events that clients may leave waiting together; one that would hold more is disconnected."""


class Writer:
    """Writes to the subscribers of a project.

    :ivar sent: bytes of events since the start.
    :ivar held: bytes of events that clients have not taken yet.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        # Those that have taken all, the one first that was sent nothing for the longest time.
        self._silent: OrderedDict[Subscriber, None] = OrderedDict()
        self._slow: dict[Subscriber, None] = {}
        self.sent = self.held = 0

    def send(self, subscriber: Subscriber, snapshot: Snapshot) -> None:
        """Send a snapshot; a client that has not taken the one before gets the newest when it has."""
        if not subscriber.held or self._has_taken(subscriber):
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
        subscriber.cohort.write(subscriber)

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
        for subscriber in slow:
            if self._has_taken(subscriber):
                subscriber.cohort.write(subscriber)
            elif subscriber.heard < now - STALLED and subscriber.outlet is not None:
                subscriber.outlet.abort()
            else:
                self._slow[subscriber] = None
        while self._silent:
            subscriber = next(iter(self._silent))
            if subscriber.heard > now - SILENCE:
                return
            self._write(subscriber, HEARTBEAT)
