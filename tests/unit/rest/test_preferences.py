"""The ``Prefer`` header: parsing, strict handling and ``Preference-Applied``."""

from __future__ import annotations

import pytest
from dataapi.rest.parse.preferences import (
    Action,
    Count,
    End,
    Missing,
    Preferences,
    Resolution,
    Return,
    applied,
    not_followed,
    read_preferences,
)
from hypothesis import given
from hypothesis import strategies as st

ZONES = frozenset({"Europe/Berlin", "UTC"})
ALL = (
    "max-affected=5,timezone=UTC,handling=strict,tx=rollback,count=exact,return=representation,"
    "missing=default,resolution=merge-duplicates"
)


def test_every_preference_is_parsed() -> None:
    assert read_preferences(ALL.replace(",", " ,  "), ZONES, overrides_end=True) == Preferences(
        Count.EXACT, Return.REPRESENTATION, Resolution.MERGE, Missing.DEFAULT, End.ROLLBACK, True, 5, "UTC"
    )
    assert read_preferences(None) == read_preferences("") == read_preferences(" , ") == Preferences()


@pytest.mark.parametrize(
    ("header", "field", "value"),
    [
        ("return=minimal, return=representation", "returned", Return.MINIMAL),
        ("return=nothing, return=headers-only", "returned", Return.HEADERS_ONLY),
        ("resolution=ignore-duplicates,resolution=merge-duplicates", "resolution", Resolution.IGNORE),
        ("tx=commit, tx=rollback", "end", End.COMMIT),
        ("max-affected=3, max-affected=4", "max_affected", 3),
    ],
)
def test_first_of_repeated_preferences_applies(header: str, field: str, value: object) -> None:
    assert getattr(read_preferences(header, ZONES, overrides_end=True), field) == value


def test_tx_preference_is_ignored_unless_allowed() -> None:
    assert read_preferences("tx=rollback, handling=strict").end is None
    assert read_preferences("tx=rollback", overrides_end=True).end is End.ROLLBACK


@pytest.mark.parametrize(
    ("header", "listed"),
    [
        ("handling=strict, what=ever, more", "what=ever, more"),
        ("return=everything,handling=strict", "return=everything"),
        ("timezone=Mars/Olympus,handling=strict", "timezone=Mars/Olympus"),
        ("handling=strict, timezone=+16", "timezone=+16"),
    ],
)
def test_unknown_preferences_are_rejected_only_with_strict_handling(header: str, listed: str) -> None:
    unknown = read_preferences(header, ZONES).unknown
    error = not_followed(*unknown)
    assert (error.status, error.code) == (400, "PGRST122")
    assert error.message == "Invalid preferences given with handling=strict"
    assert error.details == f"Invalid preferences: {listed}"
    assert read_preferences(header.replace("strict", "lenient"), ZONES) == Preferences(strict=False)


def test_max_affected_applies_only_with_strict_handling() -> None:
    assert read_preferences("max-affected=2").maximum is None
    assert read_preferences("max-affected=2, handling=strict").maximum == 2
    assert read_preferences("max-affected=many, handling=strict").maximum is None


@pytest.mark.parametrize(
    ("requested", "setting"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        ("+02", "<+02:00>-02:00"),
        ("+5:30", "<+05:30>-05:30"),
        ("-03:30", "<-03:30>+03:30"),
        ("05:30", "<+05:30>-05:30"),
        ("4", "<+04:00>-04:00"),
    ],
)
def test_time_zone_is_a_name_or_an_offset(requested: str, setting: str) -> None:
    """Offsets are positive east of UTC in ISO 8601, but west of UTC in PostgreSQL's setting."""
    assert read_preferences(f"timezone={requested}", ZONES).settings == (("timezone", setting),)
    assert read_preferences("return=minimal").settings == ()


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action.READ, "count=exact, tx=rollback, handling=strict, timezone=UTC"),
        (Action.STREAM, "tx=rollback, handling=strict, timezone=UTC"),
        (Action.CALL, "count=exact, tx=rollback, handling=strict, timezone=UTC, max-affected=5"),
        (
            Action.INSERT,
            "missing=default, return=representation, count=exact, tx=rollback, handling=strict, timezone=UTC",
        ),
        (
            Action.RESOLVED_INSERT,
            "resolution=merge-duplicates, missing=default, return=representation, count=exact, tx=rollback, "
            "handling=strict, timezone=UTC",
        ),
        (
            Action.UPDATE,
            "missing=default, return=representation, count=exact, tx=rollback, handling=strict, "
            "timezone=UTC, max-affected=5",
        ),
        (
            Action.PUT,
            "return=representation, count=exact, tx=rollback, handling=strict, timezone=UTC",
        ),
        (
            Action.DELETE,
            "return=representation, count=exact, tx=rollback, handling=strict, timezone=UTC, max-affected=5",
        ),
    ],
)
def test_preference_applied_lists_applied_preferences(action: Action, expected: str) -> None:
    assert applied(read_preferences(ALL, ZONES, overrides_end=True), action) == expected


def test_preference_applied_is_empty_if_nothing_applies() -> None:
    assert applied(read_preferences("return=minimal, max-affected=1"), Action.READ) == ""
    assert applied(read_preferences("max-affected=1"), Action.DELETE) == ""


@given(st.text() | st.lists(st.sampled_from([*ALL.split(","), "a", "return=", "=", ""])).map(",".join))
def test_any_header_is_parsed(header: str) -> None:
    read_ = read_preferences(header, ZONES, overrides_end=True)
    requested = {part.strip() for part in header.split(",")}
    assert set(read_.unknown) <= requested
    for action in Action:
        assert set(filter(None, applied(read_, action).split(", "))) <= requested
