"""Validation of ``traceparent`` headers."""

from __future__ import annotations

import pytest
from dataapi.http.headers import parse_traceparent

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("sent", "continued"),
    [
        (f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01"),
        (f"00-{TRACE}-{PARENT}-00", f"00-{TRACE}-{PARENT}-00"),
        (f"00-{TRACE}-{PARENT}-ff", f"00-{TRACE}-{PARENT}-03"),
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-holds", f"00-{TRACE}-{PARENT}-01"),
        (f"00-{TRACE}-{PARENT}-01-more", ""),
        (f"cc-{TRACE}-{PARENT}-01.more", ""),
        (f"ff-{TRACE}-{PARENT}-01", ""),
        (f"00-{'0' * 32}-{PARENT}-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (f"00-{TRACE.upper()}-{PARENT}-01", ""),
        (f"00-{TRACE}-{PARENT}-01, 00-{TRACE}-{PARENT}-01", ""),
        (f"00-{TRACE}-{PARENT}-1", ""),
        ("", ""),
    ],
)
def test_valid_traceparent_is_continued_and_any_other_is_ignored(sent: str, continued: str) -> None:
    """W3C Trace Context: IDs are lower-case and not zero. Only later versions may have more fields."""
    assert parse_traceparent(sent) == continued
