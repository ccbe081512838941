"""What is kept of a receiver's answer."""

from __future__ import annotations

import pytest
from dataapi.webhooks.response import BODY_KEPT, HEADERS_KEPT, body_text, header_texts


@pytest.mark.parametrize("character", ["é", "€", "🚂"])
def test_a_character_that_the_limit_cuts_in_two_is_left_out(character: str) -> None:
    """Wherever it is cut; one that ends at the limit is kept."""
    size = len(character.encode())
    for inside in range(1, size):
        filler = "x" * (BODY_KEPT - inside)
        assert body_text((filler + character).encode() + b"more") == filler
    whole = "x" * (BODY_KEPT - size) + character
    assert body_text(whole.encode() + b"more") == whole


def test_what_is_no_text_is_replaced() -> None:
    """A body that ends within a character did not end at the limit, and says so; U+0000 cannot be kept."""
    assert body_text("€".encode()[:2]) == "\ufffd"
    assert body_text(b"a\0b\xff") == "a\ufffdb\ufffd"


def test_headers_are_kept_in_small_letters_up_to_their_number() -> None:
    """Values that came one by one are joined."""
    assert header_texts([(b"X-One", [b"a", b"b"])]) == (("x-one", "a, b"),)
    many = [(f"x-{number}".encode(), [b"v"]) for number in range(HEADERS_KEPT + 1)]
    assert len(header_texts(many)) == HEADERS_KEPT
