"""The REST API as supabase-js sees it: the calls of its public documentation give what this promises.

The calls and their promises are in ``rest_clients_*.mjs``.
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

pytestmark = pytest.mark.time_limit(180)  # the first run of a machine installs the packages


@pytest.fixture
def own(clients: Service, reactor: Any) -> Iterator[Service]:
    """Serve the database with a pool of this test's own, as cancelling a statement costs a connection."""
    exposed = clients.project.db_schemas
    with serving(reactor, clients.database, db_schemas=exposed) as service:
        yield service


async def check(reactor: Any, service: Service, folder: Path, group: str) -> int:
    """Make the calls of a group, see that each gives what is promised, and return how many they are."""
    await install(reactor, folder, *CLIENTS)
    arguments = (str(folder), service.url, KEY, token("authenticated"), group)
    told = json.loads(await run_script(reactor, SCRIPT, *arguments))
    assert told["faults"] == {}, "\n\n".join(f"{name}: {fault}" for name, fault in told["faults"].items())
    made: int = told["made"]
    return made


@pytest.mark.parametrize(("group", "calls"), [("reads", 55), ("filters", 55), ("writes", 46), ("calls", 39)])
async def test_the_documentation_is_kept(
    clients: Service, npm_clients: Path, reactor: Any, group: str, calls: int
) -> None:
    assert await check(reactor, clients, npm_clients, group) == calls


async def test_a_time_limit_ends_the_statement(own: Service, npm_clients: Path, reactor: Any) -> None:
    """A client that gives up is told so, and PostgreSQL stops: the only connection answers again."""
    assert await check(reactor, own, npm_clients, "limits") == 1
