"""Cost of a request through PgBouncer: SQL sent as text, or prepared with protocol messages.

Run as ``PYTHONPATH=daemon:tests PGBOUNCER=… python tests/bench/pooler.py [RUNS] [ROUNDS]`` with PgBouncer
1.21 or later. The messages are the daemon's for some requests. Routes send the same messages in turn,
sequentially through a pool with one connection. Direct routes connect to PostgreSQL itself.

The columns are the median of the round trips in milliseconds, and microseconds of processor time per round
trip in PostgreSQL, in PgBouncer and in this process.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.load import processor_time
from dataapi.database.pool import Pool
from dataapi.database.session import SessionOptions
from support.pooler import all_pooled, version
from support.postgres import Database, Server
from support.service import Service
from twisted.internet import defer, task

if TYPE_CHECKING:
    from dataapi.database.message import Message

REQUESTS = {
    "by primary key": "track?track_id=eq.{}&select=track_id,name,album(title)",
    "nested, 3 levels": (
        "artist?artist_id=eq.{}&select=name,album(title,track(name,genre(name),media_type(name)))"
        "&album.order=album_id&album.track.order=track_id"
    ),
}
NUMBERS = 200


@dataclass
class Route:
    """A pool that sends messages over one route.

    :ivar figures: milliseconds of each round, and processor time of PostgreSQL, PgBouncer and this process.
    """

    pool: Pool
    figures: list[tuple[float, ...]] = field(default_factory=list)


async def messages_of(reactor: Any, database: Database, path: str) -> list[Message]:
    """Return the messages that the daemon sends for a path with each number."""
    service = Service(reactor, database)
    await service.start()
    try:
        return [
            (await service.rest("GET", path.format(number))).messages[0] for number in range(1, NUMBERS + 1)
        ]
    finally:
        await service.stop()


async def run(route: Route, messages: list[Message], runs: int, processes: tuple[int, int]) -> None:
    """Send messages over a route and record the times."""
    before = (*map(processor_time, processes), time.process_time())
    times = []
    for number in range(runs):
        began = time.perf_counter()
        await route.pool.run(messages[number % NUMBERS])
        times.append(time.perf_counter() - began)
    after = (*map(processor_time, processes), time.process_time())
    used = [(end - begin) / runs * 1e6 for begin, end in zip(before, after, strict=True)]
    route.figures.append((statistics.median(times) * 1e3, *used))


async def main(reactor: Any, runs: int, rounds: int) -> None:
    server = Server()
    try:
        server.create()
        direct = server.create_chinook()
        with all_pooled(server) as pooler:
            print(f"PgBouncer {'.'.join(map(str, version()))}, {runs} runs in each of {rounds} rounds")  # noqa: T201
            behind = server.database(direct.name)
            for title, path in REQUESTS.items():
                messages = await messages_of(reactor, direct, path)
                routes = {
                    "text": _route(reactor, behind, prepared=False),
                    "prepared": _route(reactor, behind, prepared=None),
                    "text, direct": _route(reactor, direct, prepared=False),
                    "prepared, direct": _route(reactor, direct, prepared=None),
                }
                await compare(list(routes.values()), messages, runs, rounds, (server.pid, pooler))
                print(f"\n{title:20}{'p50 ms':>9}{'PostgreSQL':>12}{'PgBouncer':>11}{'client':>8}")  # noqa: T201
                for name, route in routes.items():
                    p50, postgres, between, client = map(statistics.median, zip(*route.figures, strict=True))
                    print(f"{name:20}{p50:9.3f}{postgres:12.0f}{between:11.0f}{client:8.0f}")  # noqa: T201
    finally:
        server.remove()


def _route(reactor: Any, database: Database, *, prepared: bool | None) -> Route:
    options = SessionOptions(search_path=("public",), prepared_statements=prepared)
    return Route(Pool(reactor, database.uri, size=1, options=options))


async def compare(
    routes: list[Route], messages: list[Message], runs: int, rounds: int, processes: tuple[int, int]
) -> None:
    """Send messages over all routes in turn, after checking that the results are equal."""
    for route in routes:
        await route.pool.start()
    try:
        for message in messages:
            responses = [await route.pool.run(message) for route in routes]
            assert responses.count(responses[0]) == len(routes), "the results of the routes differ"
        for _ in range(rounds):
            for route in routes:
                await run(route, messages, runs, processes)
    finally:
        for route in routes:
            await route.pool.stop()


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    runs, rounds = (*words, *(2000, 5)[len(words) :])
    task.react(lambda reactor: defer.Deferred.fromCoroutine(main(reactor, runs, rounds)))
