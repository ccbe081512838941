"""Measures the cost of new documents: time, memory, and how long they block other requests.

Run as ``python tests/bench/documents.py [--documents N]`` with the project and its extras ``embedded`` and
``test`` installed. It starts a PostgreSQL server to reflect a schema. Compiled documents are not executed.

It first sends many different short documents, and prints the processor time per document, the longest garbage
collection per generation, the size of the caches, and the memory used. Then it sends each long document of
the tests at the default limits, and prints the document's processor time, and the longest time for which the
reactor was busy. All times are processor time, which depends least on the machine's other load.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "daemon")]

from dataapi.auth.caller import Caller  # noqa: E402 - the path comes first
from dataapi.graphql.document import Limits  # noqa: E402
from dataapi.graphql.engine import Engine  # noqa: E402
from dataapi.graphql.transport import GraphQLRequest  # noqa: E402
from dataapi.http.messages import Request  # noqa: E402
from dataapi.service.garbage_collection import ShortCollections  # noqa: E402
from dataapi.settings import Project  # noqa: E402
from support.catalog import load_catalog  # noqa: E402
from support.long_documents import TABLES, documents  # noqa: E402
from support.postgres import Server  # noqa: E402
from twisted.internet import defer, task  # noqa: E402

HTTP = Request("id", "POST", "/graphql/v1", "", {}, b"")
SHORT = "{ personByPk(id: 5) { name_%d: name person { email person { name email } } } }"


class Nothing:
    """A pool that executes nothing."""

    async def run(self, _message: Any) -> list[tuple[Any, ...]]:
        """Return no rows."""
        return [("null",)]


class Collections:
    """Times garbage collections.

    :ivar longest: duration of the longest collection in milliseconds, by generation.
    """

    def __init__(self) -> None:
        self.longest = [0.0, 0.0, 0.0]
        self.count = [0, 0, 0]
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Record the start or end of a collection."""
        if phase == "start":
            self._began = time.process_time()
            return
        generation = info["generation"]
        self.count[generation] += 1
        self.longest[generation] = max(self.longest[generation], (time.process_time() - self._began) * 1000)


class Turns:
    """Measures the processor time of the reactor's turns."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._last = time.thread_time()
        self.longest = 0.0
        self._looping = task.LoopingCall(self._turn)
        self._looping.clock = reactor

    def _turn(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._last)
        self._last = now

    async def longest_while(self, work: Any) -> float:
        """Return the processor time of the longest turn while work is awaited, in milliseconds."""
        self._last, self.longest = time.thread_time(), 0.0
        self._looping.start(0)
        try:
            await work
            await task.deferLater(self._reactor, 0)
        finally:
            self._looping.stop()
        return self.longest * 1000


def resident() -> float:
    """Return the resident memory of the process in megabytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


async def short_documents(engine: Engine, reactor: Any, count: int) -> None:
    collections = Collections()
    await send(engine, SHORT % 0)
    gc.callbacks.append(collections)
    memory, began = resident(), time.process_time()
    for number in range(1, count + 1):
        await send(engine, SHORT % number)
        if number % 10 == 0:
            await task.deferLater(reactor, 0)
    spent = (time.process_time() - began) / count * 1e6
    gc.callbacks.remove(collections)
    [role] = engine._roles.values()
    sys.stdout.write(
        f"{count:,} new documents: {spent:,.0f} us each, memory {resident() - memory:+.0f} MB, "
        f"weights {role.texts.weight + role._documents.weight:,} and {role.plans.weight:,}\n"
    )
    for generation in range(3):
        longest, times = collections.longest[generation], collections.count[generation]
        sys.stdout.write(f"generation {generation}: {times:,} collections, the longest {longest:.1f} ms\n")


async def long_documents(engine: Engine, reactor: Any) -> None:
    """Measure how long each long document keeps the reactor busy."""
    turns = Turns(reactor)
    for name, text in documents(Limits().tokens).items():
        began = time.process_time()
        stalled = await turns.longest_while(send(engine, text))
        spent = (time.process_time() - began) * 1000
        sys.stdout.write(f"{name:24}{len(text):>10,} characters{spent:>10,.0f} ms, stalls {stalled:.0f} ms\n")


async def send(engine: Engine, text: str) -> None:
    await engine.execute(GraphQLRequest(text, None, None), Caller("anon", "{}"), HTTP)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure the cost of new documents.")
    parser.add_argument("--documents", type=int, default=10_000, help="short documents (default: 10000)")
    options = parser.parse_args(words)
    server = Server()
    try:
        server.create()
        database = server.create_database(TABLES)
        catalog = load_catalog(database.uri)
        project = Project("abcdefghijklmnopqrst", "acme", database.uri)
        nothing: Any = Nothing()
        engine: Any = Engine(project, nothing, lambda: catalog)

        async def measure(reactor: Any) -> None:
            garbage = ShortCollections(reactor)
            garbage.start()
            await short_documents(engine, reactor, options.documents)
            await long_documents(engine, reactor)
            garbage.stop()
            gc.collect()
            gc.unfreeze()
            sys.stdout.write(f"garbage that was frozen: {gc.collect():,} objects\n")

        task.react(lambda reactor: defer.Deferred.fromCoroutine(measure(reactor)))
    finally:
        server.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
