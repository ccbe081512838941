"""Decoding query strings and paths."""

from __future__ import annotations

import pytest
from dataapi.http import query_string as querystring
from dataapi.http.errors import ApiError
from hypothesis import given
from hypothesis import strategies as st


def test_parameters_keep_order_and_a_literal_percent_sign() -> None:
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
        ("a=1&name=%ff", "The decoded parameter name is not valid UTF-8 \\(byte 1\\)"),
        ("name=a%00", r"The parameter name contains the character U\+0000"),
        ("%00=a", r"contains the character U\+0000"),
    ],
)
def test_undecodable_parameter_is_rejected_by_name(query: str, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        querystring.pairs(query)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/a%zz", "invalid percent-encoding at character 3"),
        ("/a%2", "invalid percent-encoding at character 3"),
        ("/%ff", "The decoded path is not valid UTF-8 \\(byte 2\\)"),
        ("/a%00", r"U\+0000 \(character 3\)"),
    ],
)
def test_undecodable_path_is_rejected_with_its_position(path: str, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        querystring.path(path)
    assert refused.value.status == 400


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_lenient_parser_accepts_any_query(query: str) -> None:
    querystring.lenient_pairs(query)
