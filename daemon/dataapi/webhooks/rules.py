"""How attempts are made, as the configuration says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataapi.webhooks.schedule import WAITS


@dataclass(frozen=True, slots=True)
class Rules:
    """How attempts are made.

    :ivar waits: seconds before attempts 2, 3, ..., from the end of the attempt before.
    :ivar timeout: seconds that one attempt takes at most.
    :ivar concurrency: attempts of this process under way at once.
    :ivar per_host: of these, to one host.
    """

    waits: Sequence[float] = WAITS
    timeout: float = 20.0
    concurrency: int = 256
    per_host: int = 16
