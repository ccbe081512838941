"""The bytes of an answer's head, the text of a request's, and where paths and parameters are refused."""

from __future__ import annotations

import pytest
from dataapi.errors import ApiError
from dataapi.web import querystring, wire
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (200, "200 OK"),
        (206, "206 Partial Content"),
        (300, "300 Multiple Choices"),
        (406, "406 Not Acceptable"),
        (413, "413 Content Too Large"),
        (599, "599 Unknown Status"),
    ],
)
def test_reason_phrases_are_the_registered_ones(status: int, line: str) -> None:
    assert wire.head(status, (), 0).startswith(f"HTTP/1.1 {line}\r\n".encode())


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_a_body_has_no_length(status: int) -> None:
    assert b"Content-Length" not in wire.head(status, (), 0)


def test_a_line_end_in_a_value_begins_no_other_header() -> None:
    head = wire.head(200, (("Location", "/a\r\nSet-Cookie: b\0"),), 0)
    assert head == b"HTTP/1.1 200 OK\r\nLocation: /a  Set-Cookie: b \r\nContent-Length: 0\r\n\r\n"


@given(st.lists(st.tuples(st.sampled_from(["A", "B-C"]), st.text(st.characters(exclude_categories=["Cs"])))))
def test_there_are_as_many_lines_as_headers_whatever_they_hold(headers: list[tuple[str, str]]) -> None:
    assert wire.head(200, headers, 5).count(b"\r\n") == len(headers) + 3


def test_request_headers_are_text_under_lower_case_names() -> None:
    raw = [
        (b"X-One", [b"\xc3\xa9"]),
        (b"X-Two", [b"\xe9"]),
        (b"Prefer", [b"a", b"b"]),
        (b"Cookie", [b"c", b"d"]),
    ]
    assert wire.header_texts(raw) == {"x-one": "é", "x-two": "é", "prefer": "a, b", "cookie": "c; d"}


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("a-1.B_2:/+=@", True),
        ("x" * 128, True),
        ("", False),
        ("a b", False),
        ("x" * 129, False),
        ('"', False),
    ],
)
def test_a_clients_request_id_is_taken_when_it_is_sane(given: str, taken: bool) -> None:
    assert wire.sane_request_id(given) == (given if taken else None)


def test_parameters_keep_their_order_and_a_lone_percent_sign() -> None:
    assert querystring.pairs("b=1&a=x%20y+z&b=50%&&c&%C3%A9=%C3%BC") == [
        ("b", "1"),
        ("a", "x y z"),
        ("b", "50%"),
        ("c", ""),
        ("é", "ü"),
    ]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("a=1&name=%ff", "The parameter name is not UTF-8 once decoded: byte 1"),
        ("name=a%00", r"The parameter name holds the character U\+0000"),
        ("%00=a", r"holds the character U\+0000"),
    ],
)
def test_a_parameter_that_is_no_text_is_named(query: str, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        querystring.pairs(query)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/a%zz", "percent sign at character 3 that begins no escape"),
        ("/a%2", "percent sign at character 3"),
        ("/%ff", "The path is not UTF-8 once decoded: byte 2"),
        ("/a%00", r"U\+0000 at character 3"),
    ],
)
def test_a_path_that_is_no_text_is_refused_with_the_place(path: str, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        querystring.path(path)
    assert refused.value.status == 400


def test_a_query_string_of_foreign_bytes_is_refused() -> None:
    assert querystring.raw_text(b"a=\xc3\xa9") == "a=é"
    with pytest.raises(ApiError, match="byte 3"):
        querystring.raw_text(b"a=\xff")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_lenient_reading_never_refuses(query: str) -> None:
    querystring.lenient_pairs(query)
