"""Calls from the public documentation of supabase-js return the documented results.

The calls and their results are in ``rest_clients_*.mjs``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.memory_http import KEY
from support.node import CLIENTS, install, run_script
from support.service import serving, token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.service import Service

SCRIPT = Path(__file__).parent / "rest_clients.mjs"

pytestmark = pytest.mark.time_limit(180)  # the first run installs npm packages


@pytest.fixture
def separate(clients: Service, reactor: Any) -> Iterator[Service]:
    """Serve the database with a separate pool, because cancelling a statement closes a connection."""
    exposed = clients.project.db_schemas
    with serving(reactor, clients.database, db_schemas=exposed) as service:
        yield service


async def check(reactor: Any, service: Service, folder: Path, group: str) -> int:
    """Run a group of calls, check their results, and return the number of calls."""
    await install(reactor, folder, *CLIENTS)
    arguments = (str(folder), service.url, KEY, token("authenticated"), group)
    report = json.loads(await run_script(reactor, SCRIPT, *arguments))
    assert report["faults"] == {}, "\n\n".join(f"{name}: {fault}" for name, fault in report["faults"].items())
    made: int = report["made"]
    return made


@pytest.mark.parametrize(("group", "calls"), [("reads", 55), ("filters", 55), ("writes", 46), ("calls", 39)])
async def test_documented_calls_return_documented_results(
    clients: Service, npm_clients: Path, reactor: Any, group: str, calls: int
) -> None:
    assert await check(reactor, clients, npm_clients, group) == calls


async def test_client_timeout_cancels_the_statement(
    separate: Service, npm_clients: Path, reactor: Any
) -> None:
    """The client gets an error, and the pool's only connection becomes usable again."""
    assert await check(reactor, separate, npm_clients, "limits") == 1
