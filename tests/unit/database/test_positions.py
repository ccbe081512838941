"""Positions of the WAL: what a reader must see, and by how much a replica is behind."""

from __future__ import annotations

import pytest
from dataapi.database.positions import BEGINNING, Position, PrimaryProgress, required_position


@pytest.mark.parametrize(
    ("sent", "required"),
    [
        ("1:0/16B3748", Position(1, 0x16B3748)),
        ("1:A/1, 1:9/FFFFFFFF, 1:10/0", Position(1, 0x1000000000)),
        ("1:0/ff, 1:0/100", Position(1, 0x100)),
        ("3:0/1, 2:FF/0", Position(3, 1)),
        ("", None),
        ("1:0/1, x", None),
        ("0/1", None),
        ("1:0/123456789", None),
        ("1:0/1' or true", None),
        ("12345678901:0/1", None),
    ],
)
def test_the_furthest_position_counts(sent: str, required: Position | None) -> None:
    """Compared as numbers, after their timelines; what is no position leaves the read to the primary."""
    assert required_position({"dataapi-lsn": sent}) == required


def test_a_position_is_asked_for_as_postgresql_writes_it() -> None:
    assert [Position(2, offset).lsn for offset in (1, 0x16B374D848)] == ["0/1", "16/B374D848"]


def test_without_a_position_any_replica_will_do() -> None:
    """That is the usual reader."""
    assert required_position({}) == BEGINNING


def test_a_replica_is_behind_by_the_age_of_what_it_has_replayed() -> None:
    """The primary was at 100 ten seconds before it was seen last."""
    progress = PrimaryProgress()
    assert progress.lag(100) is None
    for now, position in ((0, 50), (10, 100), (15, 150), (20, 200)):
        progress.record(position, now)
    assert [progress.lag(position) for position in (250, 200, 199, 120, 100, 50)] == [0, 0, 5, 10, 10, 20]


def test_nobody_knows_how_far_a_replica_is_behind_all_that_was_seen() -> None:
    """It may be days."""
    progress = PrimaryProgress()
    for now, position in ((0, 50), (10, 100)):
        progress.record(position, now)
    assert progress.lag(49) is None


def test_an_idle_primary_makes_no_lag() -> None:
    """Whoever has replayed all of it is up to date, however long ago it was written."""
    progress = PrimaryProgress()
    for now in range(100):
        progress.record(50, now)
    assert progress.lag(50) == 0
    progress.record(60, 100)
    assert progress.lag(50) == 1


def test_a_new_primary_begins_anew() -> None:
    """After a failover positions may go on from an earlier one."""
    progress = PrimaryProgress()
    for now, position in ((0, 50), (10, 100), (20, 80)):
        progress.record(position, now)
    assert progress.lag(80) == 0
    assert progress.lag(79) is None
