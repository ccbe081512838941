"""Identities that distinguish callers when connections for long transactions are shared fairly."""

from __future__ import annotations

from dataapi.auth.caller import Caller, identity
from dataapi.http.messages import Request


def identified(subject: str, client: str, role: str = "anon") -> str:
    return identity(
        Request("1", "GET", "/rest/v1/x", "", {}, b"", client=client), Caller(role, "{}", subject)
    )


def test_user_has_one_identity_at_any_address() -> None:
    first = identified("1", "203.0.113.1")
    assert first == identified("1", "203.0.113.2")
    assert first != identified("2", "203.0.113.1")
    assert first != identified("1", "203.0.113.1", role="other")


def test_anonymous_callers_are_distinguished_by_address() -> None:
    assert identified("", "1.1.1.1") == identified("", "1.1.1.1")
    assert identified("", "1.1.1.1") != identified("", "8.8.8.8")
