"""Strict JSON, and the text that PostgreSQL can hold."""

from __future__ import annotations

from json import JSONDecoder

import pytest
from dataapi.http.strict_json import DECODER, EXACT_DECODER, InvalidConstant, is_storable, unstorable_at


@pytest.mark.parametrize("decoder", [DECODER, EXACT_DECODER])
@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_constants_that_json_lacks_are_rejected(decoder: JSONDecoder, text: str) -> None:
    with pytest.raises(InvalidConstant, match="is not a JSON value"):
        decoder.decode(text)


def test_numbers_of_any_length_keep_their_digits() -> None:
    digits = "9" * 5000
    assert EXACT_DECODER.decode(f"[{digits}, 1.50]") == [digits, "1.50"]


@pytest.mark.parametrize(
    ("text", "index"), [("", None), ("é\U0001f600", None), ("a\0", 1), ("\ud800", 0), ("ab\udfff\0", 2)]
)
def test_text_that_postgresql_cannot_hold_is_found(text: str, index: int | None) -> None:
    assert unstorable_at(text) == index
    assert is_storable(text) is (index is None)
