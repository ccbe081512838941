"""A cache that is bounded by entries and weight, compared with a simple model."""

from __future__ import annotations

from dataapi.concurrency.cache import BoundedCache
from hypothesis import given
from hypothesis import strategies as st

KEYS = st.integers(0, 5)
STEPS = st.lists(st.tuples(KEYS, st.none() | st.integers(-1, 12)), max_size=40)


@given(STEPS, st.integers(1, 4), st.integers(1, 20))
def test_cache_evicts_least_recently_used_entries(
    steps: list[tuple[int, int | None]], size: int, heaviest: int
) -> None:
    """A step looks up a key (None), drops it (-1) or stores it with a weight. The model is ordered by use."""
    cache = BoundedCache[int, int](size, heaviest)
    model: list[tuple[int, int]] = []
    for number, (key, put) in enumerate(steps):
        known = next((entry for entry in model if entry[0] == key), None)
        weight = put
        if put is None:
            assert (cache.get(key) is not None) == (known is not None)
            weight = known[1] if known else None
        elif put < 0:
            cache.drop(key)
            weight = None
        else:
            cache.put(key, number, put)
        model = [entry for entry in model if entry is not known]
        if weight is not None and weight <= heaviest:
            model.append((key, weight))
        while len(model) > size or sum(entry[1] for entry in model) > heaviest:
            model.pop(0)
        assert (len(cache), cache.weight) == (len(model), sum(entry[1] for entry in model))
    assert all(cache.get(key) is not None for key, _ in model)
