"""Deliveries keep their promises whatever happens to daemons, database and receivers.

One seed of 10 seconds, unless the environment says otherwise: ``WEBHOOK_SEED`` is the first one, and
``WEBHOOK_SEEDS`` how many follow one another; ``WEBHOOK_SECONDS`` is how long each of them goes on.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.campaign import Campaign
from support.daemon import PATIENCE
from support.installation import Installation
from support.invariants import Verdict
from support.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path

    from support.postgres import Server

FIRST = int(os.environ.get("WEBHOOK_SEED", "1"))
SEEDS = int(os.environ.get("WEBHOOK_SEEDS", "1"))
SECONDS = float(os.environ.get("WEBHOOK_SECONDS", "10"))


@pytest.mark.campaign
@pytest.mark.time_limit(2 * PATIENCE + SECONDS)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_promises_are_kept_whatever_happens(own_server: Server, tmp_path: Path, seed: int) -> None:
    with Recorder() as recorder:
        installation = Installation(tmp_path, own_server.create_database(), recorder)
        campaign = Campaign(installation, own_server, seed)
        try:
            campaign.run(SECONDS)
            campaign.settle(PATIENCE)
            told = Verdict(campaign).check()
        except BaseException as error:
            error.add_note("\n".join([f"seed {seed}", *campaign.log]))
            raise
        finally:
            installation.end()
    print(f"seed {seed}: {told}")  # noqa: T201 - for whoever runs many seeds
