"""Recent execution times classify statements as short."""

from __future__ import annotations

import pytest
from dataapi.database.message import RecentTimes

LONG = 0.02
SMALL = [(b"[]", 0)]
LARGE = [(b"x" * 10_000, 1)]


def _short() -> RecentTimes:
    times = RecentTimes()
    for _ in range(3):
        times.add_own(0.0001, SMALL)
    return times


def test_statement_is_short_after_three_short_runs() -> None:
    times = RecentTimes()
    missing = []
    for _ in range(4):
        missing.append(times.missing)
        times.add_own(0.0001, SMALL)
    assert missing == [3, 2, 1, 0]


def test_long_runs_do_not_count() -> None:
    times = RecentTimes()
    for _ in range(10):
        times.add_own(LONG, SMALL)
    assert times.missing == 3


def test_statement_with_a_long_average_is_not_short() -> None:
    times = _short()
    runs = 0
    while not times.missing:
        times.add_shared(LONG, SMALL)
        runs += 1
    assert runs < 10


def test_statement_with_large_results_is_not_short() -> None:
    times = RecentTimes()
    for _ in range(10):
        times.add_own(0.0001, LARGE)
    assert times.missing == 3


def test_statement_whose_results_become_large_is_no_longer_short() -> None:
    times = _short()
    runs = 0
    while not times.missing:
        times.add_shared(0.0001, LARGE)
        runs += 1
    assert runs < 10


@pytest.mark.parametrize("rows", [[], [()], [(None,)], [(7, "x" * 10_000)]])
def test_only_the_length_of_the_first_value_counts(rows: list[tuple[object, ...]]) -> None:
    times = RecentTimes()
    times.add_own(0.0001, rows)
    assert times.missing == 2


def test_single_interrupted_run_does_not_matter() -> None:
    times = _short()
    for _ in range(5):
        times.add_shared(1.0, SMALL)
        for _ in range(30):
            times.add_shared(0.0001, SMALL)
    assert times.missing == 0


def test_each_long_run_takes_twice_as_many_short_runs_to_make_up_for() -> None:
    times = _short()
    missing = []
    for _ in range(6):
        times.add_long()
        missing.append(times.missing)
        while times.missing:
            times.add_own(0.0001, SMALL)
    assert missing == [64, 128, 256, 512, 1024, 1024]
