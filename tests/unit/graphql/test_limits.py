"""Limits of documents and operations, checked before execution."""

from __future__ import annotations

import pytest
from dataapi.graphql.compiler import Cost
from dataapi.graphql.document import MAX_SELECTIONS, Limits, check_limits
from dataapi.graphql.sources import BoundedCount, InputLeaf, VariableOrigin
from graphql import GraphQLError, parse
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("{ a }", 1),
        ("{ a { b } c { d { e } } }", 3),
        ("{ a { ... { ... { b } } } }", 2),
        ("{ ...f } fragment f on T { a { b } }", 2),
        ("{ a { ...f } } fragment f on T { b { ...g } } fragment g on T { c }", 3),
        ("query one { a } query two { a { b { c } } }", 3),
        ("{ a { ...f } } fragment f on T { a { ...f } }", 2),
        ("{ ...missing a { b } }", 2),
    ],
)
def test_depth_counts_fields_with_fragments_resolved(text: str, depth: int) -> None:
    check_limits(parse(text), Limits(depth=depth))
    with pytest.raises(GraphQLError, match=f"is {depth} fields deep, more than the {depth - 1} allowed"):
        check_limits(parse(text), Limits(depth=depth - 1))


@pytest.mark.parametrize(
    ("text", "aliases"),
    [
        ("{ x: a }", 1),
        ("{ x: a { y: b z: c } ... { w: d } }", 4),
        ("{ ...f ...f } fragment f on T { x: a }", 2),
        ("{ ...f } fragment f on T { ...g ...g } fragment g on T { x: a y: b }", 4),
    ],
)
def test_aliases_count_at_each_spread(text: str, aliases: int) -> None:
    check_limits(parse(text), Limits(aliases=aliases))
    with pytest.raises(GraphQLError, match=f"has {aliases} aliases, more than the {aliases - 1} allowed"):
        check_limits(parse(text), Limits(aliases=aliases - 1))


def test_each_fragment_is_measured_once() -> None:
    doubling = " ".join(f"fragment f{n} on T {{ ...f{n + 1} ...f{n + 1} }}" for n in range(40))
    text = f"{{ ...f0 }} {doubling} fragment f40 on T {{ x: a }}"
    with pytest.raises(GraphQLError, match=f"has {2**40} aliases"):
        check_limits(parse(text), Limits())


def test_unused_fragments_are_measured() -> None:
    text = "{ a } fragment f on T { x: a { b } }"
    check_limits(parse(text), Limits(depth=2, aliases=1))
    with pytest.raises(GraphQLError, match="The fragment is 2 fields deep, more than the 1 allowed"):
        check_limits(parse(text), Limits(depth=1))
    with pytest.raises(GraphQLError, match="The fragment has 1 aliases, more than the 0 allowed"):
        check_limits(parse(text), Limits(aliases=0))


def test_selection_sets_are_limited() -> None:
    check_limits(parse("{" + "a " * MAX_SELECTIONS + "}"), Limits())
    with pytest.raises(GraphQLError, match="has more than the 5000 fields allowed"):
        check_limits(parse("{ b {" + "a " * (MAX_SELECTIONS + 1) + "} }"), Limits())


def page(name: str, maximum: int) -> BoundedCount:
    """Return a page size that a variable contains."""
    return BoundedCount("first", InputLeaf(VariableOrigin((name,)), 1), maximum)


def test_cost_is_the_product_of_nested_pages() -> None:
    cost = Cost(10, (Cost(5, (Cost(2),)), Cost(1)))
    assert cost.rows({}) == 10 * (1 + 5 * (1 + 2) + 1)


@given(first=st.integers(0, 1000), nested=st.integers(0, 1000))
def test_cost_never_exceeds_the_maximum(first: int, nested: int) -> None:
    cost = Cost(page("a", 30), (Cost(page("b", 20)),))
    assert cost.rows({"a": first, "b": nested}) == min(first, 30) * (1 + min(nested, 20))
    assert cost.rows({"a": first, "b": nested}) <= cost.maximum() == 30 * 21


def test_cost_counts_at_most_the_rows_of_a_table() -> None:
    children = Cost(30, (Cost(30, capacity=400, disjoint=True),), capacity=100, disjoint=True)
    assert Cost(1000, (children,), capacity=20, disjoint=True).rows({}) == 20 + 100 + 400
    repeated = Cost(1, (children,))
    assert Cost(1000, (repeated,), capacity=20, disjoint=True).rows({}) == 20 + 20 + 20 * 30 * (1 + 30)
    assert Cost(1000, (Cost(50, capacity=10),), capacity=20, disjoint=True).rows({}) == 20 + 20 * 10


COSTS = st.recursive(
    st.builds(Cost, st.integers(0, 50), capacity=st.none() | st.integers(0, 100), disjoint=st.booleans()),
    lambda inner: st.builds(
        Cost,
        st.integers(0, 50),
        st.lists(inner, max_size=3).map(tuple),
        st.none() | st.integers(0, 100),
        st.booleans(),
    ),
    max_leaves=10,
)


def unlimited(cost: Cost) -> Cost:
    """Return the cost without limits by table sizes."""
    return Cost(cost.page, tuple(map(unlimited, cost.nested)))


@given(COSTS)
def test_table_sizes_only_reduce_the_cost(cost: Cost) -> None:
    assert cost.rows({}) <= unlimited(cost).rows({})


@pytest.mark.parametrize("value", [-1, -(2**31)])
def test_negative_page_size_is_rejected(value: int) -> None:
    with pytest.raises(GraphQLError, match="`first` must be an unsigned integer"):
        page("a", 30).bind({"a": value})
