"""Fixtures for webhook tests: the management API and its deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.management import managing
from support.webhooks import migrated_copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.management import Management
    from support.postgres import Database, Server

EMPTY = "".join(
    f"delete from webhooks.{table};"
    for table in ("due", "delivery", "request", "event", "idempotency", "endpoint")
)
"""Deletes all rows. TRUNCATE of these small tables takes more CPU time than most tests."""


@pytest.fixture
def database(request: pytest.FixtureRequest, server: Server) -> Iterator[Database]:
    """Yield a database with the webhooks schema, or an empty one if the test is marked ``empty_database``."""
    is_empty = request.node.get_closest_marker("empty_database") is not None
    created = server.create_database() if is_empty else migrated_copy(server)
    yield created
    server.drop_database(created)


@pytest.fixture(scope="module")
def service(server: Server, reactor: Any) -> Iterator[Management]:
    with managing(reactor, migrated_copy(server)) as made:
        yield made


@pytest.fixture
def api(service: Management) -> Iterator[Management]:
    """Return the module's API without endpoints, events and deliveries."""
    service.database.execute(EMPTY)
    yield service
    service.reason = None
