"""Suggestions for misspelled names."""

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


def edit_distance(first: str, second: str) -> int:
    """Return the edit distance, computed by its recursive definition."""
    if not first or not second:
        return len(first) + len(second)
    return min(
        edit_distance(first[1:], second) + 1,
        edit_distance(first, second[1:]) + 1,
        edit_distance(first[1:], second[1:]) + (first[0] != second[0]),
    )


@given(st.text("abc", max_size=5), st.text("abc", max_size=5), st.integers(0, 4))
def test_distance_is_exact_up_to_the_maximum(first: str, second: str, maximum: int) -> None:
    assert distance(first, second, maximum) == min(edit_distance(first, second), maximum + 1)


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
        # At most a quarter of the longer name may differ.
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
def test_most_similar_name_is_suggested(text: str, names: list[str], suggested: str | None) -> None:
    """Names that differ too much are not suggested, so that callers cannot guess names."""
    assert similar(text, NameIndex(names)) == suggested


def test_less_similar_names_are_suggested_if_they_are_public() -> None:
    assert similar("(from_then_on)", NameIndex(["(id)"]), MIN_KNOWN_SIMILARITY) is None
    assert similar("(names)", NameIndex(["(id, name)", "(id, place)"]), MIN_KNOWN_SIMILARITY) == "(id, name)"
    assert similar("axbxc", NameIndex(["dafbcg"]), MIN_KNOWN_SIMILARITY) is None
    assert similar("axbxc", NameIndex(["dafbgc"]), MIN_KNOWN_SIMILARITY) == "dafbgc"


@given(st.text("abc", min_size=1, max_size=5), st.text("abc", max_size=5), st.sampled_from((0.33, 0.5, 0.75)))
def test_suggested_name_has_the_minimum_similarity(text: str, name: str, minimum: float) -> None:
    assert similar(text, NameIndex([name, text]), minimum) == text
    if similar(text, NameIndex([name]), minimum) is not None:
        assert edit_distance(text, name) <= (1 - minimum) * max(len(text), len(name))
