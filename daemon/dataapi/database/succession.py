"""Which of several servers was made the primary last, so that nothing is written to one before; pure.

A promotion begins a new timeline of the same cluster.  A server on an earlier one is an old primary, which
may still accept writes, or a standby of such a one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataapi.database.sql_text import CONCATENATE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


@dataclass(frozen=True, slots=True)
class Lineage:
    """The history of changes that a server goes on with.

    :ivar system: the identifier that a cluster shares with its physical copies.
    :ivar timeline: which promotion it has come by; later ones have higher numbers.
    """

    system: int
    timeline: int


# The name of a WAL file begins with its timeline.  A standby is asked for nothing: it is not written to.
PRIMARY_LINEAGE = f"""
select system_identifier, ('x' {CONCATENATE} pg_catalog.substr(
    pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint
from pg_catalog.pg_control_system() where not pg_catalog.pg_is_in_recovery()
"""
"""Asks a server that is no standby for its lineage."""


class Succession:
    """The order in which servers of one database became the primary, as connections to them showed it.

    Clusters without anything in common are not compared, such as one that was restored from a dump.
    """

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}
        self._last: list[Hashable] = []
        self._observers: list[Callable[[], object]] = []

    def continued(self) -> Succession:
        """Return one that begins with the knowledge of this one, for other observers."""
        other = Succession()
        other._newest, other._last = dict(self._newest), list(self._last)
        return other

    def observe(self, observer: Callable[[], object]) -> None:
        """Call the observer whenever a newer primary is seen than before."""
        self._observers.append(observer)

    def see(self, lineage: Lineage) -> None:
        """Take note of a server that accepts writes."""
        before = self._newest.get(lineage.system)
        if before is not None and before >= lineage.timeline:
            return
        self._newest[lineage.system] = lineage.timeline
        if before is not None:
            for observer in self._observers:
                observer()

    def hear(self, lineage: Lineage) -> None:
        """Take note of any server of a cluster of which a primary is known."""
        if lineage.system in self._newest:
            self.see(lineage)

    def newest(self, lineage: Lineage) -> int:
        """Return the timeline of the newest primary of the same cluster, 0 where none was seen."""
        return self._newest.get(lineage.system, 0)

    def overtaken(self, lineage: Lineage | None) -> bool:
        """Return whether a server is known to be on an earlier timeline than the newest primary."""
        return lineage is not None and lineage.timeline < self.newest(lineage)

    def follows(self, lineage: Lineage | None) -> bool:
        """Return whether a server is known to be on the timeline of the newest primary."""
        return (
            lineage is not None
            and lineage.system in self._newest
            and lineage.timeline >= self._newest[lineage.system]
        )

    def try_last(self, server: Hashable) -> None:
        """Have a server tried after all others from now on."""
        self._last = [*(one for one in self._last if one != server), server]

    def rank(self, server: Hashable) -> int:
        """Return the key to sort servers to try by; those that are alike keep their order."""
        return self._last.index(server) + 1 if server in self._last else 0
