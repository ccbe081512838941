"""How many attempts may be under way at once: in all, to each host, and for each organization.

A host of which nothing is known begins with few.  Each attempt that it answers, or that ends quickly, allows
it one more, up to ``concurrency-per-host``; each that it leaves hanging takes half of them away.  Hosts whose
last attempt was slow share half of all attempts evenly, each having one at least, by which it is found to be
quick again.

An organization shares what is left.  To hosts that are not known to be quick it has as many attempts under
way as it leaves free, so half of all when it is alone; with those that are, it leaves a twentieth free.  So
however many of its receivers hang, another organization's attempts begin at once.

What was claimed beyond that waits, in a queue for each organization and host, so that the next attempt begins
without asking the database; how much may wait follows from how fast the host answers.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from urllib.parse import urlsplit
from uuid import UUID

from dataapi.webhooks.work import Claim, DueWork

AHEAD = 0.1
"""Seconds of a host's work that wait for it: more than one claim takes."""

MOST_AHEAD = 256
"""Attempts that wait at most, for one host and beyond the concurrency for all of them."""

UNKNOWN = 2
"""Attempts at once to a host of which nothing is known."""

REMEMBERED = 60.0
"""Seconds for which it is remembered how a host without work answered."""

MOST_REMEMBERED = 10_000
"""Hosts without work that are remembered."""

_QUICK_SHARE = 20
"""How often an organization may have what is free, in attempts to quick hosts."""

_IDLE = 1.0
"""Attempts per second below which an idle host is without work."""


@dataclass(frozen=True, slots=True)
class Held:
    """Claimed work.

    :ivar since: seconds, by the caller's clock, when its lease began.
    """

    work: DueWork
    since: float


@dataclass(slots=True, eq=False)
class _Host:
    """What is known of a host.

    :ivar limit: how many attempts it may have under way.
    :ivar running: how many are.
    :ivar quick: whether the last one that ended was quick; not so before the first one ended.
    :ivar slow: whether it was slow.
    :ivar rate: attempts that ended, per second.
    :ivar ended: how many ended since ``rate`` was reckoned.
    :ivar queues: by organization.
    :ivar blocked: those of them that wait for ``running`` to be below ``limit``.
    :ivar idle_since: seconds, when its last queue went.
    """

    name: str
    limit: int
    running: int = 0
    quick: bool = False
    slow: bool = False
    rate: float = 0.0
    ended: int = 0
    queues: dict[str, _Queue] = field(default_factory=dict)
    blocked: dict[str, _Queue] = field(default_factory=dict)
    idle_since: float = 0.0


@dataclass(slots=True)
class _Share:
    """What an organization has of one kind of hosts, those that are quick or the rest.

    :ivar ready: queues, by host, of which something may begin as far as their hosts are concerned; the first
        one's turn is next.
    """

    running: int = 0
    waiting: int = 0
    ready: OrderedDict[str, _Queue] = field(default_factory=OrderedDict)


@dataclass(slots=True, eq=False)
class _Organization:
    """What an organization has under way and waiting.

    :ivar more: whether the last claim was to leave out what it has for hosts of which nothing is known.
    """

    name: str
    quick: _Share = field(default_factory=_Share)
    other: _Share = field(default_factory=_Share)
    queues: int = 0
    more: bool = False

    def share(self, host: _Host) -> _Share:
        """Return the share that attempts to a host belong to."""
        return self.quick if host.quick else self.other


@dataclass(slots=True, eq=False)
class _Queue:
    """An organization's attempts to one host.

    :ivar more: whether the database may have more of them that are due.
    :ivar refused: whether the current claim had more of them than may wait.
    """

    organization: _Organization
    host: _Host
    endpoints: set[UUID] = field(default_factory=set)
    waiting: deque[Held] = field(default_factory=deque)
    running: int = 0
    more: bool = False
    refused: bool = False


