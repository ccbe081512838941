"""Slow requests in memory."""

from __future__ import annotations

from dataapi.telemetry.slow_requests import MAX_REQUESTS, RETENTION, SlowRequest, SlowRequests


def request(number: int) -> SlowRequest:
    """Return a request that was answered at that second."""
    return SlowRequest(str(number), float(number), "GET", "/", "", "anon", 200, 1.0, 0.0, 0.5)


def test_the_latest_ones_are_kept_for_a_while_and_no_more_than_a_number() -> None:
    """However many there are, the memory is bounded."""
    slow = SlowRequests()
    for number in range(3 * MAX_REQUESTS):
        slow.add("one", request(number))
    latest = 3 * MAX_REQUESTS - 1
    assert [each.at for each in slow.recent("one", latest)] == [latest - ago for ago in range(MAX_REQUESTS)]
    assert [each.at for each in slow.recent("one", latest + RETENTION)] == [latest]
    assert slow.recent("another", latest) == []
