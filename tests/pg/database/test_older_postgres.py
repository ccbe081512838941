"""Servers with an unsupported PostgreSQL version are rejected with a clear error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database import errors
from dataapi.http.errors import DatabaseUnavailable
from dataapi.service.inspection import inspect
from dataapi.service.project import ProjectPart
from dataapi.settings import Project

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.pool import Pool
    from support.postgres import Database, Server


@pytest.fixture(autouse=True)
def _every_version_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "MINIMUM_VERSION", 99)


async def test_old_server_is_reported_by_readiness_and_check_config(
    server: Server, database: Database, reactor: Any
) -> None:
    project = Project("abcdefghijklmnopqrst", "acme", database.uri, jwt_secret="s" * 32)
    part = ProjectPart(reactor, project)
    await part.start()
    try:
        state = part.state()
        assert not state.ready
        assert f"PostgreSQL {server.version}." in (state.reason or "")
        assert "is too old: 99 is the oldest supported version" in (state.reason or "")
    finally:
        await part.stop()
    [finding] = inspect(project)
    assert finding.wrong
    assert "is too old" in finding.text


async def test_pool_sends_no_query_to_an_old_server(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(size=1)
    await pool.start()
    assert not pool.available
    with pytest.raises(DatabaseUnavailable):
        await pool.fetch("select 1")
