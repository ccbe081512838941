"""Which claimed attempts may begin: so many in all, and so many to one host.

A host has a lane.  What was claimed for it beyond the attempts that it may have at once waits in its lane, so
that the next one begins without asking the database; how much may wait follows from how fast the host
answers, so a host that hangs holds up nothing.

Nor do many of them: hosts whose last attempt was slow share half of the attempts evenly, so that the rest
have the other half.  Each of them may always have one attempt, by which it is found to be quick again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from urllib.parse import urlsplit
from uuid import UUID

from dataapi.webhooks.slow import SlowNames
from dataapi.webhooks.work import Claim, DueWork

AHEAD = 0.1
"""Seconds of a host's work that wait in its lane: more than one claim takes."""

MOST_AHEAD = 256
"""Attempts that wait in one lane at most."""

_IDLE = 1.0
"""Attempts per second below which an idle host's rate is not worth remembering."""


@dataclass(frozen=True, slots=True)
class Held:
    """Claimed work.

    :ivar since: seconds, by the caller's clock, when its lease began.
    """

    work: DueWork
    since: float


@dataclass(slots=True)
class _Lane:
    """The attempts of one host.

    :ivar running: how many are under way.
    :ivar rate: attempts that ended, per second.
    :ivar ended: how many ended since ``rate`` was reckoned.
    :ivar more: whether the database may have more of them that are due.
    :ivar refused: whether the current claim had more of them than may wait.
    :ivar slow: whether the last one that ended was slow.
    """

    endpoints: set[UUID] = field(default_factory=set)
    waiting: deque[Held] = field(default_factory=deque)
    running: int = 0
    rate: float = 0.0
    ended: int = 0
    more: bool = False
    refused: bool = False
    slow: bool = False


class Lanes:
    """The attempts under way and those that may begin next.

    :param most: attempts under way at once.
    :param per_host: of these, to one host.
    :param slow: seconds that make an attempt a slow one.
    """

    def __init__(self, most: int, per_host: int, slow: float = inf) -> None:
        self._most = most
        self._per_host = min(per_host, most)
        self._lanes: dict[str, _Lane] = {}
        # Lanes in which something may begin; the first one's turn is next.
        self._turns: OrderedDict[str, _Lane] = OrderedDict()
        # Slow hosts, with a lane or without, and how many have one.
        self._slow = SlowNames(slow)
        self._slow_lanes = 0
        self._reckoned = 0.0
        # Whether there may be more of hosts that have no lane.
        self._more = False
        self.running = 0
        self.waiting = 0

    def room(self) -> int:
        """Return how many attempts are to be claimed, all hosts together."""
        if not self._open:
            self._more = True
            return 0
        return self._most + MOST_AHEAD - self.running - self.waiting

    @property
    def _open(self) -> bool:
        """Whether anything is to be claimed."""
        return self.running < self._most and self.running + self.waiting < self._most + MOST_AHEAD

    def limits(self) -> dict[UUID, int]:
        """Return how many attempts are to be claimed of the endpoints whose hosts are busy."""
        return {
            endpoint: room
            for lane in self._lanes.values()
            for room in (self._room(lane),)
            for endpoint in lane.endpoints
        }

    @property
    def usual_limit(self) -> int:
        """How many attempts are to be claimed of any other endpoint."""
        return self._per_host

    def saturated(self) -> tuple[UUID, ...]:
        """Return the endpoints of which nothing is to be claimed now."""
        return tuple(endpoint for endpoint, room in self.limits().items() if room == 0)

    def _room(self, lane: _Lane) -> int:
        if lane.slow:
            allowed = min(self._per_host, max(1, self._most // 2 // self._slow_lanes))
        else:
            allowed = self._per_host + min(MOST_AHEAD, int(lane.rate * AHEAD))
        return max(0, allowed - lane.running - len(lane.waiting))

    def reckon(self, now: float) -> None:
        """Learn how fast each host is, and forget hosts without work; to be called before a claim.

        :param now: seconds.
        """
        seconds = now - self._reckoned
        if seconds <= 0:
            return
        self._reckoned = now
        weight = seconds / (seconds + AHEAD)
        for host, lane in list(self._lanes.items()):
            lane.rate += weight * (lane.ended / seconds - lane.rate)
            lane.ended = 0
            if not (lane.running or lane.waiting or lane.more or lane.rate >= _IDLE):
                del self._lanes[host]
                self._slow_lanes -= lane.slow

    def add(self, held: Held) -> bool:
        """Take work on; False when its host has as much as it may have, so that it must be given back."""
        host = host_of(held.work.url)
        lane = self._lanes.get(host)
        if lane is None:
            lane = self._lanes[host] = _Lane(slow=host in self._slow)
            self._slow_lanes += lane.slow
        lane.endpoints.add(held.work.endpoint_id)
        if self._room(lane) == 0:
            lane.refused = True
            return False
        lane.waiting.append(held)
        self.waiting += 1
        self._take_turns(host, lane)
        return True

    def claimed(self, counts: Mapping[UUID, int], limits: Mapping[UUID, int], *, all_of_them: bool) -> None:
        """Note of which hosts there may be more in the database, after a claim's work was added.

        :param counts: how many were claimed, by endpoint.
        :param limits: what ``limits`` said for the claim.
        :param all_of_them: whether the claim ended for want of work, not for its own limit.
        """
        self._more = not all_of_them
        for lane in self._lanes.values():
            lane.more = lane.refused or any(
                counts.get(endpoint, 0) >= limits.get(endpoint, self._per_host) for endpoint in lane.endpoints
            )
            lane.refused = False

    def next(self) -> Held | None:
        """Return what begins now, the hosts in turn; None when nothing may."""
        if not self._turns or self.running >= self._most:
            return None
        host, lane = self._turns.popitem(last=False)
        held = lane.waiting.popleft()
        lane.running += 1
        self.running += 1
        self.waiting -= 1
        self._take_turns(host, lane)
        return held

    def hungry(self) -> bool:
        """Tell whether it is time to claim more of what may be there."""
        return self._open and (self._more or any(map(self._hungry, self._lanes.values())))

    def ended(self, work: DueWork, seconds: float = 0.0) -> bool:
        """Note that an attempt ended; True when it is time to claim more.

        :param seconds: how long it took.
        """
        host = host_of(work.url)
        lane = self._lanes[host]
        lane.running -= 1
        lane.ended += 1
        self.running -= 1
        self._slow.took(host, seconds)
        slow = host in self._slow
        self._slow_lanes += slow - lane.slow
        lane.slow = slow
        self._take_turns(host, lane)
        return self._more or self._hungry(lane)

    def _hungry(self, lane: _Lane) -> bool:
        return lane.more and len(lane.waiting) * 2 <= lane.rate * AHEAD and self._room(lane) > 0

    def _take_turns(self, host: str, lane: _Lane) -> None:
        if lane.waiting and lane.running < self._per_host:
            self._turns.setdefault(host, lane)
        else:
            self._turns.pop(host, None)

    def drop(self, is_lost: Callable[[Held], bool]) -> list[Claim]:
        """Take out what waits and is of no use any more, and return its claims."""
        dropped = []
        for host, lane in self._lanes.items():
            kept: deque[Held] = deque()
            for held in lane.waiting:
                if is_lost(held):
                    dropped.append(held.work.claim)
                else:
                    kept.append(held)
            lane.waiting = kept
            self._take_turns(host, lane)
        self.waiting -= len(dropped)
        return dropped


@lru_cache(4096)
def host_of(url: str) -> str:
    """Return the host that a URL names, whatever its port; the URL itself when it cannot be read."""
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url
