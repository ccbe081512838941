"""Which name is suggested for one that is none."""

from __future__ import annotations

import pytest
from dataapi.rest.plan.similar_names import (
    LONGEST_TEXT,
    MIN_KNOWN_SIMILARITY,
    NameIndex,
    distance,
    hint_for,
    similar,
)
from hypothesis import given
from hypothesis import strategies as st


def exact(one: str, other: str) -> int:
    """Return the distance by its definition."""
    if not one or not other:
        return len(one) + len(other)
    return min(
        exact(one[1:], other) + 1,
        exact(one, other[1:]) + 1,
        exact(one[1:], other[1:]) + (one[0] != other[0]),
    )


@given(st.text("abc", max_size=5), st.text("abc", max_size=5), st.integers(0, 4))
def test_distances_are_exact_up_to_the_most(one: str, other: str, maximum: int) -> None:
    assert distance(one, other, maximum) == min(exact(one, other), maximum + 1)


@pytest.mark.parametrize(
    ("name", "columns", "suggested"),
    [
        ("titel", ["id", "title"], '"t.title"'),
        ("nam", ["name", "game"], '"t.name"'),
        ("nxme", ["name", "nome"], '"t.name" or the column "t.nome"'),
        ("xame", ["name", "game", "fame"], None),
        ("unlike", ["id", "title"], None),
        ("x", ["y"], None),
        ("", [], None),
        ("titel", [*(f"column_{number}" for number in range(1600)), "title"], '"t.title"'),
        ("title" * 20, ["title" * 20 + "s"], None),
    ],
)
def test_one_or_two_columns_are_suggested(name: str, columns: list[str], suggested: str | None) -> None:
    hint = None if suggested is None else f"Perhaps you meant to reference the column {suggested}."
    assert hint_for("t", name, columns) == hint


@pytest.mark.parametrize(
    ("text", "names", "suggested"),
    [
        # A quarter of the longer one may differ.
        ("journex", ["journal", "journey"], "journey"),
        ("orderxyz", ["orders"], None),
        ("ordersxx", ["orders"], "orders"),
        ("ordersxxx", ["orders"], None),
        ("ORDERS", ["Orders"], "Orders"),
        ("secret", ["secrets_of_accounts"], None),
        ("ab", ["ba"], None),
        ("", ["a"], None),
        ("orders", [], None),
        ("orderz", [*(f"table_{number}" for number in range(1000)), "orders"], "orders"),
        ("x" * (LONGEST_TEXT + 1), ["x" * LONGEST_TEXT], None),
    ],
)
def test_the_name_that_is_most_alike_is_suggested(text: str, names: list[str], suggested: str | None) -> None:
    """Not one that is far off, so that callers do not find out names by guessing."""
    assert similar(text, NameIndex(names)) == suggested


def test_what_callers_may_know_is_suggested_from_farther_off() -> None:
    assert similar("(from_then_on)", NameIndex(["(id)"]), MIN_KNOWN_SIMILARITY) is None
    assert similar("(names)", NameIndex(["(id, name)", "(id, place)"]), MIN_KNOWN_SIMILARITY) == "(id, name)"
    assert similar("axbxc", NameIndex(["dafbcg"]), MIN_KNOWN_SIMILARITY) is None
    assert similar("axbxc", NameIndex(["dafbgc"]), MIN_KNOWN_SIMILARITY) == "dafbgc"


@given(st.text("abc", min_size=1, max_size=5), st.text("abc", max_size=5), st.sampled_from((0.33, 0.5, 0.75)))
def test_a_name_is_alike_by_the_share_that_stays(text: str, name: str, minimum: float) -> None:
    assert similar(text, NameIndex([name, text]), minimum) == text
    if similar(text, NameIndex([name]), minimum) is not None:
        assert exact(text, name) <= (1 - minimum) * max(len(text), len(name))
