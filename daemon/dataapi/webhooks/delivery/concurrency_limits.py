"""Concurrency limits: how many attempts may be in flight in all, to each host and for each organization.

The rules are those of docs/reference/webhooks.md, Fairness.  Claimed work beyond the limits waits in a queue
for each organization and host, so that the next attempt begins without asking the database.  The faster a
host responds, the more may wait for it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from uuid import UUID

from dataapi.webhooks.delivery.destinations import host_of
from dataapi.webhooks.model import Claim, DueWork

AHEAD = 0.1
"""Seconds of a host's work that may wait: longer than a claim takes."""

MAX_AHEAD = 256
"""Attempts that may wait for one host, and for all hosts together."""

UNKNOWN = 2
"""The limit of a new host."""

REMEMBERED = 60.0
"""Seconds for which a host without work is remembered."""

MAX_REMEMBERED = 10_000
"""Hosts without work that are remembered."""

_QUICK_SHARE = 20
"""How many times the free attempts an organization may have in flight."""

_IDLE = 1.0
"""Attempts per second below which an idle host is without work."""


@dataclass(frozen=True, slots=True)
class ClaimedAttempt:
    """Claimed work that has not begun; its lease began at ``since``, in seconds of the caller's clock."""

    work: DueWork
    since: float


@dataclass(slots=True, eq=False)
class _Host:
    """A host, its limit and how it responds.

    :ivar limit: how many attempts it may have in flight.
    :ivar running: how many are.
    :ivar quick: whether its last attempt was quick; False before the first one ended.
    :ivar slow: whether its last attempt was slow.
    :ivar rate: attempts that end per second.
    :ivar ended: how many ended since ``rate`` was updated.
    :ivar queues: by organization.
    :ivar blocked: those of them that wait for ``running`` to fall below ``limit``.
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


@dataclass(slots=True)
class _Share:
    """An organization's attempts to quick hosts, or to all others.

    :ivar ready: by host, the queues that their hosts' limits allow to begin; the first one's turn is next.
    """

    running: int = 0
    waiting: int = 0
    ready: OrderedDict[str, _Queue] = field(default_factory=OrderedDict)


@dataclass(slots=True, eq=False)
class _Organization:
    """An organization's attempts, and whether the last claim left out ``more`` of them, to new hosts."""

    name: str
    quick: _Share = field(default_factory=_Share)
    other: _Share = field(default_factory=_Share)
    more: bool = False


@dataclass(slots=True, eq=False)
class _Queue:
    """An organization's attempts to one host.

    :ivar more: whether the database may have more due work for it.
    :ivar refused: whether the current claim returned more than may wait.
    """

    organization: _Organization
    host: _Host
    endpoints: set[UUID] = field(default_factory=set)
    waiting: deque[ClaimedAttempt] = field(default_factory=deque)
    running: int = 0
    more: bool = False
    refused: bool = False

    @property
    def share(self) -> _Share:
        """The share of the organization that the host's attempts belong to."""
        return self.organization.quick if self.host.quick else self.organization.other


