"""Parsing of filters and logic trees, with their values as parameters."""

from __future__ import annotations

import csv

import pytest
from dataapi.http.errors import ApiError
from dataapi.rest.parse.filters import (
    IS_VALUES,
    MAX_LOGIC_DEPTH,
    PATTERNS,
    QUANTIFIABLE,
    SEARCHES,
    SIMPLE,
    FilterOperation,
    LogicFilter,
    LogicGroup,
    LogicTree,
    array_literal,
    read_filter,
    read_logic,
)
from dataapi.rest.parse.select import PathStep
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
COMPARISONS = st.one_of(
    st.builds(
        FilterOperation,
        st.sampled_from(sorted(QUANTIFIABLE)),
        st.booleans(),
        st.sampled_from([None, "any", "all"]),
        st.none(),
    ),
    st.builds(FilterOperation, st.sampled_from(sorted(SIMPLE)), st.booleans(), st.none(), st.none()),
    st.builds(
        FilterOperation,
        st.sampled_from(sorted(SEARCHES)),
        st.booleans(),
        st.sampled_from([None, "language"]),
        st.none(),
    ),
    st.builds(FilterOperation, st.just("is"), st.booleans(), st.none(), st.sampled_from(IS_VALUES)),
    st.builds(FilterOperation, st.just("in"), st.booleans(), st.none(), st.none()),
)
PATHS = st.lists(st.builds(PathStep, NAMES, st.booleans()), max_size=2).map(tuple)
LEAVES = st.builds(LogicFilter, NAMES, PATHS, COMPARISONS)
TREES: st.SearchStrategy[LogicTree] = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        LogicGroup, st.booleans(), st.booleans(), st.lists(inner, min_size=1, max_size=3).map(tuple)
    ),
    max_leaves=6,
)  # fmt: skip


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def prefix_of(operation: FilterOperation) -> str:
    """Return an operation in query string syntax without its value."""
    modifier = {None: "", "language": "(fr)"}.get(operation.modifier, f"({operation.modifier})")
    return f"{'not.' * operation.negated}{operation.operator}{modifier}."


def written(tree: LogicTree, values: list[str]) -> str:
    """Return a logic tree in query string syntax. Values are removed from the list."""
    if isinstance(tree, LogicGroup):
        parts = ",".join(written(part, values) for part in tree.parts)
        return f"{'not.' * tree.negated}{'and' if tree.every else 'or'}({parts})"
    path = "".join(("->>" if step.as_text else "->") + quoted(step.operand) for step in tree.path)
    operation = tree.operation
    if operation.word is not None:
        value = operation.word
    elif operation.operator == "in":
        value = f"({quoted(values.pop(0))},x)"
    else:
        value = quoted(values.pop(0))
    return f"{quoted(tree.name)}{path}.{prefix_of(operation)}{value}"


def literals(tree: LogicTree, values: list[str]) -> list[str]:
    if isinstance(tree, LogicGroup):
        return [value for part in tree.parts for value in literals(part, values)]
    operation = tree.operation
    if operation.word is not None:
        return []
    value = values.pop(0)
    if operation.operator == "in":
        return [array_literal([value, "x"])]
    if operation.operator in PATTERNS:
        value = value.replace("*", "%")
    return ["fr", value] if operation.modifier == "language" else [value]


@given(TREES, st.lists(TEXTS, min_size=20, max_size=20))
def test_logic_trees_are_parsed_as_written(tree: LogicTree, values: list[str]) -> None:
    text = written(LogicGroup(True, False, (tree,)), list(values))
    path, read, literal_values = read_logic("and", text.removeprefix("and"))
    assert (path, read) == ((), LogicGroup(True, False, (tree,)))
    assert list(literal_values) == literals(tree, list(values))


@given(COMPARISONS, TEXTS)
def test_filters_are_parsed_as_written(operation: FilterOperation, value: str) -> None:
    if operation.word is not None:
        assert read_filter(prefix_of(operation) + operation.word) == (operation, ())
    elif operation.operator == "in":
        read, [array] = read_filter(f"{prefix_of(operation)}({quoted(value)})")
        assert (read, array) == (operation, array_literal([value]))
    else:
        leaf = LogicFilter("", (), operation)
        assert read_filter(prefix_of(operation) + value) == (operation, tuple(literals(leaf, [value])))


