"""Cost of a watch for writes to its table: microseconds per row, and commits per second of 16 clients.

Run as ``PYTHONPATH=daemon:tests python tests/bench/watch.py``, with ``pgbench`` installed. It starts
PostgreSQL servers and updates tables without a watch, with a watch on unchanged columns, with a watch whose
events have no endpoint, and with a watch whose events have one endpoint.

- in bulk, single: microseconds per row of a bulk statement, and per single-row statement, on one connection
  to a server without fsync: the best of five.
- commits: transactions per second with one update each, by 16 clients of a server with fsync: the median of
  alternating rounds, and the ratio to the rate without a watch.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import psycopg2
from dataapi.database.script import complete, opened
from support.postgres import Server
from support.webhooks import ACME, add_endpoint, migrated

if TYPE_CHECKING:
    from support.postgres import Database

ROWS = 10_000
CLIENTS = 16
ROUNDS = 5
SECONDS = 5
TYPE = "v1.shop.order"
TABLES = {
    "without a watch": None,
    "other columns changed": "array['weight'], organization => 'acme'",
    "no endpoint": "organization => 'nobody'",
    "one endpoint": "organization => 'acme'",
}
"""The measured tables and the arguments of their watches."""
TABLE = """
    create table "{0}" (id int primary key, name text, size int, weight int);
    insert into "{0}" select n, 'item ' || n, 1, 1 from generate_series(1, {1}) n;
"""
SURE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_wal_size": "4GB"}
FORGET = "truncate webhooks.event, webhooks.due"


def prepare(database: Database) -> None:
    with opened(database.uri) as fetches:
        store = complete(migrated(database, fetches))
        complete(store.publisher.sync_event_types({}, [TYPE]))
        complete(store.directory.create_organization("nobody", early_access=True))
        complete(add_endpoint(store, ACME))
    database.execute("grant all on schema webhooks to postgres")
    for name, arguments in TABLES.items():
        database.execute(TABLE.format(name, ROWS))
        if arguments is not None:
            database.execute(f"select webhooks.watch('\"{name}\"', '{TYPE}', {arguments})")


def microseconds(connection: psycopg2.extensions.connection, name: str) -> tuple[float, float]:
    """Return the microseconds per row of a bulk statement and per single-row statement: the best of five."""
    bulk, single = [], []
    with connection.cursor() as cursor:
        for _ in range(5):
            cursor.execute(FORGET)
            cursor.execute(f'vacuum (analyze) "{name}"')
            began = time.perf_counter()
            cursor.execute(f'update "{name}" set size = size + 1')
            bulk.append(time.perf_counter() - began)
            began = time.perf_counter()
            for number in range(1, ROWS // 10 + 1):
                cursor.execute(f'update "{name}" set size = size + 1 where id = %s', (number,))
            single.append(time.perf_counter() - began)
    return min(bulk) / ROWS * 1e6, min(single) / ROWS * 1e7


def commits(database: Database, name: str) -> float:
    """Return the transactions per second of clients that update one row each."""
    database.execute(FORGET)
    with TemporaryDirectory() as folder:
        script = Path(folder) / "script.sql"
        script.write_text(
            f'\\set id random(1, {ROWS})\nupdate "{name}" set size = size + 1 where id = :id;\n'
        )
        output = subprocess.run(
            ["pgbench", "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2", "-T", str(SECONDS),
             "-f", str(script), database.admin_uri],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    [rate] = re.findall(r"^tps = ([0-9.]+)", output, re.MULTILINE)
    return float(rate)


def main() -> None:
    hurried, sure = Server(), Server(settings=SURE)
    try:
        hurried.create()
        database = hurried.create_database()
        prepare(database)
        with closing(psycopg2.connect(database.admin_uri)) as connection:
            connection.autocommit = True
            costs = {name: microseconds(connection, name) for name in TABLES}
        sure.create()
        database = sure.create_database()
        prepare(database)
        rounds = [{name: commits(database, name) for name in TABLES} for _ in range(ROUNDS)]
    finally:
        hurried.remove()
        sure.remove()
    rates = {name: statistics.median(one[name] for one in rounds) for name in TABLES}
    sys.stdout.write("                       us: in bulk   single   commits/s  share\n")
    for name, (bulk, single) in costs.items():
        share = rates[name] / rates["without a watch"]
        sys.stdout.write(f"{name:23} {bulk:9.1f} {single:8.0f} {rates[name]:11.0f} {share:6.2f}\n")


if __name__ == "__main__":
    main()
