"""A Citus cluster of three nodes, and the same tables on one server; skipped where PostgreSQL lacks Citus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.settings import TransactionEnd
from support.kinds import Both
from support.postgres import Server
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

_HERE = Path(__file__).parent
_SETTINGS = {"shared_preload_libraries": "citus", "citus.node_conninfo": "sslmode=prefer"}
# Workers are connected to as the role of a request.
_LOGIN = "alter role anon login; alter role authenticated login; alter role service_role login"
_REST = ("keys.sql", "functions.sql", "rows.sql")
_PROJECT: dict[str, Any] = {
    "db_aggregates_enabled": True,
    "db_tx_end": TransactionEnd.COMMIT_ALLOW_OVERRIDE,
    "db_pre_request": "public.check_request",
    "db_max_rows": 1000,
    "db_plan_enabled": True,
}


def _sql(name: str) -> str:
    return (_HERE / name).read_text("utf-8")


@pytest.fixture(scope="session")
def cluster(server: Server) -> Iterator[Server]:
    """Yield the coordinator of a cluster with two workers, whose database ``distributed`` has the tables."""
    server.require("citus")
    nodes = [Server(settings=_SETTINGS) for _ in range(3)]
    try:
        for node in nodes:
            node.create()
            node.admin.execute(_LOGIN)
            node.admin.execute("create database distributed")
            node.database("distributed").execute("create extension citus")
        coordinator, *workers = nodes
        database = coordinator.database("distributed")
        database.execute("select citus_set_coordinator_host('127.0.0.1', %s)", (coordinator.port,))
        for worker in workers:
            database.execute("select citus_add_node('127.0.0.1', %s)", (worker.port,))
        for name in ("tenants.sql", "distribute.sql", *_REST):
            database.execute(_sql(name))
        # A request that waits for locks over several nodes fails, and not the run.
        database.execute("alter database distributed set statement_timeout = '10s'")
        yield coordinator
    finally:
        for node in nodes:
            node.remove()


@pytest.fixture
def both(cluster: Server, server: Server, reactor: Any) -> Iterator[Both]:
    """Serve the tables of one server and those of the cluster."""
    plain = server.create_database(*map(_sql, ("tenants.sql", *_REST)))
    distributed = cluster.database("distributed")
    with (
        serving(reactor, plain, **_PROJECT) as one,
        serving(reactor, distributed, **_PROJECT) as many,
    ):
        yield Both(one, many)
