"""WAL positions that requests require and the lag of replicas."""

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
def test_highest_position_is_required(sent: str, required: Position | None) -> None:
    assert required_position({"dataapi-lsn": sent}) == required


def test_position_is_formatted_like_postgresql() -> None:
    assert [Position(2, offset).lsn for offset in (1, 0x16B374D848)] == ["0/1", "16/B374D848"]


def test_any_replica_is_sufficient_without_a_position() -> None:
    assert required_position({}) == BEGINNING


def test_lag_is_the_age_of_the_replayed_position() -> None:
    """The primary was at position 100 ten seconds before the last observation."""
    progress = PrimaryProgress()
    assert progress.lag(100) is None
    for now, position in ((0, 50), (10, 100), (15, 150), (20, 200)):
        progress.record(position, now)
    assert [progress.lag(position) for position in (250, 200, 199, 120, 100, 50)] == [0, 0, 5, 10, 10, 20]


def test_lag_is_unknown_before_the_first_observed_position() -> None:
    progress = PrimaryProgress()
    for now, position in ((0, 50), (10, 100)):
        progress.record(position, now)
    assert progress.lag(49) is None


def test_idle_primary_causes_no_lag() -> None:
    progress = PrimaryProgress()
    for now in range(100):
        progress.record(50, now)
    assert progress.lag(50) == 0
    progress.record(60, 100)
    assert progress.lag(50) == 1


def test_new_primary_resets_the_observations() -> None:
    progress = PrimaryProgress()
    for now, position in ((0, 50), (10, 100), (20, 80)):
        progress.record(position, now)
    assert progress.lag(80) == 0
    assert progress.lag(79) is None
