"""Query strings are split into a statement's shape and its values. Limits and ranges are combined."""

from __future__ import annotations

import pytest
from dataapi.http.errors import ApiError
from dataapi.rest.parse.filters import has_operator
from dataapi.rest.parse.query import Selection, Values, parse_query
from dataapi.rest.parse.select import Field, Term
from dataapi.rest.parse.window import MAXIMUM, Window, parse_count, parse_range
from dataapi.rest.respond import content_range, status_of
from hypothesis import given
from hypothesis import strategies as st

WINDOWS = st.builds(Window, st.none() | st.integers(0, 20), st.integers(0, 20))


def chosen(window: Window, rows: range) -> list[int]:
    """Return the rows that a window selects."""
    from_offset = list(rows)[window.offset :]
    return from_offset if window.limit is None else from_offset[: window.limit]


@given(WINDOWS, WINDOWS)
def test_window_within_another_is_their_intersection(first: Window, second: Window) -> None:
    rows = range(50)
    common = sorted(set(chosen(first, rows)) & set(chosen(second, rows)))
    assert chosen(first.within(second), rows) == common


@pytest.mark.parametrize(
    ("header", "window"),
    [
        (None, Window()),
        ("0-9", Window(10, 0)),
        ("5-5", Window(1, 5)),
        ("5-", Window(None, 5)),
        ("items=1-2", Window(2, 1)),
        ("bytes=0-9", Window()),
        ("nonsense", Window()),
    ],
)
def test_range_header_is_parsed(header: str | None, window: Window) -> None:
    assert parse_range(header) == window


def test_range_that_ends_before_its_start_is_416() -> None:
    with pytest.raises(ApiError) as caught:
        parse_range("9-3")
    assert (caught.value.status, caught.value.code) == (416, "PGRST103")


def test_negative_limits_are_416_and_other_invalid_ones_are_ignored() -> None:
    for parameter in ("limit", "kids.offset"):
        assert [parse_count(text, parameter) for text in ("", "1.5", "²", "x")] == [None] * 4
    assert parse_count("-1", "kids.offset") is None
    with pytest.raises(ApiError) as caught:
        parse_count("-1", "kids.limit")
    assert (caught.value.status, caught.value.code) == (416, "PGRST103")


@given(st.text("0123456789", min_size=1, max_size=30) | st.just("9" * 5000))
def test_any_non_negative_integer_is_a_limit(text: str) -> None:
    """Huge numbers are replaced by the maximum that PostgreSQL accepts."""
    assert parse_count(text, "limit") == (int(text) if len(text) <= 18 else MAXIMUM)


@pytest.mark.parametrize(
    ("offset", "rows", "total", "header", "status"),
    [
        (0, 15, None, "0-14/*", 200),
        (0, 0, None, "*/*", 200),
        (0, 15, 15, "0-14/15", 200),
        (10, 5, 40, "10-14/40", 206),
        (0, 0, 0, "*/0", 200),
        (5, 0, 5, "*/5", 206),
        (0, 3, 0, "*/0", 200),
    ],
)
def test_content_range_and_status_describe_the_rows(
    offset: int, rows: int, total: int | None, header: str, status: int
) -> None:
    assert content_range(offset, rows, total) == header
    assert status_of(offset, rows, total) == status


def shape(query: str) -> Selection:
    return parse_query(query).selection


def values(query: str, header_range: str | None = None) -> Values:
    return parse_query(query, header_range).values


