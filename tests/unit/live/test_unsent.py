"""Unsent bytes are counted once per event, and once per caller."""

from __future__ import annotations

from collections import Counter

from dataapi.http.messages import Chunk
from dataapi.live.unsent import UnsentBytes
from hypothesis import given
from hypothesis import strategies as st

EVENTS = [Chunk(b"x" * size) for size in (1, 10, 100, 1000)]
CALLERS = ["ada", "grace"]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(EVENTS), st.sampled_from(CALLERS))))
def test_shared_events_count_once(actions: list[tuple[bool, Chunk, str]]) -> None:
    unsent, counts = UnsentBytes(), Counter[tuple[Chunk, str]]()
    for adds, event, caller in actions:
        if adds:
            unsent.add(event, caller)
            counts[event, caller] += 1
        elif counts[event, caller]:
            unsent.release(event, caller)
            counts[event, caller] -= 1
        present = {key for key, count in counts.items() if count}
        assert unsent.total == sum(map(len, {event for event, _ in present}))
        for name in CALLERS:
            assert unsent.of(name) == sum(len(event) for event, holder in present if holder == name)
