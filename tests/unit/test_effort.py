"""Counted work of the tests is that of what they test."""

from __future__ import annotations

import gc
import time

from support.effort import Effort


def test_a_full_collection_is_nobodys_effort() -> None:
    left = [[number] for number in range(1_000_000)]
    effort, began = Effort(), time.process_time()
    gc.collect()
    assert effort.seconds < (time.process_time() - began) / 10
    assert len(left) == 1_000_000


def test_other_work_is() -> None:
    effort = Effort()
    sum(range(3_000_000))
    assert effort.units > 1
