"""Fixtures of the tests on a real PostgreSQL."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_twisted
from dataapi.database.pool import Pool
from dataapi.database.session import SessionOptions
from dataapi.settings import TransactionEnd
from support.deliveries import Deliveries
from support.pooler import keeping
from support.service import Service, serving
from twisted.internet import defer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.postgres import Database, Server

_DATA = Path(__file__).parent / "data"

FEATURES = (_DATA / "rest.sql").read_text("utf-8")
"""The schema of the REST tests."""


def _require_prepared_statements(server: Server) -> None:
    """Skip the test if the pooler does not support prepared statements."""
    if server.pooler and not keeping(1):
        pytest.skip("through a pooler: this one supports no prepared statements")


@pytest.fixture
def make_pool(request: pytest.FixtureRequest, server: Server, reactor: Any) -> Iterator[Callable[..., Pool]]:
    """Yield a function that creates a pool for the test's database. All pools are stopped after the test.

    Tests without a database of their own share an empty one. Keyword arguments are options of the pool and
    its connections.
    """
    # A pooler preserves sessions with their settings, so each test through a pooler needs its own database.
    owns = "database" in request.fixturenames or server.pooler
    database: Database = request.getfixturevalue("database") if owns else server.empty
    pools: list[Pool] = []

    def make(**options: Any) -> Pool:
        if options.get("prepared_statements"):
            _require_prepared_statements(server)
        session_options = {
            field.name: options.pop(field.name) for field in fields(SessionOptions) if field.name in options
        }
        created = Pool(
            reactor, options.pop("uri", database.uri), options=SessionOptions(**session_options), **options
        )
        pools.append(created)
        return created

    yield make
    for each in pools:
        pytest_twisted.blockon(defer.Deferred.fromCoroutine(each.stop(grace=0.5)))


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    """Return a started pool of three connections."""
    created = make_pool(size=3)
    pytest_twisted.blockon(defer.Deferred.fromCoroutine(created.start()))
    return created


@pytest.fixture
def deliveries(reactor: Any, database: Database, pool: Pool) -> Iterator[Deliveries]:
    """Yield a function that creates dispatchers for the test's database."""
    created = Deliveries(reactor, database, pool)
    yield created
    created.end()


@pytest.fixture(scope="module")
def features(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve the REST test schema in a module-scoped database, with aggregates enabled."""
    database = server.create_database(FEATURES)
    exposed = ("public", "other")
    with serving(reactor, database, db_schemas=exposed, db_aggregates_enabled=True) as service:
        yield service


@pytest.fixture(scope="module")
def clients(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve the schema of the client library tests in a module-scoped database.

    Clients may request plans and rollbacks.
    """
    database = server.create_database((_DATA / "rest_clients.sql").read_text("utf-8"))
    project: dict[str, Any] = {
        "db_schemas": ("public", "backstage"),
        "db_plan_enabled": True,
        "db_tx_end": TransactionEnd.COMMIT_ALLOW_OVERRIDE,
    }
    with serving(reactor, database, **project) as service:
        yield service


@pytest.fixture(scope="module")
def reference_database(server: Server) -> Database:
    """Return a database with the objects of docs/reference/rest.md. Tests must not change it."""
    return server.create_database(FEATURES, (_DATA / "rest_reference.sql").read_text("utf-8"))


@pytest.fixture(scope="module")
def reference(reference_database: Database, reactor: Any) -> Iterator[Service]:
    """Serve the database of the REST reference with all optional features enabled."""
    exposed = ("public", "other")
    everything = {"db_aggregates_enabled": True, "db_plan_enabled": True}
    with serving(reactor, reference_database, db_schemas=exposed, **everything) as service:
        yield service


@pytest.fixture(scope="module")
def service(request: pytest.FixtureRequest, server: Server, reactor: Any) -> Iterator[Service]:
    """Serve the ``SCHEMA`` of the test module, with its ``PROJECT`` settings if defined."""
    project: dict[str, Any] = getattr(request.module, "PROJECT", {})
    with serving(reactor, server.create_database(request.module.SCHEMA), **project) as running:
        yield running


@pytest.fixture(scope="module", params=[True, False], ids=["prepared", "inlined"])
def either(
    request: pytest.FixtureRequest, server: Server, service: Service, reactor: Any
) -> Iterator[Service]:
    """Serve the test module's database with and without prepared statements."""
    if request.param:
        _require_prepared_statements(server)
    with serving(reactor, service.database, db_prepared_statements=request.param) as running:
        yield running


@pytest.fixture
def api(request: pytest.FixtureRequest, service: Service) -> Service:
    """Return the test module's service after running the module's ``RESET`` statements, if defined."""
    reset: str | None = getattr(request.module, "RESET", None)
    if reset is not None:
        service.database.execute(reset)
    return service
