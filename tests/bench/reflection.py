"""Cost of reading a catalog of many tables, and how long it blocks the reactor.

Run as ``PYTHONPATH=daemon:tests python tests/bench/reflection.py [TABLES]``. Each table has ten columns, a
primary key, two other indexes, a foreign key, a directive and grants.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

from dataapi.catalog.model import Privileges
from dataapi.catalog.names import CatalogNames
from dataapi.catalog.reflect import REFLECTION
from dataapi.catalog.watcher import CatalogWatcher
from dataapi.database.pool import Pool
from support.postgres import Server
from twisted.internet import defer, task

if TYPE_CHECKING:
    from dataapi.catalog.model import Catalog
    from support.postgres import Database

TICK = 0.001
SCHEMA = """
create type public.status as enum ('open', 'closed', 'archived');
do $$
declare
    referenced integer;
begin
    for i in 1 .. {tables} loop
        referenced := greatest(1, i - 1 - i % 7);
        execute format(
            'create table public.item_%s (
             id bigserial primary key, name text not null, email varchar(100) unique,
             amount numeric(12, 2) default 0,
             active boolean not null default true, state public.status,
             data jsonb, tags text[], parent_id bigint references public.item_%s,
             created_at timestamptz not null default now())', i, referenced);
        execute format('create index on public.item_%s (parent_id)', i);
        execute format('comment on table public.item_%s is %L', i,
            '@graphql({{"totalCount": {{"enabled": true}}}})');
        execute format('grant select on public.item_%s to anon', i);
    end loop;
end
$$;
"""


class Stalls:
    """Measures the delay of a timer of one millisecond."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._due = 0.0
        self._call: Any = None
        self.late: list[float] = []

    def start(self) -> None:
        self.late.clear()
        self._next()

    def stop(self) -> None:
        self._call.cancel()

    def _next(self) -> None:
        self._due = time.perf_counter() + TICK
        self._call = self._reactor.callLater(TICK, self._tick)

    def _tick(self) -> None:
        self.late.append(max(0.0, time.perf_counter() - self._due))
        self._next()

    def report(self, name: str) -> None:
        """Print the longest delay and the 99th percentile, in milliseconds."""
        ordered = sorted(self.late)
        p99 = ordered[int(len(ordered) * 0.99)] if ordered else 0.0
        show(f"{name}: longest wait of the reactor", f"{ordered[-1] * 1e3:.1f} ms (p99 {p99 * 1e3:.1f} ms)")


def show(name: str, value: str) -> None:
    sys.stdout.write(f"{name:55} {value}\n")


async def measure_query(pool: Pool) -> None:
    """Measure only the reflection query."""
    await pool.fetch(REFLECTION, (["public"], False))
    began = time.perf_counter()
    rows = await pool.fetch(REFLECTION, (["public"], False))
    size = sum(len(body or "") for _, body in rows)
    show("query", f"{(time.perf_counter() - began) * 1e3:.0f} ms, {size / 1e6:.2f} MB in {len(rows)} rows")


async def measure_load(reactor: Any, watcher: CatalogWatcher, stalls: Stalls) -> None:
    """Measure loads while the timer runs. For comparison, an idle second is measured first."""
    stalls.start()
    await task.deferLater(reactor, 1.0)
    stalls.stop()
    stalls.report("at rest")
    for name in ("first load", "reload", "reload"):
        stalls.start()
        began, used = time.perf_counter(), time.process_time()
        await watcher.reload()
        elapsed, processor = time.perf_counter() - began, time.process_time() - used
        stalls.stop()
        show(name, f"{elapsed * 1e3:.0f} ms, {processor * 1e3:.0f} ms of the daemon's processor time")
        stalls.report(name)


def measure_use(catalog: Catalog) -> None:
    """Measure what the first request computes from a catalog."""
    began = time.perf_counter()
    privileges = Privileges(catalog, "anon")
    visible = [table for table in catalog.tables.values() if privileges.can(table, "SELECT")]
    show(f"tables visible to anon: {len(visible)}", f"{(time.perf_counter() - began) * 1e3:.1f} ms")
    began = time.perf_counter()
    names = CatalogNames(catalog)
    names.fields(visible[0].oid)
    show("names of one table's fields, with the index", f"{(time.perf_counter() - began) * 1e3:.1f} ms")
    began = time.perf_counter()
    for table in visible:
        names.fields(table.oid)
    show("names of every table's fields", f"{(time.perf_counter() - began) * 1e3:.1f} ms")


async def measure_memory(watcher: CatalogWatcher) -> None:
    """Print the memory that a catalog needs."""
    gc.collect()
    tracemalloc.start()
    watcher.current = None
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    await watcher.reload()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    show("memory of one snapshot", f"{(after - before) / 1e6:.1f} MB")


async def run(reactor: Any, database: Database) -> None:
    pool = Pool(reactor, database.uri, size=2)
    await pool.start()
    watcher = CatalogWatcher(reactor, pool.fetch, ("public",))
    try:
        await measure_query(pool)
        await measure_load(reactor, watcher, Stalls(reactor))
        assert watcher.current is not None
        measure_use(watcher.current)
        await measure_memory(watcher)
    finally:
        await watcher.stop()
        await pool.stop()


def main(reactor: Any, tables: str = "1000") -> defer.Deferred[None]:
    """Start a server, create the tables, measure, and remove the server."""
    server = Server()
    server.create()
    reactor.addSystemEventTrigger("after", "shutdown", server.remove)
    database = server.create_database(SCHEMA.format(tables=int(tables)))
    database.execute("vacuum analyze")
    return defer.Deferred.fromCoroutine(run(reactor, database))


if __name__ == "__main__":
    task.react(main, sys.argv[1:])