class ConcurrencyLimits:
    """Decides how much to claim and which attempt begins next.

    :param most: attempts in flight at once.
    :param per_host: of these, to one host.
    :param slow: seconds from which an attempt is slow.
    :ivar usual_limit: how many attempts to claim of an endpoint that ``limits`` does not have.
    :ivar running: attempts in flight.
    :ivar waiting: claimed attempts that have not begun.
    """

    def __init__(self, most: int, per_host: int, slow: float = inf) -> None:
        self._most = most
        self._per_host = min(per_host, most)
        self._slow = slow
        self.usual_limit = min(self._per_host, 2 * UNKNOWN)
        self._hosts: dict[str, _Host] = {}
        # When the hosts without queues became idle, in that order.
        self._idle: OrderedDict[str, float] = OrderedDict()
        self._organizations: dict[str, _Organization] = {}
        self._queues: dict[tuple[str, str], _Queue] = {}
        # Organizations with a ready queue; the first one's turn is next.
        self._turns: OrderedDict[str, _Organization] = OrderedDict()
        self._slow_hosts = 0
        self._rates_at = 0.0
        # Whether the database may have more for hosts without queues.
        self._more = False
        self.running = 0
        self.waiting = 0

    @property
    def _vacant(self) -> int:
        """How many more attempts may be in flight or waiting."""
        return self._most + MAX_AHEAD - self.running - self.waiting

    @property
    def _open(self) -> bool:
        """Whether to claim at all."""
        return self.running < self._most and self._vacant > 0

    def room(self) -> int:
        """Return how many attempts to claim: half of the vacancy, so that no claim takes all of it."""
        if not self._open:
            self._more = True
            return 0
        return (self._vacant + 1) // 2

    def limits(self) -> dict[UUID, int]:
        """Return how many attempts to claim of each endpoint whose host is busy."""
        limits: dict[UUID, int] = {}
        for queue in self._queues.values():
            limits |= dict.fromkeys(queue.endpoints, self._room(queue))
        return limits

    def full(self) -> frozenset[str]:
        """Return the organizations whose other endpoints are excluded from a claim."""
        return frozenset(one.name for one in self._organizations.values() if self._waits_long(one.other, 2))

    def saturated(self) -> tuple[UUID, ...]:
        """Return the endpoints that are excluded from a claim."""
        return tuple(endpoint for endpoint, room in self.limits().items() if room == 0)

    def _waits_long(self, share: _Share, times: int) -> bool:
        """Whether so many times the waiting attempts exceed the vacancy."""
        return share.waiting * times > self._vacant

    def _room(self, queue: _Queue) -> int:
        """Return how many attempts to claim for a queue."""
        host = queue.host
        if self._waits_long(queue.share, 1 if host.quick else 2):
            return 0
        return self._space(queue, min(self._per_host, 2 * host.limit))

    def _space(self, queue: _Queue, at_once: int) -> int:
        """Return how many more attempts a queue may take; an empty one may always take one.

        :param at_once: how many the host may have in flight or about to begin, unless it is slow.
        """
        host = queue.host
        if host.slow:
            most = min(host.limit, max(1, self._most // 2 // self._slow_hosts))
        else:
            most = at_once + min(MAX_AHEAD, int(host.rate * AHEAD))
        least = 0 if queue.waiting or queue.running else 1
        return max(least, most - host.running - len(queue.waiting))

    def update_rates(self, now: float) -> None:
        """Update how fast hosts respond, and forget what is without work; call it before each claim."""
        seconds = now - self._rates_at
        if seconds <= 0:
            return
        self._rates_at = now
        weight = seconds / (seconds + AHEAD)
        for host in {queue.host.name: queue.host for queue in self._queues.values()}.values():
            host.rate += weight * (host.ended / seconds - host.rate)
            host.ended = 0
        for queue in list(self._queues.values()):
            if not (queue.running or queue.waiting or queue.more or queue.host.rate >= _IDLE):
                self._drop(queue, now)
        self._organizations = {one.organization.name: one.organization for one in self._queues.values()}
        while self._idle:
            name, since = next(iter(self._idle.items()))
            if len(self._idle) <= MAX_REMEMBERED and now - since <= REMEMBERED:
                break
            del self._idle[name], self._hosts[name]

    def _drop(self, queue: _Queue, now: float) -> None:
        host, organization = queue.host, queue.organization
        del self._queues[organization.name, host.name], host.queues[organization.name]
        if not host.queues:
            self._slow_hosts -= host.slow
            self._idle[host.name] = now

    def add(self, claimed: ClaimedAttempt) -> bool:
        """Add claimed work; False when the limits do not allow it and it must be released."""
        organization, host = claimed.work.organization, host_of(claimed.work.url)
        queue = self._queues.get((organization, host)) or self._new_queue(organization, host)
        queue.endpoints.add(claimed.work.endpoint_id)
        if self._space(queue, self._per_host) == 0:
            queue.refused = True
            return False
        queue.waiting.append(claimed)
        self._count(queue, waiting=1)
        self._offer(queue)
        return True

    def _new_queue(self, slug: str, name: str) -> _Queue:
        host = self._hosts.setdefault(name, _Host(name, min(UNKNOWN, self._per_host)))
        if self._idle.pop(name, None) is not None:
            self._slow_hosts += host.slow
        organization = self._organizations.setdefault(slug, _Organization(slug))
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
        """Record for which hosts the database may have more, after a claim's work was added.

        :param counts: how many attempts were claimed, by endpoint.
        :param limits: what ``limits`` returned for the claim.
        :param full: what ``full`` returned for the claim.
        :param all_of_them: whether the claim returned all due work, not only as much as was requested.
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

    def next(self) -> ClaimedAttempt | None:
        """Return the attempt that begins now, by turns of organizations and their hosts; None without any."""
        if self.running >= self._most:
            return None
        for _ in range(len(self._turns)):
            slug, organization = self._turns.popitem(last=False)
            queue = self._next_queue(organization)
            if organization.quick.ready or organization.other.ready:
                self._turns[slug] = organization
            if queue is not None:
                queue.running += 1
                queue.host.running += 1
                self._count(queue, running=1, waiting=-1)
                attempt = queue.waiting.popleft()
                self._offer(queue)
                return attempt
        return None

    def _next_queue(self, organization: _Organization) -> _Queue | None:
        """Return the organization's queue whose turn it is, None when its share is used up."""
        free = self._most - self.running
        running = organization.quick.running + organization.other.running
        if organization.other.running <= free:
            queue = self._first(organization.other)
            if queue is not None:
                return queue
        return self._first(organization.quick) if running <= _QUICK_SHARE * free else None

    def _first(self, share: _Share) -> _Queue | None:
        """Remove and return the first queue whose host is below its limit."""
        while share.ready:
            _, queue = share.ready.popitem(last=False)
            if queue.host.running < queue.host.limit:
                return queue
            queue.host.blocked[queue.organization.name] = queue
        return None

    def _count(self, queue: _Queue, running: int = 0, waiting: int = 0) -> None:
        """Count attempts of a queue in its organization's share and in all."""
        queue.share.running += running
        queue.share.waiting += waiting
        self.running += running
        self.waiting += waiting

    def _offer(self, queue: _Queue) -> None:
        """Put a queue among the ready ones if anything waits in it, else remove it from them."""
        organization, host = queue.organization, queue.host
        host.blocked.pop(organization.name, None)
        if queue.waiting:
            queue.share.ready.setdefault(host.name, queue)
            self._turns.setdefault(organization.name, organization)
        else:
            queue.share.ready.pop(host.name, None)

    def ended(self, work: DueWork, seconds: float | None = None, *, answered: bool = True) -> bool:
        """Record that an attempt ended; True when it is time to claim more.

        :param seconds: how long it took; None when that says nothing about the host.
        :param answered: whether there was a response.
        """
        queue = self._queues[work.organization, host_of(work.url)]
        host, organization = queue.host, queue.organization
        queue.running -= 1
        host.running -= 1
        self._count(queue, running=-1)
        if seconds is not None:
            host.ended += 1
            self._learn(host, seconds, answered=answered)
        for blocked in list(host.blocked.values()):
            self._offer(blocked)
        self._offer(queue)
        return self._more or self._queue_wants_more(queue) or self._may_claim_again(organization)

    def _learn(self, host: _Host, seconds: float, *, answered: bool) -> None:
        """Adjust a host's limit after an attempt."""
        slow = seconds >= self._slow
        if slow and not answered:
            host.limit = max(1, host.limit // 2)
        else:
            host.limit = min(self._per_host, host.limit + 1)
        self._slow_hosts += slow - host.slow
        host.slow = slow
        if host.quick == slow:
            # Its attempts move to the other share of their organizations.
            for queue in host.queues.values():
                queue.share.ready.pop(host.name, None)
                self._count(queue, running=-queue.running, waiting=-len(queue.waiting))
            host.quick = not slow
            for queue in host.queues.values():
                self._count(queue, running=queue.running, waiting=len(queue.waiting))
                self._offer(queue)

    def wants_more(self) -> bool:
        """Whether it is time to claim more."""
        return self._open and (
            self._more
            or any(map(self._queue_wants_more, self._queues.values()))
            or any(map(self._may_claim_again, self._organizations.values()))
        )

    def _queue_wants_more(self, queue: _Queue) -> bool:
        return queue.more and len(queue.waiting) * 2 <= queue.host.rate * AHEAD and self._room(queue) > 0

    def _may_claim_again(self, organization: _Organization) -> bool:
        """Whether an organization that a claim excluded has worked off half of what it had waiting."""
        return organization.more and not self._waits_long(organization.other, 4)

    def drop(self, is_obsolete: Callable[[ClaimedAttempt], bool]) -> list[Claim]:
        """Remove waiting attempts that are obsolete, and return their claims."""
        dropped: list[Claim] = []
        for queue in self._queues.values():
            waiting = list(queue.waiting)
            queue.waiting = deque(attempt for attempt in waiting if not is_obsolete(attempt))
            dropped += [attempt.work.claim for attempt in waiting if is_obsolete(attempt)]
            self._count(queue, waiting=len(queue.waiting) - len(waiting))
            self._offer(queue)
        return dropped
