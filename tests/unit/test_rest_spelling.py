"""Which column is suggested for a name that is none."""

from __future__ import annotations

import pytest
from dataapi.rest.resolve.spelling import MOST_COLUMNS, distance, hint_for
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
def test_distances_are_exact_up_to_the_most(one: str, other: str, most: int) -> None:
    """Whatever is farther is just too far."""
    assert distance(one, other, most) == min(exact(one, other), most + 1)


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
        ("titel", ["title"] * (MOST_COLUMNS + 1), None),
        ("title" * 20, ["title" * 20 + "s"], None),
    ],
)
def test_one_or_two_columns_are_suggested(name: str, columns: list[str], suggested: str | None) -> None:
    """Those that are most alike, unless there are more of them or none is."""
    hint = None if suggested is None else f"Perhaps you meant to reference the column {suggested}."
    assert hint_for("t", name, columns) == hint
