"""What distinguishes callers that share the connections of long transactions."""

from __future__ import annotations

import pytest
from dataapi.auth.caller import Caller, identity
from dataapi.http.messages import Request


def identified(subject: str, peer: str, forwarded: str | None = None, role: str = "anon") -> str:
    """Return what distinguishes a request's caller."""
    headers = {} if forwarded is None else {"x-forwarded-for": forwarded}
    request = Request("1", "GET", "/rest/v1/x", "", headers, b"", peer=peer)
    return identity(request, Caller(role, "{}", subject))


def test_a_user_is_one_caller_wherever_it_comes_from() -> None:
    """Many tokens and many addresses give it no larger share; another role does, as rows differ then."""
    first = identified("1", "203.0.113.1")
    assert first == identified("1", "203.0.113.2")
    assert first != identified("2", "203.0.113.1")
    assert first != identified("1", "203.0.113.1", role="other")


def test_callers_without_a_subject_are_told_apart_by_address() -> None:
    """A publishable key is everybody's."""
    assert identified("", "1.1.1.1") == identified("", "1.1.1.1")
    assert identified("", "1.1.1.1") != identified("", "8.8.8.8")


@pytest.mark.parametrize("peer", ["127.0.0.1", "10.0.0.7", "::1", "fd00::1", ""])
def test_a_proxy_of_ours_says_who_is_behind_it(peer: str) -> None:
    """What it adds comes last; what its client wrote before may be anything."""
    assert identified("", peer, "6.6.6.6, 1.1.1.1") == identified("", peer, "1.1.1.1")
    assert identified("", peer, "1.1.1.1") != identified("", peer, "8.8.8.8")


def test_a_client_does_not_choose_its_address() -> None:
    """Whoever is not behind a proxy could name another one with each request."""
    assert identified("", "1.1.1.1", "9.9.9.9") == identified("", "1.1.1.1")
