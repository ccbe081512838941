"""Attempts by organization: only the busiest organizations have labels, and counts never decrease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dataapi.webhooks.delivery.organization_metrics import OTHERS, OrganizationAttempts
from hypothesis import given
from hypothesis import strategies as st


def counted(attempts: OrganizationAttempts, **organizations: int) -> Mapping[tuple[str, ...], float]:
    for name, number in organizations.items():
        for _ in range(number):
            attempts.ended(name, "success")
    return attempts.counts()


def test_nothing_is_counted_if_labels_are_disabled() -> None:
    assert counted(OrganizationAttempts(0), acme=3) == {}


def test_busiest_organization_replaces_a_less_busy_one() -> None:
    attempts = OrganizationAttempts(1)
    assert counted(attempts, acme=2, globex=5) == {("acme", "success"): 2.0, (OTHERS, "success"): 5.0}
    assert counted(attempts, acme=1, globex=9) == {(OTHERS, "success"): 6.0, ("globex", "success"): 9.0}


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["success", "timeout"]), st.booleans())),
)
def test_labels_are_bounded_and_counts_only_grow(maximum: int, steps: list[tuple[str, str, bool]]) -> None:
    attempts = OrganizationAttempts(maximum)
    before: Mapping[tuple[str, ...], float] = {}
    total: Counter[str] = Counter()
    for organization, outcome, read in steps:
        attempts.ended(organization, outcome)
        total[outcome] += 1
        if read:
            shown = attempts.counts()
            assert len({label for label, _ in shown} - {OTHERS}) <= maximum
            assert all(shown[labels] >= number for labels, number in before.items() if labels in shown)
            assert sum(shown.values()) <= total.total()
            before = shown
