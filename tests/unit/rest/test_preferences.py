"""The ``Prefer`` header: what is understood, what is refused and what the answer says of it."""

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


def test_every_preference_is_understood() -> None:
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
def test_the_first_of_a_kind_counts(header: str, field: str, value: object) -> None:
    assert getattr(read_preferences(header, ZONES, overrides_end=True), field) == value


def test_the_transactions_end_is_a_preference_only_where_it_may_be() -> None:
    assert read_preferences("tx=rollback, handling=strict").end is None
    assert read_preferences("tx=rollback", overrides_end=True).end is End.ROLLBACK


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("handling=strict, what=ever, more", "what=ever, more"),
        ("return=everything,handling=strict", "return=everything"),
        ("timezone=Mars/Olympus,handling=strict", "timezone=Mars/Olympus"),
        ("handling=strict, timezone=+16", "timezone=+16"),
    ],
)
def test_unknown_preferences_are_refused_under_strict_handling_alone(header: str, named: str) -> None:
    """It is 400 with PGRST122 that names each of them."""
    unknown = read_preferences(header, ZONES).unknown
    error = not_followed(*unknown)
    assert (error.status, error.code) == (400, "PGRST122")
    assert error.message == "Invalid preferences given with handling=strict"
    assert error.details == f"Invalid preferences: {named}"
    assert read_preferences(header.replace("strict", "lenient"), ZONES) == Preferences(strict=False)


def test_a_maximum_holds_under_strict_handling_alone() -> None:
    assert read_preferences("max-affected=2").maximum is None
    assert read_preferences("max-affected=2, handling=strict").maximum == 2
    assert read_preferences("max-affected=many, handling=strict").maximum is None


@pytest.mark.parametrize(
    ("asked", "setting"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        ("+02", "<+02:00>-02:00"),
        ("+5:30", "<+05:30>-05:30"),
        ("-03:30", "<-03:30>+03:30"),
        ("05:30", "<+05:30>-05:30"),
        ("4", "<+04:00>-04:00"),
    ],
)
def test_a_time_zone_is_a_name_or_an_offset(asked: str, setting: str) -> None:
    """Offsets count eastward as ISO 8601 does; PostgreSQL's setting counts bare ones westward."""
    assert read_preferences(f"timezone={asked}", ZONES).settings == (("timezone", setting),)
    assert read_preferences("return=minimal").settings == ()


@pytest.mark.parametrize(
    ("action", "said"),
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
def test_the_answer_lists_what_is_followed(action: Action, said: str) -> None:
    assert applied(read_preferences(ALL, ZONES, overrides_end=True), action) == said


def test_nothing_is_listed_where_nothing_is_followed() -> None:
    assert applied(read_preferences("return=minimal, max-affected=1"), Action.READ) == ""
    assert applied(read_preferences("max-affected=1"), Action.DELETE) == ""


@given(st.text() | st.lists(st.sampled_from([*ALL.split(","), "a", "return=", "=", ""])).map(",".join))
def test_any_header_is_read(header: str) -> None:
    read_ = read_preferences(header, ZONES, overrides_end=True)
    asked = {part.strip() for part in header.split(",")}
    assert set(read_.unknown) <= asked
    for action in Action:
        assert set(filter(None, applied(read_, action).split(", "))) <= asked
