"""A cache that is bounded by entries and weight, compared with a simple model."""

from __future__ import annotations

from dataapi.concurrency.cache import BoundedCache
from hypothesis import given
from hypothesis import strategies as st

KEYS = st.integers(0, 5)
STEPS = st.lists(st.tuples(KEYS, st.none() | st.integers(-1, 12)), max_size=40)


class Entry:
    """An entry of the model cache."""

    def __init__(self, key: int, weight: int) -> None:
        self.key, self.weight, self.used = key, weight, False


@given(STEPS, st.integers(0, 4), st.integers(1, 20))
def test_cache_evicts_oldest_entries_not_used_since_spared(
    steps: list[tuple[int, int | None]], size: int, heaviest: int
) -> None:
    """A step is a key with None (look up), -1 (drop) or a weight (store). The model is ordered by age."""
    cache = BoundedCache[int, int](size, heaviest)
    model: list[Entry] = []
    for number, (key, put) in enumerate(steps):
        known = next((entry for entry in model if entry.key == key), None)
        if put is None:
            assert (cache.get(key) is not None) == (known is not None)
            if known:
                known.used = True
            continue
        model = [entry for entry in model if entry is not known]
        if put < 0:
            cache.drop(key)
        else:
            cache.put(key, number, put)
            if put <= heaviest and size:
                while len(model) + 1 > size or sum(entry.weight for entry in model) + put > heaviest:
                    oldest = model.pop(0)
                    if oldest.used:
                        oldest.used = False
                        model.append(oldest)
                model.append(Entry(key, put))
        assert (len(cache), cache.weight) == (len(model), sum(entry.weight for entry in model))
    assert all(cache.get(entry.key) is not None for entry in model)


def test_new_entry_is_stored_although_all_others_were_used() -> None:
    cache = BoundedCache[int, str](2)
    for key in (1, 2):
        cache.put(key, "old")
        cache.get(key)
    cache.put(3, "new")
    assert cache.get(3) == "new"
    assert len(cache) == 2
