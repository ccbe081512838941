"""Deliveries per second, the time from an event to its first attempt, and the cost of an idle dispatcher.

Run as ``PYTHONPATH=daemon:tests python tests/bench/webhooks.py [EVENTS]``. It starts a PostgreSQL server and
a receiver process that responds with 200 to every request.

- floor: the same attempts without a queue: HMAC and HTTP POST with the daemon's HTTP client, 16 concurrently.
- deliveries: events queued for one endpoint, delivered and recorded by one dispatcher.
- hosts: events queued for endpoints on many new hosts of one organization. The rates are medians of
alternating rounds, with this process's processor time per event.
- latency: milliseconds from the call that publishes a single event until the receiver has read the request.
  The dispatcher is otherwise idle.
- idle: processor time of this process over some seconds without events.
- with a backlog: latency while another organization has a backlog for its many hosts.
- with silent receivers: latency while other organizations have events for hosts that never respond.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataapi.database.listener import Listener
from dataapi.database.pool import Pool
from dataapi.settings import Webhooks
from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.delivery.attempt import Attempt, AttemptSender
from dataapi.webhooks.delivery.destinations import networks
from dataapi.webhooks.delivery.dispatcher import Dispatcher
from dataapi.webhooks.delivery.resolver import AddressCheck
from dataapi.webhooks.model import Scope
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store import Store
from dataapi.webhooks.store.queue import Queue
from support.postgres import Server
from support.webhooks import ACME, KEY, PAUSED, SECRET, add_endpoint, migrated, publish
from twisted.internet import defer, task

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from dataapi.webhooks.model import FinishedAttempt

AT_ONCE = 16
SINGLE = 200
IDLE_SECONDS = 10.0
ROUNDS = 5
RULES = Webhooks(concurrency_per_host=AT_ONCE)
MANY = Scope("many")
HOSTS = 40
BACKLOG = 100_000
SILENT = tuple(Scope(f"silent{number}") for number in range(6))
SILENT_EVENTS = 10

_RECEIVER = Path(__file__).with_name("receiver.py")


class _Here:
    """Resolves every name to this machine."""

    async def addresses(self, _name: str) -> Any:
        return [ip_address("127.0.0.1")]


class Receiver:
    """A receiver process.

    :param seconds: delay of responses.
    :ivar url: URL of the receiver.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        command = [sys.executable, str(_RECEIVER), str(seconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._port = self._line()
        self.url = f"http://127.0.0.1:{self._port}/hook"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def url_of(self, number: int) -> str:
        """Return a URL with a different host for each number."""
        return f"http://{number}.example.com:{self._port}/hook"

    def seen(self) -> list[float]:
        """Return the arrival times of requests since the last call of this method, by the wall clock."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        times: list[float] = json.loads(self._line())
        return times

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def make_sender(reactor: Any) -> AttemptSender:
    """Return the daemon's HTTP client with permission to send to this machine."""
    return AttemptSender(reactor, AddressCheck(_Here(), networks(["127.0.0.0/8"])), time.time)


@dataclass(frozen=True)
class Rate:
    """The results of a round.

    :ivar processor: this process's processor time per event, in microseconds.
    """

    per_second: float
    processor: float


class Round:
    """Measures a round from the creation of the object until the call of ``over``."""

    def __init__(self) -> None:
        self._began, self._used = time.perf_counter(), time.process_time()

    def over(self, count: int) -> Rate:
        """Return the rate of this many events in the round."""
        seconds, used = time.perf_counter() - self._began, time.process_time() - self._used
        return Rate(count / seconds, used / count * 1e6)


async def floor(sender: AttemptSender, receiver: Receiver, body: bytes, count: int) -> Rate:
    """Return the rate of attempts without a queue."""
    attempt = Attempt(receiver.url, SECRET, "0198c7a2-58f3-7d6e-9d0c-2b9f5f1f0a11", body)

    async def several() -> None:
        for _ in range(count // AT_ONCE):
            outcome = await sender.send(attempt)
            assert outcome.success, outcome

    this = Round()
    await defer.gatherResults([defer.Deferred.fromCoroutine(several()) for _ in range(AT_ONCE)])
    return this.over(count // AT_ONCE * AT_ONCE)


class CountedQueue(Queue):
    """A queue that counts recorded outcomes.

    :ivar recorded: number of outcomes.
    """

    recorded = 0

    async def finish(self, finished: Sequence[FinishedAttempt]) -> frozenset[UUID]:
        accepted = await super().finish(finished)
        self.recorded += len(accepted)
        return accepted


async def deliveries(
    reactor: Any, dispatcher: Dispatcher, queue: CountedQueue, pool: Pool, organization: str, count: int
) -> Rate:
    """Return the rate of deliveries from the first claim until the last outcome is recorded."""
    [(endpoints,)] = await pool.fetch(
        "select count(*) from webhooks.endpoint where organization_slug = $1", (organization,)
    )
    count -= count % endpoints
    await enqueue(pool, organization, count // endpoints)
    queue.recorded = 0
    this = Round()
    dispatcher.start()
    while queue.recorded < count:
        await task.deferLater(reactor, 0.005)
    return this.over(count)


async def enqueue(pool: Pool, organization: str, count: int) -> None:
    """Publish events for all endpoints of an organization."""
    await pool.fetch(
        "select webhooks.raise_event($1, $2, null, '{}', gen_random_uuid()::text, null) "
        "from generate_series(1, $3)",
        (PAUSED, organization, count),
    )
    await pool.fetch("analyze webhooks.due")


async def latencies_under_load(
    reactor: Any, pool: Pool, store: Store, receiver: Receiver, others: Sequence[Scope], count: int
) -> list[float]:
    """Return ``latencies``, measured a second after events of other organizations have been published."""
    organizations = [scope.organization for scope in others]
    for organization in organizations:
        await enqueue(pool, organization, count)
    await task.deferLater(reactor, 1.0)
    times = await latencies(reactor, store, receiver)
    await pool.fetch(
        "delete from webhooks.due where delivery_id = any (array(select d.delivery_id "
        "from webhooks.due d join webhooks.endpoint e on e.id = d.endpoint_id "
        "where e.organization_slug = any ($1) for update of d skip locked))",
        (organizations,),
    )
    return times


async def latencies(reactor: Any, store: Store, receiver: Receiver) -> list[float]:
    """Publish events one at a time and return the sorted milliseconds until the receiver gets each event."""
    receiver.seen()
    published = []
    for _ in range(SINGLE):
        published.append(time.time())
        await publish(store, reason="inactivity")
        await task.deferLater(reactor, 0.02)
    seen = receiver.seen()
    for _ in range(120):
        if len(seen) < SINGLE:
            await task.deferLater(reactor, 0.5)
            seen += receiver.seen()
    assert len(seen) == SINGLE, len(seen)
    return sorted((came - sent) * 1000 for came, sent in zip(seen, published, strict=True))


async def idle(reactor: Any) -> float:
    """Return the fraction of a processor that this process uses without events."""
    began = time.process_time()
    await task.deferLater(reactor, IDLE_SECONDS)
    return (time.process_time() - began) / IDLE_SECONDS


async def measure(
    reactor: Any, server: Server, receiver: Receiver, busy: Receiver, silent: Receiver, count: int
) -> None:
    database = server.create_database()
    pool = Pool(reactor, database.uri, size=4)
    await pool.start()
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store, url=receiver.url)
    for index, scope in enumerate((MANY, *SILENT)):
        await store.directory.create_organization(scope.organization, early_access=True)
        for number in range(HOSTS):
            url = (busy if scope == MANY else silent).url_of(HOSTS * index + number)
            await add_endpoint(store, scope, url=url)
    sender = make_sender(reactor)
    queue = CountedQueue(pool, Cipher([KEY]), store.maintenance)
    dispatchers = [Dispatcher(reactor, queue, sender, Catalogue().render, RULES) for _ in range(2 * ROUNDS)]
    dispatcher = dispatchers[-1]
    listener = Listener(
        reactor,
        database.uri,
        ["webhooks"],
        on_notification=lambda _channel, _payload: dispatcher.wake(),
        on_reconnect=dispatcher.poll,
    )
    body = json.dumps({"id": str(endpoint.id), "type": PAUSED, "payload": {"reason": "inactivity"}}).encode()
    try:
        await floor(sender, receiver, body, 800)
        floors, rates, spread = [], [], []
        for many, one in zip(dispatchers[::2], dispatchers[1::2], strict=True):
            floors.append(await floor(sender, receiver, body, count))
            spread.append(await deliveries(reactor, many, queue, pool, MANY.organization, count))
            await many.drain(1.0)
            rates.append(await deliveries(reactor, one, queue, pool, ACME.organization, count))
            if one is not dispatcher:
                await one.drain(1.0)
        await listener.start()
        times = await latencies(reactor, store, receiver)
        share = await idle(reactor)
        backlog = await latencies_under_load(reactor, pool, store, receiver, [MANY], BACKLOG // HOSTS)
        hanging = await latencies_under_load(reactor, pool, store, receiver, SILENT, SILENT_EVENTS)
    finally:
        await dispatcher.drain(1.0)
        await listener.stop()
        sender.close()
        await pool.stop()
    minimum, rate, hosts = _median(floors), _median(rates), _median(spread)
    share_of_floor = rate.per_second / minimum.per_second
    print(f"floor       {minimum.per_second:6.0f} /s, {minimum.processor:4.0f} us each")  # noqa: T201
    print(f"deliveries  {rate.per_second:6.0f} /s, {rate.processor:4.0f} us each")  # noqa: T201
    print(f"            {share_of_floor:.0%} of the floor, {count} queued")  # noqa: T201
    print(f"hosts       {hosts.per_second:6.0f} /s, {hosts.processor:4.0f} us each")  # noqa: T201
    for name, found in (("", times), (", with a backlog", backlog), (", with silent receivers", hanging)):
        p50, p99, longest = found[len(found) // 2], found[len(found) * 99 // 100], found[-1]
        print(f"latency     p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {longest:.1f} ms{name}")  # noqa: T201
    print(f"idle        {share:.2%} of a processor")  # noqa: T201


def _median(rates: list[Rate]) -> Rate:
    per_second = statistics.median(one.per_second for one in rates)
    return Rate(per_second, statistics.median(one.processor for one in rates))


async def main(reactor: Any, count: int) -> None:
    server, receivers = Server(), (Receiver(), Receiver(), Receiver(seconds=1e6))
    try:
        server.create()
        await measure(reactor, server, *receivers, count)
    finally:
        for receiver in receivers:
            receiver.end()
        server.remove()


if __name__ == "__main__":
    task.react(
        lambda reactor: defer.Deferred.fromCoroutine(main(reactor, int((sys.argv[1:] or ["5000"])[0])))
    )
