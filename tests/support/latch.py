"""Statements that last exactly as long as a test wants."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.postgres import Database

LATCHED = "pg_advisory_xact_lock_shared(1)"
"""An expression that has no value before the latch is opened."""


@contextmanager
def latched(database: Database) -> Iterator[Callable[[], None]]:
    """Hold up what evaluates ``LATCHED`` in this database; give what opens the latch, as the end does."""
    connection = psycopg2.connect(database.admin_uri)
    try:
        with connection.cursor() as cursor:
            cursor.execute("select pg_advisory_xact_lock(1)")
        yield connection.rollback
    finally:
        connection.close()


def held_up(database: Database) -> int:
    """Count the statements that wait for the latch."""
    rows = database.execute(
        "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        " and database = (select oid from pg_database where datname = current_database())"
    )
    return int(rows[0][0])
