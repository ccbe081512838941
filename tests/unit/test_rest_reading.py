"""What of a request decides a read: windows, forms, preferences, schemas and parameters."""

from __future__ import annotations

import pytest
from dataapi.errors import ApiError
from dataapi.rest.ranges import MOST, Window, content_range, count_of, status_of, window_of_header
from dataapi.rest.reading import Reading, read
from dataapi.web.messages import Request
from hypothesis import given
from hypothesis import strategies as st

WINDOWS = st.builds(Window, st.none() | st.integers(0, 20), st.integers(0, 20))


def reading(target: str, most: int | None = None, **headers: str) -> Reading:
    """Read a GET request."""
    path, _, query = target.partition("?")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read(Request("1", "GET", f"/rest/v1/{path}", query, named, b""), "public", path, most)


def chosen(window: Window, rows: range) -> list[int]:
    """Return what a window leaves of rows."""
    from_offset = list(rows)[window.offset :]
    return from_offset if window.limit is None else from_offset[: window.limit]


@given(WINDOWS, WINDOWS)
def test_what_two_windows_have_in_common(one: Window, other: Window) -> None:
    """A row is within both exactly when it is within what they have in common."""
    rows = range(50)
    both = sorted(set(chosen(one, rows)) & set(chosen(other, rows)))
    assert chosen(one.within(other), rows) == both


@given(WINDOWS, st.none() | st.integers(0, 20))
def test_a_cap_shortens_a_window(window: Window, most: int | None) -> None:
    """Never more rows than the cap, and otherwise the same rows."""
    rows = chosen(window, range(50))
    assert chosen(window.capped(most), range(50)) == rows[: 50 if most is None else most]


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
    """First and last row, both included; other units are as if absent."""
    assert window_of_header(header) == window


def test_a_range_that_ends_before_it_begins_cannot_be_satisfied() -> None:
    """It is 416 with PGRST103."""
    with pytest.raises(ApiError) as caught:
        window_of_header("9-3")
    assert (caught.value.status, caught.value.code) == (416, "PGRST103")


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [("", 400, "PGRST100"), ("1.5", 400, "PGRST100"), ("²", 400, "PGRST100"), ("-1", 416, "PGRST103")],
)
def test_limits_that_are_no_numbers_of_rows(text: str, status: int, code: str) -> None:
    """What is no whole number is not understood, a negative one cannot be satisfied."""
    for parameter in ("limit", "kids.offset"):
        with pytest.raises(ApiError) as caught:
            count_of(text, parameter)
        assert (caught.value.status, caught.value.code) == (status, code)


@given(st.text("0123456789", min_size=1, max_size=30) | st.just("9" * 5000))
def test_any_whole_number_is_a_limit(text: str) -> None:
    """However large, it becomes one that PostgreSQL takes, and those of tables' sizes are taken exactly."""
    assert count_of(text, "limit") == (int(text) if len(text) <= 18 else MOST)


@pytest.mark.parametrize(
    ("offset", "rows", "total", "header", "status"),
    [
        (0, 15, None, "0-14/*", 200),
        (0, 0, None, "*/*", 200),
        (0, 15, 15, "0-14/15", 200),
        (10, 5, 40, "10-14/40", 206),
        (0, 0, 0, "*/0", 200),
        (5, 0, 5, "*/5", 206),
    ],
)
def test_what_an_answer_says_of_its_rows(
    offset: int, rows: int, total: int | None, header: str, status: int
) -> None:
    """``Content-Range`` has first and last row and the total; 206 says that there are more."""
    assert content_range(offset, rows, total) == header
    assert status_of(offset, rows, total) == status


def test_requests_of_one_shape_share_it_and_others_do_not() -> None:
    """Numbers are values; whether there is one, and everything else, is shape."""
    shape = reading("t?select=a&order=b&limit=5&offset=3").shape
    assert reading("t?offset=4&limit=9&select=a&order=b").shape == shape
    assert hash(reading("t?offset=4&limit=9&select=a&order=b").shape) == hash(shape)
    for target in (
        "u?select=a&order=b&limit=5&offset=3",
        "t?select=b&order=b&limit=5&offset=3",
        "t?select=a&order=a&limit=5&offset=3",
        "t?select=a&order=b&offset=3",
        "t?select=a&order=b&limit=5",
        "t?select=a&order=b&limit=5&offset=3&kids.limit=1",
    ):
        assert reading(target).shape != shape
    same = "t?select=a&order=b&limit=5&offset=3"
    assert reading(same, prefer="count=exact").shape != shape
    assert reading(same, accept_profile="other").shape != shape


@pytest.mark.parametrize("target", ["a/b", "a/b/c"])
def test_paths_that_name_no_table_are_unknown(target: str) -> None:
    """It is 404 with PGRST125."""
    with pytest.raises(ApiError) as caught:
        reading(target)
    assert (caught.value.status, caught.value.code) == (404, "PGRST125")


@pytest.mark.parametrize("name", ["select", "order", "limit", "kids.offset"])
def test_a_parameter_that_is_given_twice_is_refused(name: str) -> None:
    """It cannot be known which one is meant."""
    with pytest.raises(ApiError, match="cannot be given twice"):
        reading(f"t?{name}=1&{name}=2")
