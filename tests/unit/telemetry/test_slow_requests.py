"""The in-memory list of slow requests."""

from __future__ import annotations

from dataapi.telemetry.slow_requests import MAX_REQUESTS, RETENTION, SlowRequest, SlowRequests


def request(number: int) -> SlowRequest:
    """Return a slow request that finished at second ``number``."""
    return SlowRequest(str(number), float(number), "GET", "/", "", "anon", 200, 1.0, 0.0, 0.5)


def test_recent_slow_requests_are_limited_by_number_and_age() -> None:
    slow = SlowRequests()
    for number in range(3 * MAX_REQUESTS):
        slow.add("one", request(number))
    latest = 3 * MAX_REQUESTS - 1
    assert [each.at for each in slow.recent("one", latest)] == [latest - ago for ago in range(MAX_REQUESTS)]
    assert [each.at for each in slow.recent("one", latest + RETENTION)] == [latest]
    assert slow.recent("another", latest) == []
