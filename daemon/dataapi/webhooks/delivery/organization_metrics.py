"""Attempt metrics by organization. Only the busiest organizations have their own labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

OTHERS = "(others)"
"""Label of organizations without their own label. It is not a valid slug."""

MAX_COUNTED = 10_000
"""Maximum number of organizations whose recent attempts are counted."""

_REPLACE_FACTOR = 2
"""Factor by which an organization's attempts must exceed those of a labeled organization to replace it."""


class OrganizationAttempts:
    """Counts attempts by organization and outcome. Up to ``maximum`` organizations have their own labels."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._labeled: set[str] = set()
        # Recent attempts, halved whenever the metrics are read.
        self._recent: Counter[str] = Counter()

    def ended(self, organization: str, outcome: str) -> None:
        if self._maximum == 0:
            return
        if organization in self._recent or len(self._recent) < MAX_COUNTED:
            self._recent[organization] += 1
        if len(self._labeled) < self._maximum:
            self._labeled.add(organization)
        label = organization if organization in self._labeled else OTHERS
        self._attempts[label, outcome] += 1

    def counts(self) -> Mapping[tuple[str, ...], float]:
        """Return the attempts by label and outcome, and reassign labels to the busiest organizations.

        Counters never decrease: attempts of organizations without a label are counted in ``OTHERS`` and
        remain there. The counters of an organization that loses its label are removed.
        """
        counts: dict[tuple[str, ...], float] = {
            labels: float(number) for labels, number in self._attempts.items()
        }
        for organization, number in self._recent.most_common(self._maximum):
            quietest = min(self._labeled, key=self._recent.__getitem__)
            if organization not in self._labeled and number > _REPLACE_FACTOR * self._recent[quietest]:
                self._labeled.remove(quietest)
                self._labeled.add(organization)
                for labels in [labels for labels in self._attempts if labels[0] == quietest]:
                    del self._attempts[labels]
        self._recent = Counter({name: number // 2 for name, number in self._recent.items() if number > 1})
        return counts
