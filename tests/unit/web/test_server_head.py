"""Response heads and request headers."""

from __future__ import annotations

import pytest
from dataapi.web.server.parser import RequestParser
from dataapi.web.server.request import response_head
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
    assert response_head(status, (), 0).startswith(f"HTTP/1.1 {line}\r\n".encode())


@pytest.mark.parametrize("status", [204, 304])
def test_status_without_a_body_has_no_content_length(status: int) -> None:
    assert b"Content-Length" not in response_head(status, (), 0)


def test_line_break_in_a_value_starts_no_new_header() -> None:
    head = response_head(200, (("Location", "/a\r\nSet-Cookie: b\0"),), 0)
    assert head == b"HTTP/1.1 200 OK\r\nLocation: /a  Set-Cookie: b \r\nContent-Length: 0\r\n\r\n"


@given(st.lists(st.tuples(st.sampled_from(["A", "B-C"]), st.text(st.characters(exclude_categories=["Cs"])))))
def test_number_of_lines_depends_on_the_number_of_headers_only(headers: list[tuple[str, str]]) -> None:
    assert response_head(200, headers, 5).count(b"\r\n") == len(headers) + 3


def test_request_headers_are_text_with_lower_case_names() -> None:
    sent = b"X-One: \xc3\xa9\r\nX-Two: \xe9 \t\r\nPrefer: a\r\nprefer: b\r\nCookie: c\r\nCookie: d\r\n"
    parser = RequestParser()
    parser.buffer = b"GET / HTTP/1.1\r\n%b\r\n" % sent
    head = parser.read_head()
    assert head is not None
    assert head.headers == {"x-one": "é", "x-two": "é", "prefer": "a, b", "cookie": "c; d"}
