"""``Effort`` counts only the work of the tested code."""

from __future__ import annotations

import gc
import time

from support.effort import Effort


def test_full_garbage_collection_is_not_counted() -> None:
    objects = [[number] for number in range(1_000_000)]
    effort, began = Effort(), time.process_time()
    gc.collect()
    assert effort.seconds < (time.process_time() - began) / 10
    assert len(objects) == 1_000_000


def test_other_work_is_counted() -> None:
    effort = Effort()
    sum(range(3_000_000))
    assert effort.units > 1
