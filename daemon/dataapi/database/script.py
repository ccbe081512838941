"""SQL scripts and single questions at set-up time, over a connection of their own in a thread."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg2
from twisted.internet.threads import deferToThread


class ScriptError(Exception):
    """The database refused the script or could not be reached; the text says why."""


async def run_script(uri: str, text: str) -> list[tuple[Any, ...]]:
    """Run SQL statements, each committed by itself, and return the last one's rows.

    :raises ScriptError: when the database refuses one or cannot be reached.
    """
    rows: list[tuple[Any, ...]] = await deferToThread(_run, uri, text)
    return rows


def _run(uri: str, text: str) -> list[tuple[Any, ...]]:
    try:
        with closing(psycopg2.connect(uri)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(text)
                return cursor.fetchall() if cursor.description else []
    except psycopg2.Error as error:
        raise ScriptError(str(error).strip()) from error
