"""Long-lived objects are excluded from garbage collection (frozen), but garbage is not."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from dataapi.service.garbage_collection import FREEZE_AFTER, ShortCollections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Reactor:
    """A fake reactor that calls functions when the test calls ``run_pending``."""

    def __init__(self) -> None:
        self.pending: list[Callable[[], None]] = []

    def callFromThread(self, function: Callable[[], None]) -> None:  # noqa: N802 - twisted's name
        self.pending.append(function)

    def run_pending(self) -> None:
        while self.pending:
            self.pending.pop()()


class Harness:
    """ShortCollections with a fake reactor."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.garbage = ShortCollections(self.reactor)


@pytest.fixture
def harness() -> Iterator[Harness]:
    gc.disable()
    gc.collect()  # collects garbage of other tests
    harness = Harness()
    harness.garbage.start()
    yield harness
    harness.garbage.stop()
    gc.unfreeze()
    gc.enable()


def make_lists() -> list[list[int]]:
    """Return a thousand objects that the garbage collector tracks."""
    return [[number] for number in range(1000)]


def collect_until_full() -> None:
    """Run collections of young objects until a full collection is due."""
    for _ in range(FREEZE_AFTER):
        gc.collect(1)


def test_surviving_objects_are_frozen(harness: Harness) -> None:
    lists = make_lists()
    before = gc.get_freeze_count()
    gc.collect(1)
    harness.reactor.run_pending()
    assert gc.get_freeze_count() == before
    collect_until_full()
    assert gc.get_freeze_count() == before
    harness.reactor.run_pending()
    assert gc.get_freeze_count() >= before + len(lists)
    gc.collect(1)
    assert harness.reactor.pending == [], "the count of collections restarts"


def test_garbage_is_not_frozen(harness: Harness) -> None:
    cycles = make_lists()
    collect_until_full()
    for each in cycles:
        each.append(each)  # type: ignore[arg-type]
    del cycles, each
    harness.reactor.run_pending()
    gc.unfreeze()
    assert gc.collect() < 1000


def test_nothing_is_frozen_after_stop(harness: Harness) -> None:
    collect_until_full()
    harness.garbage.stop()
    before = gc.get_freeze_count()
    collect_until_full()
    harness.reactor.run_pending()
    assert gc.get_freeze_count() == before
    harness.garbage.stop()
