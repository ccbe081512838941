"""What of a query string decides a statement, and what only its values: shapes, windows, ranges."""

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
    """Return what a window leaves of rows."""
    from_offset = list(rows)[window.offset :]
    return from_offset if window.limit is None else from_offset[: window.limit]


@given(WINDOWS, WINDOWS)
def test_what_two_windows_have_in_common(one: Window, other: Window) -> None:
    rows = range(50)
    both = sorted(set(chosen(one, rows)) & set(chosen(other, rows)))
    assert chosen(one.within(other), rows) == both


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
def test_range_headers(header: str | None, window: Window) -> None:
    assert parse_range(header) == window


def test_a_range_that_ends_before_it_begins_cannot_be_satisfied() -> None:
    """It is 416 with PGRST103."""
    with pytest.raises(ApiError) as caught:
        parse_range("9-3")
    assert (caught.value.status, caught.value.code) == (416, "PGRST103")


def test_limits_that_are_not_numbers_of_rows_are_refused() -> None:
    for parameter in ("limit", "kids.offset"):
        assert [parse_count(text, parameter) for text in ("", "1.5", "²", "x")] == [None] * 4
    assert parse_count("-1", "kids.offset") is None
    with pytest.raises(ApiError) as caught:
        parse_count("-1", "kids.limit")
    assert (caught.value.status, caught.value.code) == (416, "PGRST103")


@given(st.text("0123456789", min_size=1, max_size=30) | st.just("9" * 5000))
def test_any_whole_number_is_a_limit(text: str) -> None:
    """However large, it becomes one that PostgreSQL takes, and those of tables' sizes are taken exactly."""
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
def test_what_an_answer_says_of_its_rows(
    offset: int, rows: int, total: int | None, header: str, status: int
) -> None:
    """``Content-Range`` has first and last row and the total; 206 says that there are more."""
    assert content_range(offset, rows, total) == header
    assert status_of(offset, rows, total) == status


def shape(query: str) -> Selection:
    """Return the shape of a query string."""
    return parse_query(query).selection


def values(query: str, header_range: str | None = None) -> Values:
    """Return the values of a query string."""
    return parse_query(query, header_range).values


def test_requests_of_one_shape_share_it_and_others_do_not() -> None:
    """Values are no part of a shape; whether there are some, and everything else, is."""
    one = shape("select=a&order=b&limit=5&offset=3&id=eq.1&or=(a.gt.1,b.in.(1,2))")
    same = shape("offset=4&limit=9&select=a&order=b&id=eq.x&or=(a.gt.2,b.in.(3))")
    assert same == one
    assert hash(same) == hash(one)
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
        assert shape(query) != one


def test_values_are_lifted_in_the_order_of_filters_logic_limits_and_offsets() -> None:
    """Each is found again by its place; ``is`` has none, a search with a language two."""
    query = "kids.limit=7&a=eq.1&or=(b.gt.2,c.is.null)&limit=5&d=is.true&e=fts(fr).w&offset=3"
    assert values(query) == Values(("1", "fr", "w", "2", "7", "5", "3"), 3)


def test_names_without_any_value_are_no_parameters() -> None:
    assert shape("x&select&id=eq.1&") == shape("id=eq.1")
    assert shape("select=").items == ()


def test_ranges_and_limits_are_taken_together() -> None:
    assert values("limit=3", "1-9") == Values(("2", "1"), 1)
    assert values("", "5-") == Values(("5",), 5)


@pytest.mark.parametrize("query", ["offset=-2&limit=5", "limit=3", "offset=-2&limit=9"])
def test_no_rows_come_before_the_first_one(query: str) -> None:
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
def test_a_range_apart_from_limits_cannot_be_satisfied(query: str, header: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        parse_query(query, header)
    assert (caught.value.status, caught.value.code) == (416, "PGRST103")
    assert values(f"{query}&limit=0", header) == Values(("0",))


def test_of_a_parameter_that_stands_twice_the_first_counts_of_limits_the_last() -> None:
    parsed = parse_query("select=a&select=b&order=a&order=b&limit=1&limit=2&id=gt.1&id=lt.9")
    assert parsed.selection.items == (Field("a"),)
    assert parsed.selection.orders == (((), (Term("a"),)),)
    assert parsed.values.literals == ("1", "9", "2")
    assert values("limit=1&limit=x&offset=2&offset=3") == Values(("3",), 3)


def test_equal_columns_are_known_only_if_there_are_no_other_filters() -> None:
    """A PUT names its row by them."""
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
