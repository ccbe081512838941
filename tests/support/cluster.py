"""A Citus cluster of three nodes with the tables of tests/scale, and the same tables on one server."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from support.postgres import Database, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

_HERE = Path(__file__).parents[1] / "scale"
_SETTINGS = {
    "shared_preload_libraries": "citus",
    "citus.node_conninfo": "sslmode=prefer",
    # Each transaction needs one prepared transaction for every shard that it changes.
    "max_prepared_transactions": "100",
}
# Citus connects to its workers as the role of the request, so these roles must be able to log in.
_LOGIN = "alter role anon login; alter role authenticated login; alter role service_role login"
_REST = ("keys.sql", "functions.sql", "rows.sql")


def _texts(*names: str) -> list[str]:
    return [(_HERE / name).read_text("utf-8") for name in names]


@contextmanager
def cluster() -> Iterator[tuple[Server, Database]]:
    """Yield the coordinator of a cluster with two workers, and its database with the tables."""
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
        for text in _texts("tenants.sql", "distribute.sql", *_REST):
            database.execute(text)
        # With a timeout, a distributed deadlock fails the request instead of blocking the run.
        database.execute("alter database distributed set statement_timeout = '10s'")
        yield coordinator, database
    finally:
        for node in nodes:
            node.remove()


def plain_tables(server: Server) -> Database:
    """Create the cluster's tables in a database on one server, without distributing them."""
    return server.create_database(*_texts("tenants.sql", *_REST))