def test_shape_does_not_depend_on_values() -> None:
    first = shape("select=a&order=b&limit=5&offset=3&id=eq.1&or=(a.gt.1,b.in.(1,2))")
    same = shape("offset=4&limit=9&select=a&order=b&id=eq.x&or=(a.gt.2,b.in.(3))")
    assert same == first
    assert hash(same) == hash(first)
    for query in (
        "select=b&order=b&limit=5&offset=3&id=eq.1&or=(a.gt.1,b.in.(1,2))",
        "select=a&order=a&limit=5&offset=3&id=eq.1&or=(a.gt.1,b.in.(1,2))",
        "select=a&order=b&offset=3&id=eq.1&or=(a.gt.1,b.in.(1,2))",
        "select=a&order=b&limit=5&id=eq.1&or=(a.gt.1,b.in.(1,2))",
        "select=a&order=b&limit=5&offset=3&id=gt.1&or=(a.gt.1,b.in.(1,2))",
        "select=a&order=b&limit=5&offset=3&no=eq.1&or=(a.gt.1,b.in.(1,2))",
        "select=a&order=b&limit=5&offset=3&id=not.eq.1&or=(a.gt.1,b.in.(1,2))",
        "select=a&order=b&limit=5&offset=3&id=eq.1&and=(a.gt.1,b.in.(1,2))",
        "select=a&order=b&limit=5&offset=3&id=eq.1&or=(a.lt.1,b.in.(1,2))",
        "select=a&order=b&limit=5&offset=3&id=eq.1&or=(a.gt.1,b.in.(1,2))&kids.limit=1",
    ):
        assert shape(query) != first


def test_values_are_ordered_by_filters_logic_limits_and_offsets() -> None:
    """``is`` has no value. A text search with a language has two values."""
    query = "kids.limit=7&a=eq.1&or=(b.gt.2,c.is.null)&limit=5&d=is.true&e=fts(fr).w&offset=3"
    assert values(query) == Values(("1", "fr", "w", "2", "7", "5", "3"), 3)


def test_parameters_without_a_value_are_ignored() -> None:
    assert shape("x&select&id=eq.1&") == shape("id=eq.1")
    assert shape("select=").items == ()


def test_range_header_and_limit_are_combined() -> None:
    assert values("limit=3", "1-9") == Values(("2", "1"), 1)
    assert values("", "5-") == Values(("5",), 5)


@pytest.mark.parametrize("query", ["offset=-2&limit=5", "limit=3", "offset=-2&limit=9"])
def test_negative_offset_is_cut_at_the_first_row(query: str) -> None:
    assert values(query, "0-2") == Values(("3",))
    assert shape("offset=-2") == shape("")


@pytest.mark.parametrize(
    ("query", "header"),
    [
        ("limit=2&offset=4", "0-1"),
        ("offset=1", "0-0"),
        ("limit=2", "2-5"),
        ("limit=2&offset=-2", None),
        ("limit=2&offset=-" + "9" * 30, None),
    ],
)
def test_range_outside_of_the_limits_is_416(query: str, header: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        parse_query(query, header)
    assert (caught.value.status, caught.value.code) == (416, "PGRST103")
    assert values(f"{query}&limit=0", header) == Values(("0",))


def test_first_of_repeated_parameters_applies_except_for_limits() -> None:
    parsed = parse_query("select=a&select=b&order=a&order=b&limit=1&limit=2&id=gt.1&id=lt.9")
    assert parsed.selection.items == (Field("a"),)
    assert parsed.selection.orders == (((), (Term("a"),)),)
    assert parsed.values.literals == ("1", "9", "2")
    assert values("limit=1&limit=x&offset=2&offset=3") == Values(("3",), 3)


def test_equal_columns_are_known_only_without_other_filters() -> None:
    """The columns identify the row of a PUT request."""
    for query, columns in [
        ('id=eq.1&"odd name"=eq.x', {"id", "odd name"}),
        ("", set()),
        ("id=gt.1", set()),
        ("id=not.eq.1", set()),
        ("id=eq(any).{1}", set()),
        ("id=eq.1&id=eq.2", set()),
        ("id=eq.1&or=(a.eq.1)", set()),
        ("kids.id=eq.1", set()),
        ("id->a=eq.1", set()),
    ]:
        assert parse_query(query).selection.equal_columns == columns


@pytest.mark.parametrize(
    ("value", "is_filter"),
    [("eq.1", True), ("not.in.(1)", True), ("fts(fr).x", True), ("is.null", True), ("", False),
     ("eq", False), ("equal.1", False), ("5.1", False), ("in.x", False), ("is.maybe", False)],
)  # fmt: skip
def test_arguments_are_distinguished_from_filters_by_operators(value: str, is_filter: bool) -> None:
    assert has_operator(value) is is_filter
