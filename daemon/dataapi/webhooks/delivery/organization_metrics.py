"""Attempts by organization, for ``/metrics``: those of the busiest ones, with all others as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

OTHERS = "(others)"
"""The label of organizations that have none of their own; no slug is like it."""

MAX_REMEMBERED = 10_000
"""Organizations whose attempts are counted to find the busiest ones."""

_BUSIER = 2
"""How many times as busy an organization must be to take the place of another one."""


class OrganizationAttempts:
    """Attempts by organization and outcome.

    :param maximum: how many organizations have labels of their own.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._named: set[str] = set()
        # Attempts of late: halved whenever the metrics are read.
        self._recent: Counter[str] = Counter()

    def ended(self, organization: str, outcome: str) -> None:
        """Count the end of an attempt."""
        if self._maximum == 0:
            return
        if organization in self._recent or len(self._recent) < MAX_REMEMBERED:
            self._recent[organization] += 1
        if len(self._named) < self._maximum:
            self._named.add(organization)
        label = organization if organization in self._named else OTHERS
        self._attempts[label, outcome] += 1

    def counts(self) -> Mapping[tuple[str, ...], float]:
        """Return the attempts by label and outcome, and give the busiest organizations labels.

        No count ever goes down: what an organization did without a label stays with the others, and a label
        that is taken away goes with its counts.
        """
        found: dict[tuple[str, ...], float] = {
            labels: float(number) for labels, number in self._attempts.items()
        }
        for organization, number in self._recent.most_common(self._maximum):
            quietest = min(self._named, key=self._recent.__getitem__)
            if organization not in self._named and number > _BUSIER * self._recent[quietest]:
                self._named.remove(quietest)
                self._named.add(organization)
                for labels in [labels for labels in self._attempts if labels[0] == quietest]:
                    del self._attempts[labels]
        self._recent = Counter({name: number // 2 for name, number in self._recent.items() if number > 1})
        return found
