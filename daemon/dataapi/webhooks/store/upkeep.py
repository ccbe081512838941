"""Upkeep: partitions made ahead, and what is past its time removed, a piece at a time."""

from __future__ import annotations

from dataclasses import dataclass

from dataapi.webhooks.migrate import Fetches
from dataapi.webhooks.store.statements import statements

DAYS_AHEAD = 7
"""For how many days after today partitions are made: upkeep may fail that long before anything is missing."""

PIECE = 5_000
"""The most rows that one statement deletes, so that none takes long."""

_SQL = statements("upkeep.sql")


@dataclass(frozen=True, slots=True)
class Kept:
    """What upkeep did.

    :ivar made: partitions made.
    :ivar dropped: partitions dropped.
    :ivar events: events deleted.
    :ivar keys: idempotency keys forgotten.
    """

    made: int
    dropped: int
    events: int
    keys: int


class Upkeep:
    """Keeps the tables of a database in shape; several daemons may do so at once.

    :ivar retention_days: how long deliveries are kept.
    """

    def __init__(self, database: Fetches, retention_days: int, *, piece: int = PIECE) -> None:
        self._database = database
        self._piece = piece
        self.retention_days = retention_days

    async def run(self) -> Kept:
        """Do all that there is to do; to be called at start and every hour or so."""
        made, dropped = await self.make_partitions(), await self._drop_partitions()
        events = await self._purge("purge_events", self.retention_days)
        keys = await self._purge("purge_keys")
        await self._database.fetch(_SQL["purge_requests"])
        return Kept(made, dropped, events, keys)

    async def make_partitions(self) -> int:
        """Make the history's partitions that are needed; return how many."""
        [(made,)] = await self._database.fetch(_SQL["make_partitions"], (DAYS_AHEAD,))
        return int(made)

    async def _drop_partitions(self) -> int:
        """Drop partitions past retention, each for itself; return how many."""
        dropped = 0
        while await self._database.fetch(_SQL["drop_partition"], (self.retention_days,)) == [(True,)]:
            dropped += 1
        return dropped

    async def _purge(self, name: str, *values: object) -> int:
        gone = 0
        while True:
            rows = await self._database.fetch(_SQL[name], (*values, self._piece))
            gone += len(rows)
            if len(rows) < self._piece:
                return gone
