"""Strict JSON, and text that PostgreSQL can store."""

from __future__ import annotations

import json
from copy import deepcopy
from json import JSONDecoder
from typing import Any

import pytest
from dataapi.http.strict_json import (
    DECODER,
    DIGITS_DECODER,
    EXACT_DECODER,
    InvalidConstant,
    encode,
    is_storable,
    is_storable_number,
    unstorable_at,
)
from hypothesis import given
from hypothesis import strategies as st


def json_values() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    keys = st.text() | st.integers() | st.booleans() | st.none()
    return st.recursive(leaves, lambda one: st.lists(one) | st.dictionaries(keys, one), max_leaves=10)


@pytest.mark.parametrize("decoder", [DECODER, EXACT_DECODER])
@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_constants_that_json_lacks_are_rejected(decoder: JSONDecoder, text: str) -> None:
    with pytest.raises(InvalidConstant, match="is not a JSON value"):
        decoder.decode(text)


def test_numbers_of_any_length_keep_their_digits() -> None:
    digits = "9" * 5000
    assert EXACT_DECODER.decode(f"[{digits}, 1.50]") == [digits, "1.50"]


DIGITS = '{"a":[1.10,{"b":-0.0,"c":[]},"1.10",[],{}],"é":1E400,"d":0.30000000000000000001,"e":null,"f":%s}'


@pytest.mark.parametrize("text", [DIGITS % ("9" * 5000), "1.10", "[1,2.5]", "[]", "{}", '[[],{},{"a":1.0}]'])
def test_numbers_round_trip_with_their_digits(text: str) -> None:
    decoded = DIGITS_DECODER.decode(text)
    assert encode(decoded, ensure_ascii=False) == text
    assert encode(deepcopy(decoded), ensure_ascii=False) == text


def test_exact_number_supports_arithmetic() -> None:
    assert DIGITS_DECODER.decode("1.10") * 2 == 2.2
    assert encode([DIGITS_DECODER.decode("1.10") * 2, ("é", 1)]) == '[2.2,["\\u00e9",1]]'


def test_deeply_nested_values_are_encoded() -> None:
    value = DIGITS_DECODER.decode("1.10")
    for _ in range(5000):
        value = [value]
    assert encode(value) == 5000 * "[" + "1.10" + 5000 * "]"


@given(json_values())
def test_values_are_encoded_like_the_standard_library(value: Any) -> None:
    exact = DIGITS_DECODER.decode("1.10")
    assert encode([value, exact]) == f"[{json.dumps(value, separators=(',', ':'))},1.10]"


@pytest.mark.parametrize(
    ("digits", "storable"),
    [
        *(("1.10", True), ("1E400", True), ("-1e-400", True), ("9" * 131_072, True), ("9" * 131_073, False)),
        *((f"0.{'1' * 16_383}", True), (f"0.{'1' * 16_384}", False), ("1E1001", True), ("1E1008", False)),
        *(("1e-1008", False), ("1e999999999999999999999", False), ("0e5000", False)),
    ],
)
def test_only_numbers_of_limited_length_are_storable(digits: str, storable: bool) -> None:
    assert is_storable_number(digits) is storable


@pytest.mark.parametrize(
    ("text", "index"), [("", None), ("é\U0001f600", None), ("a\0", 1), ("\ud800", 0), ("ab\udfff\0", 2)]
)
def test_unstorable_text_is_detected(text: str, index: int | None) -> None:
    assert unstorable_at(text) == index
    assert is_storable(text) is (index is None)
