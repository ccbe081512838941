"""Custom headers of endpoints and headers of requests (docs/reference/webhooks.md, Endpoints)."""

from __future__ import annotations

import pytest
from dataapi.webhooks.delivery.headers import delivery_headers, header_issues, sign
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Team", "blue"),
        ("authorization", "Bearer a.b.c"),
        ("x-empty", ""),
        ("x!#$%&'*+.^_`|~9", "a \t b"),
        ("n" * 128, "v" * 4096),
        ("webhooks", "not reserved"),
    ],
)
def test_valid_headers_are_accepted(name: str, value: str) -> None:
    assert header_issues({name: value}) == ()


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "a\0", "ä", "a(b)", "x" * 129, "a\n"])
def test_names_are_tokens_of_at_most_128_characters(name: str) -> None:
    [issue] = header_issues({name: "v"})
    assert issue.name == name


@pytest.mark.parametrize(
    "value",
    [
        "a\r\nInjected: b",
        "a\n",
        "\r",
        "a\0b",
        "\x7f",
        "ü",
        " a",
        "a ",
        "\ta",
        "v" * 4097,
        "a\x85b",
        "a\u2028b",
    ],
)
def test_values_are_ascii_without_control_characters_of_at_most_4096(value: str) -> None:
    [issue] = header_issues({"X-A": value})
    assert issue.name == "X-A"


RESERVED = """
    host content-length content-type transfer-encoding connection te trailer upgrade keep-alive expect
    traceparent proxy-connection proxy-authorization user-agent
    webhook-id webhook-signature webhook-timestamp webhook-other
"""


@pytest.mark.parametrize("name", RESERVED.split())
def test_reserved_names_are_rejected_in_any_case(name: str) -> None:
    for spelling in (name, name.upper(), name.title()):
        [issue] = header_issues({spelling: "v"})
        assert "reserved" in issue.message


def test_at_most_20_headers_are_accepted() -> None:
    assert header_issues({f"x-{number}": "v" for number in range(20)}) == ()
    [issue] = header_issues({f"x-{number}": "v" for number in range(21)})
    assert issue.name is None


def test_names_that_differ_only_in_case_are_duplicates() -> None:
    for first, second in (("X-A", "x-a"), ("x-a", "X-A"), ("X-a", "x-A")):
        [issue] = header_issues({first: "1", second: "2"})
        assert issue.name == second


@given(st.text(max_size=6), st.text(max_size=6))
def test_accepted_header_cannot_inject_lines(name: str, value: str) -> None:
    if header_issues({name: value}) == ():
        line = f"{name}: {value}"
        assert line.isascii()
        assert line.splitlines() == [line]
        assert line.partition(":")[0] == name
        assert value == value.strip()


def test_delivery_has_custom_and_standard_headers() -> None:
    headers = delivery_headers("a plain secret", "evt", 7, b"{}", [("X-A", "1")])
    assert headers == (
        ("X-A", "1"),
        ("content-type", "application/json"),
        ("user-agent", "dataapi-webhooks/1"),
        ("webhook-id", "evt"),
        ("webhook-timestamp", "7"),
        ("webhook-signature", sign("a plain secret", "evt", 7, b"{}")),
    )