class ConcurrencyLimits:
    """The attempts under way and those that may begin next.

    :param most: attempts under way at once.
    :param per_host: of these, to one host.
    :param slow: seconds that make an attempt a slow one.
    """

    def __init__(self, most: int, per_host: int, slow: float = inf) -> None:
        self._most = most
        self._per_host = min(per_host, most)
        self._slow = slow
        self._hosts: dict[str, _Host] = {}
        # Hosts without queues, in the order in which they lost the last one.
        self._idle: OrderedDict[str, _Host] = OrderedDict()
        self._organizations: dict[str, _Organization] = {}
        self._queues: dict[tuple[str, str], _Queue] = {}
        # Organizations with a queue that is ready; the first one's turn is next.
        self._turns: OrderedDict[str, _Organization] = OrderedDict()
        self._slow_hosts = 0
        self._reckoned = 0.0
        # Whether there may be more for hosts without queues.
        self._more = False
        self.running = 0
        self.waiting = 0

    # What may be claimed

    @property
    def _vacant(self) -> int:
        """How many attempts more may be held, under way or waiting."""
        return self._most + MOST_AHEAD - self.running - self.waiting

    @property
    def _open(self) -> bool:
        """Whether anything is to be claimed."""
        return self.running < self._most and self._vacant > 0

    def room(self) -> int:
        """Return how many attempts are to be claimed: half of what may be held, lest one has all of it."""
        if not self._open:
            self._more = True
            return 0
        return (self._vacant + 1) // 2

    def limits(self) -> dict[UUID, int]:
        """Return how many attempts are to be claimed of the endpoints whose hosts are busy."""
        return {
            endpoint: room
            for queue in self._queues.values()
            for room in (self._room(queue),)
            for endpoint in queue.endpoints
        }

    @property
    def usual_limit(self) -> int:
        """How many attempts are to be claimed of any other endpoint."""
        return min(self._per_host, 2 * UNKNOWN)

    def full(self) -> frozenset[str]:
        """Return the organizations of whose other endpoints nothing is to be claimed."""
        return frozenset(one.name for one in self._organizations.values() if self._waits_long(one.other, 2))

    def saturated(self) -> tuple[UUID, ...]:
        """Return the endpoints of which nothing is to be claimed now."""
        return tuple(endpoint for endpoint, room in self.limits().items() if room == 0)

    def _waits_long(self, share: _Share, times: int) -> bool:
        """Tell whether so many times what waits is more than may still be held."""
        return share.waiting * times > self._vacant

    def _room(self, queue: _Queue) -> int:
        """Return how many attempts of a queue are to be claimed."""
        host = queue.host
        if self._waits_long(queue.organization.share(host), 1 if host.quick else 2):
            return 0
        return self._space(queue, min(self._per_host, 2 * host.limit))

    def _space(self, queue: _Queue, at_once: int) -> int:
        """Return how many attempts more a queue may hold; an organization without any may have one.

        :param at_once: how many may be under way or about to be, unless the host is slow.
        """
        host = queue.host
        if host.slow:
            held = min(host.limit, max(1, self._most // 2 // self._slow_hosts))
        else:
            held = at_once + min(MOST_AHEAD, int(host.rate * AHEAD))
        least = 0 if queue.waiting or queue.running else 1
        return max(least, held - host.running - len(queue.waiting))

    # What was claimed

    def reckon(self, now: float) -> None:
        """Learn how fast each host is, and drop queues without work; to be called before a claim.

        :param now: seconds.
        """
        seconds = now - self._reckoned
        if seconds <= 0:
            return
        self._reckoned = now
        weight = seconds / (seconds + AHEAD)
        for host in {queue.host.name: queue.host for queue in self._queues.values()}.values():
            host.rate += weight * (host.ended / seconds - host.rate)
            host.ended = 0
        for queue in list(self._queues.values()):
            if not (queue.running or queue.waiting or queue.more or queue.host.rate >= _IDLE):
                self._drop_queue(queue, now)
        self._forget(now)

    def _drop_queue(self, queue: _Queue, now: float) -> None:
        host, organization = queue.host, queue.organization
        del self._queues[organization.name, host.name], host.queues[organization.name]
        organization.queues -= 1
        if not organization.queues:
            del self._organizations[organization.name]
        if not host.queues:
            self._slow_hosts -= host.slow
            host.idle_since = now
            self._idle[host.name] = host

    def _forget(self, now: float) -> None:
        """Forget how hosts answered that have been without work for long."""
        while self._idle:
            host = next(iter(self._idle.values()))
            if len(self._idle) <= MOST_REMEMBERED and now - host.idle_since <= REMEMBERED:
                return
            del self._idle[host.name], self._hosts[host.name]

    def add(self, held: Held) -> bool:
        """Take work on; False when its host has as much as it may have, so that it must be given back."""
        queue = self._queue(held.work.organization, host_of(held.work.url))
        queue.endpoints.add(held.work.endpoint_id)
        if self._space(queue, self._per_host) == 0:
            queue.refused = True
            return False
        queue.waiting.append(held)
        queue.organization.share(queue.host).waiting += 1
        self.waiting += 1
        self._offer(queue)
        return True

    def _queue(self, slug: str, name: str) -> _Queue:
        queue = self._queues.get((slug, name))
        if queue is not None:
            return queue
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = _Host(name, min(UNKNOWN, self._per_host))
        if self._idle.pop(name, None) is not None:
            self._slow_hosts += host.slow
        organization = self._organizations.setdefault(slug, _Organization(slug))
        organization.queues += 1
        queue = self._queues[slug, name] = host.queues[slug] = _Queue(organization, host)
        return queue

    def claimed(
        self,
        counts: Mapping[UUID, int],
        limits: Mapping[UUID, int],
        full: Collection[str] = (),
        *,
        all_of_them: bool,
    ) -> None:
        """Note of which hosts there may be more in the database, after a claim's work was added.

        :param counts: how many were claimed, by endpoint.
        :param limits: what ``limits`` said for the claim, and ``full`` what ``full`` said.
        :param all_of_them: whether the claim ended for want of work, not for its own limit.
        """
        self._more = not all_of_them
        for organization in self._organizations.values():
            organization.more = organization.name in full
        for queue in self._queues.values():
            queue.more = queue.refused or any(
                counts.get(endpoint, 0) >= limits.get(endpoint, self.usual_limit)
                for endpoint in queue.endpoints
            )
            queue.refused = False

    # What begins and ends

    def next(self) -> Held | None:
        """Return what begins now, organizations in turn and the hosts of each; None when nothing may."""
        if self.running >= self._most:
            return None
        for _ in range(len(self._turns)):
            slug, organization = self._turns.popitem(last=False)
            queue = self._next_queue(organization)
            if organization.quick.ready or organization.other.ready:
                self._turns[slug] = organization
            if queue is not None:
                return self._begin(queue)
        return None

    def _next_queue(self, organization: _Organization) -> _Queue | None:
        """Return an organization's queue whose turn it is, as far as the organization may begin anything."""
        free = self._most - self.running
        running = organization.quick.running + organization.other.running
        if organization.other.running <= free:
            queue = self._first(organization.other)
            if queue is not None:
                return queue
        return self._first(organization.quick) if running <= _QUICK_SHARE * free else None

    def _first(self, share: _Share) -> _Queue | None:
        """Take out the first queue whose host may have an attempt more."""
        while share.ready:
            _, queue = share.ready.popitem(last=False)
            if queue.host.running < queue.host.limit:
                return queue
            queue.host.blocked[queue.organization.name] = queue
        return None

    def _begin(self, queue: _Queue) -> Held:
        held = queue.waiting.popleft()
        share = queue.organization.share(queue.host)
        share.waiting -= 1
        share.running += 1
        queue.running += 1
        queue.host.running += 1
        self.running += 1
        self.waiting -= 1
        self._offer(queue)
        return held

    def _offer(self, queue: _Queue) -> None:
        """Put a queue where it belongs: among those that are ready, when something waits in it."""
        organization, host = queue.organization, queue.host
        host.blocked.pop(organization.name, None)
        ready = organization.share(host).ready
        if queue.waiting:
            ready.setdefault(host.name, queue)
            self._turns.setdefault(organization.name, organization)
        else:
            ready.pop(host.name, None)

    def ended(self, work: DueWork, seconds: float | None = None, *, answered: bool = True) -> bool:
        """Note that an attempt ended; True when it is time to claim more.

        :param seconds: how long it took; None when it tells nothing of its host.
        :param answered: whether an answer came.
        """
        queue = self._queues[work.organization, host_of(work.url)]
        host, organization = queue.host, queue.organization
        queue.running -= 1
        host.running -= 1
        organization.share(host).running -= 1
        self.running -= 1
        if seconds is not None:
            host.ended += 1
            self._learn(host, seconds, answered=answered)
        for blocked in list(host.blocked.values()):
            self._offer(blocked)
        self._offer(queue)
        return self._more or self._is_hungry(queue) or self._is_let(organization)

    def _learn(self, host: _Host, seconds: float, *, answered: bool) -> None:
        """Judge a host by an attempt that ended."""
        slow = seconds >= self._slow
        if slow and not answered:
            host.limit = max(1, host.limit // 2)
        else:
            host.limit = min(self._per_host, host.limit + 1)
        self._slow_hosts += slow - host.slow
        host.slow = slow
        if host.quick == slow:
            self._move(host, quick=not slow)

    def _move(self, host: _Host, *, quick: bool) -> None:
        """Count a host's attempts to the other share of their organizations."""
        for queue in host.queues.values():
            share = queue.organization.share(host)
            share.running -= queue.running
            share.waiting -= len(queue.waiting)
            share.ready.pop(host.name, None)
        host.quick = quick
        for queue in host.queues.values():
            share = queue.organization.share(host)
            share.running += queue.running
            share.waiting += len(queue.waiting)
            self._offer(queue)

    def hungry(self) -> bool:
        """Tell whether it is time to claim more of what may be there."""
        return self._open and (
            self._more
            or any(map(self._is_hungry, self._queues.values()))
            or any(map(self._is_let, self._organizations.values()))
        )

    def _is_hungry(self, queue: _Queue) -> bool:
        return queue.more and len(queue.waiting) * 2 <= queue.host.rate * AHEAD and self._room(queue) > 0

    def _is_let(self, organization: _Organization) -> bool:
        """Tell whether half of what an organization had waiting, which kept it from having more, is gone."""
        return organization.more and not self._waits_long(organization.other, 4)

    def drop(self, is_lost: Callable[[Held], bool]) -> list[Claim]:
        """Take out what waits and is of no use any more, and return its claims."""
        dropped = []
        for queue in self._queues.values():
            kept: deque[Held] = deque()
            for held in queue.waiting:
                if is_lost(held):
                    dropped.append(held.work.claim)
                else:
                    kept.append(held)
            queue.organization.share(queue.host).waiting -= len(queue.waiting) - len(kept)
            queue.waiting = kept
            self._offer(queue)
        self.waiting -= len(dropped)
        return dropped


@lru_cache(4096)
def host_of(url: str) -> str:
    """Return the host that a URL names, whatever its port; the URL itself when it cannot be read."""
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url
