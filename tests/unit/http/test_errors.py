"""Errors for clients."""

from __future__ import annotations

from dataapi.http.errors import DatabaseError


def test_replaced_error_keeps_its_type_and_cause() -> None:
    first = DatabaseError(409, "23505", "taken", details="(id)=(1)", hint="another")
    first.__cause__ = ValueError("behind it")
    other = first.replaced(message="is taken", index=3)
    assert isinstance(other, DatabaseError)
    assert (other.status, other.code, other.message, other.details, other.hint, other.index) == (
        409, "23505", "is taken", "(id)=(1)", "another", 3,
    )  # fmt: skip
    assert (str(other), other.__cause__) == ("is taken", first.__cause__)
    assert (first.message, first.index) == ("taken", None)
