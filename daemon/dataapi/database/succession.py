"""Detects the most recently promoted primary, so that we never write to an old one.

A promotion starts a new timeline of the same cluster. A server on an earlier timeline is an old primary that
may still accept writes, or a standby of an old primary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataapi.database.sql_text import CONCATENATE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


@dataclass(frozen=True, slots=True)
class Lineage:
    """The WAL that a server writes or follows. ``system`` identifies a cluster and its physical copies."""

    system: int
    timeline: int


# The name of a WAL file starts with the timeline. The query returns a row only on primaries, to detect
# old ones.
PRIMARY_LINEAGE = f"""
select system_identifier, ('x' {CONCATENATE} pg_catalog.substr(
    pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint
from pg_catalog.pg_control_system() where not pg_catalog.pg_is_in_recovery()
"""


class Succession:
    """Tracks which server of a database was promoted last, as observed on connections.

    Unrelated clusters, such as a cluster restored from a dump, are not compared.
    """

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}
        self._last: list[Hashable] = []
        self._observers: list[Callable[[], object]] = []

    def copy(self) -> Succession:
        other = Succession()
        other._newest, other._last = dict(self._newest), list(self._last)
        return other

    def observe(self, observer: Callable[[], object]) -> None:
        self._observers.append(observer)

    def add_primary(self, lineage: Lineage) -> None:
        previous = self._newest.get(lineage.system)
        if previous is not None and previous >= lineage.timeline:
            return
        self._newest[lineage.system] = lineage.timeline
        if previous is not None:
            for observer in self._observers:
                observer()

    def add_server(self, lineage: Lineage) -> None:
        if lineage.system in self._newest:
            self.add_primary(lineage)

    def newest(self, lineage: Lineage) -> int:
        return self._newest.get(lineage.system, 0)

    def is_outdated(self, lineage: Lineage | None) -> bool:
        return lineage is not None and lineage.timeline < self.newest(lineage)

    def is_current(self, lineage: Lineage | None) -> bool:
        return (
            lineage is not None
            and lineage.system in self._newest
            and lineage.timeline >= self._newest[lineage.system]
        )

    def deprioritize(self, server: Hashable) -> None:
        self._last = [*(one for one in self._last if one != server), server]

    def rank(self, server: Hashable) -> int:
        return self._last.index(server) + 1 if server in self._last else 0
