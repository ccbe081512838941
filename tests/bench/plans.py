"""Executes SQL like the pool and reads query plans from auto_explain."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from dataapi.database import errors
from dataapi.database.sql_text import split
from dataapi.database.steps import CONTEXT

Call = Coroutine[Any, Any, Any]

_EXPLAIN = """
load 'auto_explain';
set auto_explain.log_min_duration = 0;
set auto_explain.log_analyze = on;
set auto_explain.log_timing = off;
set auto_explain.log_buffers = on;
set auto_explain.log_wal = on;
set auto_explain.log_format = json;
set client_min_messages = log;
"""
_NESTED = "set auto_explain.log_nested_statements = on"
_PARENTS = """
select inhrelid::regclass::text, inhparent::regclass::text from pg_inherits where inhrelid in (
    select c.oid from pg_class c join pg_namespace n on n.oid = relnamespace where nspname = 'webhooks')
"""
_ROUNDS = 3
_LONG = 2.0
"""Seconds from which a call is too slow to be repeated."""


@dataclass
class Seen:
    """Measurements of a call.

    :ivar milliseconds: duration without auto_explain, including planning and round trips.
    :ivar buffers: pages accessed in shared buffers or on disk.
    :ivar wal: bytes written to the WAL.
    :ivar nodes: kinds of scans by table or index, with the number of partitions scanned.
    :ivar discarded: rows removed by filters.
    """

    milliseconds: float = 0.0
    buffers: int = 0
    wal: int = 0
    discarded: int = 0
    nodes: Counter[str] = field(default_factory=Counter)


class Explained:
    """Runs calls of the store in transactions that are rolled back."""

    def __init__(self, uri: str) -> None:
        self._connection = psycopg.connect(uri, cursor_factory=psycopg.RawCursor, context=CONTEXT)
        self._notices: list[str] = []
        self._connection.add_notice_handler(lambda notice: self._notices.append(notice.message_primary or ""))
        with self._connection.cursor() as cursor:
            cursor.execute(_PARENTS)
            self._parents = dict(cursor.fetchall())
            cursor.execute("set jit = off")  # like the pool
        self._connection.commit()
        self._texts: list[str] = []
        self._commits = False

    async def fetch(self, text: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Execute SQL. Repeated texts return no rows, so loops over remaining work end early."""
        if not self._commits and text in self._texts:
            return []
        self._texts.append(text)
        try:
            for part in split(text):
                cursor = self._connection.execute(part.text, part.arrange(list(values)))
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise errors.from_postgres(error, anonymous=False) from error

    def commit(self, call: Call) -> Any:
        """Run a call, commit its transaction, and return its result."""
        self._commits = True
        try:
            return _done(call)
        finally:
            self._commits = False
            self._connection.commit()

    def explain(self, call: Callable[[], Call], before: str = "") -> Seen:
        """Repeat a call, finally with auto_explain, and return the measurements.

        :param before: SQL that runs first in each transaction, but is not measured.
        """
        times = list[float]()
        while len(times) <= _ROUNDS and (not times or times[-1] < _LONG):
            times.append(self._once(call, before))
        # The first run may have read from disk.
        seen = Seen(statistics.median(times[1:] or times) * 1000)
        for plan in self._plans(call, before):
            seen.buffers += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            seen.wal += plan["WAL Bytes"]
        # The cost of a statement includes that of its functions. Statements of functions have separate plans.
        for plan in self._plans(call, before, _NESTED):
            self._read(plan, seen)
        return seen

    def _plans(self, call: Callable[[], Call], before: str, *settings: str) -> list[dict[str, Any]]:
        self._notices.clear()
        self._once(call, before, _EXPLAIN, *settings)
        documents = [notice.partition("plan:\n")[2] for notice in self._notices]
        return [json.loads(document)["Plan"] for document in documents if document]

    def _once(self, call: Callable[[], Call], *before: str) -> float:
        self._texts.clear()
        try:
            with self._connection.cursor() as cursor:
                for text in filter(None, before):
                    cursor.execute(text)
            began = time.perf_counter()
            _done(call())
            return time.perf_counter() - began
        finally:
            self._connection.rollback()

    def _read(self, plan: Mapping[str, Any], seen: Seen) -> None:
        """Add the scans of a plan node and its descendants, except nodes that were never executed."""
        if not plan.get("Actual Loops"):
            return
        what = plan.get("Index Name") or plan.get("Relation Name")
        if what is not None:
            name = self._parents.get(f"webhooks.{what}", f"webhooks.{what}").removeprefix("webhooks.")
            seen.nodes[f"{plan['Node Type']} {name}"] += 1
            seen.discarded += plan.get("Rows Removed by Filter", 0) * plan["Actual Loops"]
        elif plan["Node Type"] in _NOTEWORTHY:
            seen.nodes[plan["Node Type"]] += 1
        for part in plan.get("Plans", ()):
            self._read(part, seen)


_NOTEWORTHY = frozenset({"Sort", "Hash", "Incremental Sort"})


def _done(call: Call) -> Any:
    """Return the result of a coroutine that completes immediately."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("the call does not complete immediately")
