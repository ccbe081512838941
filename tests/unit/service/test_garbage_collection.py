"""What lives on is frozen before there is much of it, and nothing that is garbage with it."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from dataapi.service.garbage_collection import FREEZE_AFTER, ShortCollections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Reactor:
    """Calls what it was asked to when the test says so."""

    def __init__(self) -> None:
        self.called: list[Callable[[], None]] = []

    def callFromThread(self, function: Callable[[], None]) -> None:  # noqa: N802 - twisted's name
        self.called.append(function)

    def turn(self) -> None:
        """Call it."""
        while self.called:
            self.called.pop()()


class Machine:
    """ShortCollections collections of this process, watched."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.garbage = ShortCollections(self.reactor)


@pytest.fixture
def machine() -> Iterator[Machine]:
    gc.disable()
    machine = Machine()
    machine.garbage.start()
    yield machine
    machine.garbage.stop()
    gc.unfreeze()
    gc.enable()


def kept() -> list[list[int]]:
    """Make a thousand objects that the collector knows."""
    return [[number] for number in range(1000)]


def collected() -> None:
    """Make as many young collections as there are before a full one."""
    for _ in range(FREEZE_AFTER):
        gc.collect(1)


def test_what_lives_on_is_frozen(machine: Machine) -> None:
    lists = kept()
    before = gc.get_freeze_count()
    gc.collect(1)
    machine.reactor.turn()
    assert gc.get_freeze_count() == before
    collected()
    assert gc.get_freeze_count() == before
    machine.reactor.turn()
    assert gc.get_freeze_count() >= before + len(lists)
    gc.collect(1)
    assert machine.reactor.called == [], "it begins to count anew"


def test_garbage_is_not_frozen(machine: Machine) -> None:
    cycles = kept()
    collected()
    for each in cycles:
        each.append(each)  # type: ignore[arg-type]
    del cycles, each
    machine.reactor.turn()
    gc.unfreeze()
    assert gc.collect() < 1000


def test_nothing_happens_after_the_end(machine: Machine) -> None:
    collected()
    machine.garbage.stop()
    before = gc.get_freeze_count()
    collected()
    machine.reactor.turn()
    assert gc.get_freeze_count() == before
    machine.garbage.stop()