@given(st.lists(TEXTS.filter(lambda text: "\n" not in text and "\r" not in text), min_size=2, max_size=4))
def test_array_literals_are_quoted_correctly(elements: list[str]) -> None:
    literal = array_literal(elements)
    [read] = csv.reader([literal[1:-1]], doublequote=False, escapechar="\\", strict=True)
    assert read == elements


def test_empty_list_of_in_has_no_element() -> None:
    assert read_filter("in.()") == (FilterOperation("in"), ("{}",))
    assert read_filter("not.in.()") == (FilterOperation("in", True), ("{}",))
    assert read_filter('in.("")')[1] == ('{""}',)
    assert read_filter("in.(,)")[1] == ('{"",""}',)
    assert read_filter('in.("","")')[1] == ('{"",""}',)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("in.(1,2)", ('{"1","2"}',)),
        ('in.("a,b",c)', ('{"a,b","c"}',)),
        ('in.("a\\"b\\\\c")', ('{"a\\"b\\\\c"}',)),
        ("in.(a b, c)", ('{"a b"," c"}',)),
        ("in.( a ,b ) ", ('{"a ","b "}',)),
        ("in.(  )", ("{}",)),
        ("not.in.( ,a)", ('{"","a"}',)),
        ('in.(a"b)', ('{"a\\"b"}',)),
        ('in.("a"b)', ('{"\\"a\\"b"}',)),
        ("like.a*b*", ("a%b%",)),
        ("ilike(all).{a*,b}", ("{a%,b}",)),
        ("match.a*", ("a*",)),
        ("eq.a*", ("a*",)),
        ("eq.not.eq.1", ("not.eq.1",)),
        ("fts(english).a b", ("english", "a b")),
        ("eq.", ("",)),
    ],
)
def test_filter_values_are_parsed(text: str, values: tuple[str, ...]) -> None:
    assert read_filter(text)[1] == values


@pytest.mark.parametrize(
    ("name", "path", "negated"),
    [
        ("or", (), False),
        ("not.or", (), True),
        ("kids.or", ("kids",), False),
        ("kids.not.or", ("kids",), True),
        ("kids.toys.or", ("kids", "toys"), False),
    ],
)
def test_name_of_a_tree_contains_its_path_and_negation(
    name: str, path: tuple[str, ...], negated: bool
) -> None:
    leaf = LogicFilter("a", (), FilterOperation("eq"))
    assert read_logic(name, "(a.eq.1)") == (path, LogicGroup(False, negated, (leaf,)), ("1",))


@given(st.text(st.sampled_from('abeqindtsorl*,.:()"\\->!é 0_{}'), max_size=24))
def test_any_text_is_parsed_or_rejected_with_pgrst100(text: str) -> None:
    for read in (read_filter, lambda value: read_logic("or", value)):
        try:
            read(text)
        except ApiError as error:
            assert (error.status, error.code) == (400, "PGRST100")  # noqa: PT017 - most texts are rejected


@pytest.mark.parametrize("suffix", [")", " ", "x", ",id.eq.3"])
def test_text_after_a_complete_filter_is_ignored(suffix: str) -> None:
    for text in ("in.(1,2)", "in.(1,(2)", "not.is.null"):
        assert read_filter(text + suffix) == read_filter(text)
    assert read_logic("or", "(a.eq.1,b.in.(2))" + suffix) == read_logic("or", "(a.eq.1,b.in.(2))")
    assert read_filter("eq.1" + suffix) == (FilterOperation("eq"), ("1" + suffix,))


def test_deeply_nested_trees_are_rejected() -> None:
    """Even a URL of valid length could exceed Python's recursion limit."""
    deep = "(and" * (MAX_LOGIC_DEPTH - 1) + "(a.eq.1)" + ")" * (MAX_LOGIC_DEPTH - 1)
    assert read_logic("or", deep)
    with pytest.raises(ApiError) as caught:
        read_logic("or", "(and" * 5000)
    assert f"at most {MAX_LOGIC_DEPTH} levels of logic operators" in str(caught.value.details)
