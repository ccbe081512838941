"""What follows an attempt (specification, "States and transitions")."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from dataapi.webhooks.model import Status, Trigger
from dataapi.webhooks.schedule import (
    WAITS,
    Decision,
    Retry,
    before_attempt,
    decide,
    expiry,
    may_retry,
)
from hypothesis import given
from hypothesis import strategies as st

WAITINGS = st.lists(st.floats(0, 1e6), max_size=8)


@pytest.mark.parametrize(("number", "wait"), [(1, 10), (2, 30), (3, 90), (4, 270)])
def test_a_failed_attempt_is_followed_by_the_next_after_its_wait(number: int, wait: float) -> None:
    decision = decide(number, Trigger.AUTOMATIC, succeeded=False, ended=1000.0)
    assert decision == Decision(Status.FAILED, Retry(number + 1, 1000.0 + wait))


def test_the_fifth_failure_is_the_last() -> None:
    assert decide(5, Trigger.AUTOMATIC, succeeded=False, ended=0.0) == Decision(Status.FAILED)


@given(st.integers(1, 9), st.sampled_from(Trigger), WAITINGS)
def test_a_success_ends_the_delivery(number: int, trigger: Trigger, waits: Sequence[float]) -> None:
    assert decide(number, trigger, succeeded=True, ended=0.0, waits=waits) == Decision(Status.SUCCESS)


@given(st.integers(1, 9), st.sampled_from([Trigger.MANUAL, Trigger.TEST]), WAITINGS)
def test_manual_and_test_deliveries_have_one_attempt(
    number: int, trigger: Trigger, waits: Sequence[float]
) -> None:
    assert decide(number, trigger, succeeded=False, ended=0.0, waits=waits) == Decision(Status.FAILED)


@given(WAITINGS, st.integers(1, 12))
def test_whatever_the_waits_a_delivery_ends_after_five_attempts_at_most(
    waits: Sequence[float], success_at: int
) -> None:
    """Attempts are numbered without a gap, each wait is kept exactly, and the last record is final."""
    now, number = 0.0, 1
    made = [number]
    while True:
        decision = decide(number, Trigger.AUTOMATIC, succeeded=number == success_at, ended=now, waits=waits)
        if decision.retry is None:
            break
        assert decision.status is Status.FAILED
        assert decision.retry.due == now + waits[number - 1]
        number, now = decision.retry.number, decision.retry.due
        made.append(number)
    assert made == list(range(1, min(5, len(waits) + 1, success_at) + 1))
    assert (decision.status is Status.SUCCESS) is (success_at in made)


def test_the_waits_are_those_of_the_specification() -> None:
    assert WAITS == (10, 30, 90, 270)


def test_what_is_due_at_a_disabled_endpoint_is_skipped() -> None:
    assert before_attempt(enabled=True) is None
    assert before_attempt(enabled=False) == Decision(Status.SKIPPED)


def test_a_delivery_is_retried_and_listed_for_14_days() -> None:
    assert expiry(100.0) == 100.0 + 14 * 86_400
    assert may_retry(100.0, 100.0 + 14 * 86_400 - 0.001)
    assert not may_retry(100.0, 100.0 + 14 * 86_400)
    assert not may_retry(0.0, 86_400.0, retention_days=1)
