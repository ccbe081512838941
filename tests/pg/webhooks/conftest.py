"""Fixtures for webhook tests: the management API and its deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.management import managing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.management import Management
    from support.postgres import Server

EMPTY = "".join(
    f"delete from webhooks.{table};"
    for table in ("due", "delivery", "request", "event", "idempotency", "endpoint")
)
"""Deletes all rows. TRUNCATE of these small tables would take more processor time than most tests."""


@pytest.fixture(scope="module")
def service(server: Server, reactor: Any) -> Iterator[Management]:
    """Serve the management API to all tests of a module."""
    with managing(reactor, server.create_database()) as made:
        yield made


@pytest.fixture
def api(service: Management) -> Iterator[Management]:
    """Return the module's API without endpoints, events and deliveries."""
    service.database.execute(EMPTY)
    yield service
    service.reason = None
