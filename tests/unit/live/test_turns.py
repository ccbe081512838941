"""A fair queue serves owners in turn."""

from __future__ import annotations

from collections import Counter

from dataapi.live.turns import FairQueue
from hypothesis import given
from hypothesis import strategies as st


def anything(_item: str, _owner: str) -> bool:
    return True


def serve_all(turns: FairQueue[str], cost: float = 1.0) -> list[str]:
    """Serve all items, charge their owners, and return the items in the order of service."""
    order = []
    while (turn := turns.pop(anything)) is not None:
        item, owner = turn
        order.append(item)
        turns.charge(owner, cost)
    return order


def test_owner_with_one_item_does_not_wait_for_an_owner_with_many() -> None:
    turns: FairQueue[str] = FairQueue()
    for number in range(60):
        turns.add(f"many {number}", "busy", float(number))
    turns.add("one", "quiet", 60.0)
    order = serve_all(turns)
    assert order.index("one") <= 1
    assert [item for item in order if item != "one"] == [f"many {number}" for number in range(60)]


def test_duration_counts_instead_of_turns() -> None:
    turns: FairQueue[str] = FairQueue()
    for number in range(10):
        turns.add(f"slow {number}", "slow", 0.0)
        turns.add(f"fast {number}", "fast", 0.0)
    order = []
    while (turn := turns.pop(anything)) is not None:
        order.append(turn[1])
        turns.charge(turn[1], 5.0 if turn[1] == "slow" else 1.0)
    assert Counter(order[:7])["fast"] >= 5


def test_idle_owner_accumulates_no_credit() -> None:
    turns: FairQueue[str] = FairQueue()
    for number in range(100):
        turns.add(f"a {number}", "a", 0.0)
    for _ in range(50):
        turns.pop(anything)
        turns.charge("a", 1.0)
    for number in range(50):
        turns.add(f"b {number}", "b", 1.0)
    first = serve_all(turns)[:20]
    assert 9 <= sum(item.startswith("a") for item in first) <= 11


def test_disallowed_item_does_not_block_others() -> None:
    turns: FairQueue[str] = FairQueue()
    turns.add("long", "a", 0.0)
    turns.add("short", "b", 0.0)
    assert turns.pop(lambda item, _owner: item != "long") == ("short", "b")
    assert turns.pop(lambda item, _owner: item != "long") is None
    assert turns.oldest == 0.0
    assert turns.pop(anything) == ("long", "a")
    assert turns.oldest is None


@given(st.lists(st.tuples(st.sampled_from("adtc"), st.integers(0, 5), st.sampled_from("xyz"))))
def test_each_item_is_served_once(actions: list[tuple[str, int, str]]) -> None:
    turns: FairQueue[int] = FairQueue()
    waiting: set[int] = set()
    for action, item, owner in actions:
        if action == "a":
            turns.add(item, owner, 0.0)
            waiting.add(item)
        elif action == "d":
            turns.discard(item)
            waiting.discard(item)
        elif action == "c":
            turns.charge(owner, float(item))
        else:
            turn = turns.pop(lambda _item, _owner: True)
            assert (turn is None) == (not waiting)
            if turn is not None:
                waiting.remove(turn[0])
        assert all((item in turns) == (item in waiting) for item in range(6))
