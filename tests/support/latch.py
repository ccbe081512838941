"""SQL statements that block until a test releases them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.postgres import Database

LATCHED = "pg_advisory_xact_lock_shared(1)"
"""An SQL expression that blocks until the latch is opened."""


@contextmanager
def latched(database: Database) -> Iterator[Callable[[], None]]:
    """Block the evaluation of ``LATCHED`` in this database. Yield a function that opens the latch."""
    connection = psycopg2.connect(database.admin_uri)
    try:
        with connection.cursor() as cursor:
            cursor.execute("select pg_advisory_xact_lock(1)")
        yield connection.rollback
    finally:
        connection.close()


def held_up(database: Database) -> int:
    """Return the number of statements that wait for the latch."""
    rows = database.execute(
        "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        " and database = (select oid from pg_database where datname = current_database())"
    )
    return int(rows[0][0])
