"""The schedule of attempts (docs/reference/webhooks.md, Delivery states)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from dataapi.webhooks.delivery.outcomes import WAITS, Decision, decide
from dataapi.webhooks.model import Status, Trigger
from hypothesis import given
from hypothesis import strategies as st

WAITINGS = st.lists(st.floats(0, 1e6), max_size=8)


@pytest.mark.parametrize(("number", "wait"), [(1, 10), (2, 30), (3, 90), (4, 270)])
def test_failed_attempt_is_retried_after_its_wait(number: int, wait: float) -> None:
    decision = decide(number, Trigger.AUTOMATIC, success=False)
    assert decision == Decision(Status.FAILED, wait)


def test_fifth_failure_is_final() -> None:
    assert decide(5, Trigger.AUTOMATIC, success=False) == Decision(Status.FAILED)


@given(st.integers(1, 9), st.sampled_from(Trigger), WAITINGS)
def test_success_ends_the_delivery(number: int, trigger: Trigger, waits: Sequence[float]) -> None:
    assert decide(number, trigger, success=True, waits=waits) == Decision(Status.SUCCESS)


@given(st.integers(1, 9), st.sampled_from([Trigger.MANUAL, Trigger.TEST]), WAITINGS)
def test_manual_and_test_deliveries_have_one_attempt(
    number: int, trigger: Trigger, waits: Sequence[float]
) -> None:
    assert decide(number, trigger, success=False, waits=waits) == Decision(Status.FAILED)


@given(WAITINGS, st.integers(1, 12))
def test_delivery_ends_after_at_most_five_attempts(waits: list[float], success_at: int) -> None:
    made, waited = [1], []
    while True:
        decision = decide(made[-1], Trigger.AUTOMATIC, success=made[-1] == success_at, waits=waits)
        if decision.retry_in is None:
            break
        assert decision.status is Status.FAILED
        made.append(made[-1] + 1)
        waited.append(decision.retry_in)
    assert made == list(range(1, min(5, len(waits) + 1, success_at) + 1))
    assert waited == waits[: len(made) - 1]
    assert (decision.status is Status.SUCCESS) is (success_at in made)


def test_default_waits_match_the_documentation() -> None:
    assert WAITS == (10, 30, 90, 270)
