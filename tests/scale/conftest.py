"""A Citus cluster of three nodes, and the same tables on one server. Skipped if Citus is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.settings import TransactionEnd
from support.cluster import cluster, plain_tables
from support.kinds import Both
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database, Server

_PROJECT: dict[str, Any] = {
    "db_aggregates_enabled": True,
    "db_tx_end": TransactionEnd.COMMIT_ALLOW_OVERRIDE,
    "db_pre_request": "public.check_request",
    "db_plan_enabled": True,
}


@pytest.fixture(scope="session")
def distributed(server: Server) -> Iterator[Database]:
    """Yield the database of a cluster with two workers, with all tables."""
    server.require("citus")
    with cluster() as (_, database):
        yield database


@pytest.fixture
def both(
    request: pytest.FixtureRequest, distributed: Database, server: Server, reactor: Any
) -> Iterator[Both]:
    """Serve both databases, optionally with ``db-max-rows``."""
    project = {**_PROJECT, "db_max_rows": getattr(request, "param", None)}
    with (
        serving(reactor, plain_tables(server), **project) as one,
        serving(reactor, distributed, **project) as many,
    ):
        yield Both(one, many)
