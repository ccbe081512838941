"""Plans and times of the webhooks queries on tables with millions of rows.

Run as ``PYTHONPATH=daemon:tests python tests/bench/store.py [--deliveries N] [--due N] [--waiting N] [--uri
URI]``. It starts a PostgreSQL server, fills it (six minutes for ten million deliveries, 11 GB), and prints
for each
call of the store: milliseconds (median of three, cached if possible), pages, bytes of WAL, rows removed by
filters, and scans by index and table.

Finally it prints the cost of one event to a healthy endpoint, from publishing to the record of its delivery,
in the filled store after its due work is done, with ``--waiting`` endpoints that wait for a retry, and in an
empty store.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

from bench.plans import Explained
from bench.store_data import REF, fill, wait
from bench.store_queries import FAILING, LARGE, OTHERS, PUBLISHING, queries
from dataapi.database.script import complete, opened
from dataapi.webhooks.model import Scope
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store import Store, make_store
from dataapi.webhooks.store.migrations import migrate
from support.postgres import Database, Server
from support.webhooks import KEY, add_endpoint, claim, publish, success

HEALTHY = Scope("healthy")
SCOPES = [*[LARGE] * 50, FAILING, *[PUBLISHING] * 3, *OTHERS * 25][:1000]
"""The scopes of endpoints, in the order of the receivers of ``store_data.fill``."""

_SETTINGS = {"shared_buffers": "2GB", "max_wal_size": "8GB", "maintenance_work_mem": "512MB"}
_HEAD = "| Query | ms | Pages | Log | In vain | Reads |\n|---|--:|--:|--:|--:|---|\n"


def main(words: list[str]) -> int:
    """Fill the database if necessary and print the table."""
    parser = argparse.ArgumentParser(description="Show how PostgreSQL executes the queries of webhooks.")
    parser.add_argument("--deliveries", type=int, default=10_000_000)
    parser.add_argument("--due", type=int, default=500_000)
    parser.add_argument(
        "--waiting", type=int, default=100_000, help="number of endpoints that wait for a retry"
    )
    parser.add_argument(
        "--query", action="append", help="only queries whose name contains this text (repeatable)"
    )
    parser.add_argument(
        "--uri", help="superuser URI of a database, which is filled unless it was filled before"
    )
    options = parser.parse_args(words)
    if options.uri:
        _measure(Database("", options.uri, options.uri, options.uri), options)
        return 0
    server = Server(settings=_SETTINGS)
    try:
        server.create()
        full, empty = (server.create_database() for _ in range(2))
        _measure(replace(full, uri=full.admin_uri), options)
        _compare(full, empty, options.waiting)
    finally:
        server.remove()
    return 0


def _measure(database: Database, options: argparse.Namespace) -> None:
    explained = Explained(database.uri)
    store = make_store(explained, Cipher([KEY]), retention_days=14)
    if database.execute("select to_regclass('public.receiver')") == [(None,)]:
        _fill(explained, store, database, options)
        explained = Explained(database.uri)
        store = make_store(explained, Cipher([KEY]), retention_days=14)
    for row in database.execute(_SIZES):
        sys.stdout.write("{:30} {:>12,} rows {:>10} with {:>10} of indexes\n".format(*row))
    sys.stdout.write(_HEAD)
    for query in queries(store, database):
        if not options.query or any(text in query.name for text in options.query):
            seen = explained.explain(query.call, query.before)
            reads = ", ".join(f"{name} x {times}" for name, times in seen.nodes.most_common())
            sys.stdout.write(
                f"| {query.name} | {seen.milliseconds:,.1f} | {seen.buffers:,} | {seen.wal:,} "
                f"| {seen.discarded:,} | {reads} |\n"
            )
            sys.stdout.flush()


EVENTS = 300


def _compare(full: Database, empty: Database, waiting: int) -> None:
    """Print the cost of an event in a full and in an empty store, measured in turn."""
    full.execute("truncate webhooks.due")
    wait(full, waiting)
    with opened(empty.admin_uri) as fetches:
        complete(migrate(fetches))
    costs: dict[str, list[tuple[float, float]]] = {"full": [], "empty": []}
    for _ in range(3):
        costs["empty"].append(_one_event(empty))
        costs["full"].append(_one_event(full))
    for name, found in costs.items():
        median, processor = min(one for one, _ in found), min(one for _, one in found)
        sys.stdout.write(f"one event, {name} store: {median:.2f} ms, {processor:.2f} ms of processor time\n")


def _one_event(database: Database) -> tuple[float, float]:
    """Return the milliseconds to publish, claim and record an event, and to poll the queue.

    The first value is the median wall time, the second is the mean processor time of PostgreSQL.
    """
    with opened(database.admin_uri) as fetches:
        store = make_store(fetches, Cipher([KEY]), retention_days=14)
        complete(store.directory.create_organization("healthy", early_access=True))
        endpoint = complete(add_endpoint(store, HEALTHY))
        [(process,)] = complete(fetches.fetch("select pg_catalog.pg_backend_pid()"))
        seconds = []
        used = _processor(process)
        for _ in range(EVENTS):
            began = time.perf_counter()
            complete(publish(store, HEALTHY))
            [work] = complete(claim(store))
            complete(store.queue.finish([success(work)]))
            complete(store.queue.next_due())
            seconds.append(time.perf_counter() - began)
        used = _processor(process) - used
        complete(store.endpoints.delete(HEALTHY, endpoint.id))
    return statistics.median(seconds) * 1e3, used / EVENTS / 1e6


def _processor(process: int) -> int:
    """Return the processor time of a process in nanoseconds."""
    return int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[0])


def _fill(explained: Explained, store: Store, database: Database, options: argparse.Namespace) -> None:
    def report(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    explained.commit(migrate(explained))
    for scope in dict.fromkeys(SCOPES):
        explained.commit(store.directory.create_organization(scope.organization, early_access=True))
    explained.commit(store.directory.create_project(REF, LARGE.organization))
    receivers = [
        explained.commit(add_endpoint(store, scope, url=f"https://{number}.example.com/")).id
        for number, scope in enumerate(SCOPES)
    ]
    fill(database, receivers, options.deliveries, options.due, report)


_SIZES = """
select c.relname, sum(greatest(p.reltuples, 0) * (p.relkind = 'r')::integer)::bigint,
       pg_size_pretty(sum(pg_table_size(p.oid))), pg_size_pretty(sum(pg_indexes_size(p.oid)))
from pg_class c
join pg_class p on p.oid = c.oid or p.oid in (select inhrelid from pg_inherits where inhparent = c.oid)
where c.relnamespace = 'webhooks'::regnamespace and c.relname in ('event', 'delivery', 'due', 'idempotency')
group by c.relname
order by c.relname
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
