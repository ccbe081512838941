"""What is kept of a receiver's answer."""

from __future__ import annotations

import pytest
from dataapi.webhooks.delivery.response import MAX_BODY, MAX_RECORDED_HEADERS, body_text, header_texts


@pytest.mark.parametrize("character", ["é", "€", "🚂"])
def test_a_character_that_the_limit_cuts_in_two_is_left_out(character: str) -> None:
    """Wherever it is cut; one that ends at the limit is kept."""
    size = len(character.encode())
    for inside in range(1, size):
        filler = "x" * (MAX_BODY - inside)
        assert body_text((filler + character).encode() + b"more") == filler
    whole = "x" * (MAX_BODY - size) + character
    assert body_text(whole.encode() + b"more") == whole


def test_invalid_text_is_replaced() -> None:
    """A body that ends within a character did not end at the limit, and says so; U+0000 cannot be kept."""
    assert body_text("€".encode()[:2]) == "\ufffd"
    assert body_text(b"a\0b\xff") == "a\ufffdb\ufffd"


def test_headers_are_kept_in_small_letters_up_to_their_number() -> None:
    """Values that came one by one are joined."""
    assert header_texts([(b"X-One", [b"a", b"b"])]) == (("x-one", "a, b"),)
    many = [(f"x-{number}".encode(), [b"v"]) for number in range(MAX_RECORDED_HEADERS + 1)]
    assert len(header_texts(many)) == MAX_RECORDED_HEADERS
