"""Deliveries are guaranteed despite random failures of daemons, the database and receivers.

Runs one seed for 10 seconds by default. Environment variables: ``WEBHOOK_SEED`` is the first seed,
``WEBHOOK_SEEDS`` the number of seeds, and ``WEBHOOK_SECONDS`` the seconds per seed.
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
def test_delivery_guarantees_hold_under_random_faults(own_server: Server, tmp_path: Path, seed: int) -> None:
    with Recorder() as recorder:
        installation = Installation(tmp_path, own_server.create_database(), recorder)
        campaign = Campaign(installation, own_server, seed)
        try:
            campaign.run(SECONDS)
            campaign.settle(PATIENCE)
            verdict = Verdict(campaign).check()
        except BaseException as error:
            error.add_note("\n".join([f"seed {seed}", *campaign.log]))
            raise
        finally:
            installation.end()
    print(f"seed {seed}: {verdict}")  # noqa: T201 - for runs with many seeds
