"""What a watch costs a write: microseconds a row, in one statement of many rows and in statements of one.

Run as ``PYTHONPATH=daemon:tests python tests/bench/watch.py``.  It starts a PostgreSQL of its own, which
does not wait for its disk, and updates a table without a watch, with one whose columns do not change, with
one whose events no endpoint takes, and with one whose events one endpoint takes.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing

import psycopg2
from dataapi.database.script import complete, opened
from support.postgres import Server
from support.webhooks import ACME, add_endpoint, migrated

ROWS = 10_000
TYPE = "v1.shop.order"
TABLE = f"""
    create table item (id int primary key, name text, size int, weight int);
    insert into item select n, 'item ' || n, 1, 1 from generate_series(1, {ROWS}) n;
    grant all on schema webhooks to postgres;
"""
WATCH = f"select webhooks.watch('item', '{TYPE}', %s, organization => 'acme')"


def measured(connection: psycopg2.extensions.connection) -> str:
    """Return the costs of updates: the best of five."""
    bulk, single = [], []
    with connection.cursor() as cursor:
        for _ in range(5):
            cursor.execute("vacuum (analyze) item")
            began = time.perf_counter()
            cursor.execute("update item set size = size + 1")
            bulk.append(time.perf_counter() - began)
            began = time.perf_counter()
            for number in range(1, ROWS // 10 + 1):
                cursor.execute("update item set size = size + 1 where id = %s", (number,))
            single.append(time.perf_counter() - began)
    return f"{min(bulk) / ROWS * 1e6:8.0f} {min(single) / ROWS * 1e7:8.0f}"


def main() -> None:
    """Start what is needed, measure, print, and end it."""
    server = Server()
    try:
        server.create()
        database = server.create_database()
        with opened(database.uri) as fetches, closing(psycopg2.connect(database.admin_uri)) as connection:
            connection.autocommit = True
            store = complete(migrated(database, fetches))
            complete(store.publisher.sync_event_types({}, [TYPE]))
            with connection.cursor() as cursor:
                cursor.execute(TABLE)
                lines = [
                    "                        in bulk   single",
                    f"without a watch        {measured(connection)}",
                ]
                cursor.execute(WATCH, (["weight"],))
                lines.append(f"other columns changed  {measured(connection)}")
                cursor.execute(WATCH, (None,))
                lines.append(f"no endpoint            {measured(connection)}")
                complete(add_endpoint(store, ACME))
                lines.append(f"one endpoint           {measured(connection)}")
        sys.stdout.write("\n".join(lines) + "\n")
    finally:
        server.remove()


if __name__ == "__main__":
    main()
