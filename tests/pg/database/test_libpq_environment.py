"""``db-uri = postgresql://`` uses libpq's environment variables, as psql does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dataapi.database import address
from dataapi.database.script import connected
from dataapi.service.inspection import inspect
from dataapi.settings import Project
from support.messages import message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dataapi.database.pool import Pool
    from support.postgres import Database, Server

EMPTY_URI = "postgresql://"


@pytest.fixture(params=["address", "name", "socket", "service"])
def environment(
    request: pytest.FixtureRequest,
    server: Server,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> str:
    """Set libpq's environment variables for this test's database."""
    hosts = {"address": "127.0.0.1", "name": "localhost", "socket": str(server.folder)}
    if request.param == "service":
        (tmp_path / "services").write_text(f"[here]\nhost=localhost\nport={server.port}\n", "utf-8")
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        monkeypatch.setenv("PGSERVICE", "here")
    else:
        monkeypatch.setenv("PGHOST", hosts[request.param])
        monkeypatch.setenv("PGPORT", str(server.port))
    monkeypatch.setenv("PGUSER", "authenticator")
    monkeypatch.setenv("PGDATABASE", database.name)
    return str(request.param)


@pytest.mark.usefixtures("environment")
async def test_pool_and_check_config_use_the_environment(
    database: Database, make_pool: Callable[..., Pool]
) -> None:
    database.execute("create table item (id int primary key); grant select on item to anon")
    pool = make_pool(uri=EMPTY_URI)
    await pool.start()
    assert await pool.run(message("select current_database()")) == [(database.name,)]
    with connected(EMPTY_URI) as fetch:
        assert fetch("select current_user::text", ()) == [("authenticator",)]
    assert not any(finding.wrong for finding in inspect(Project("ref", "acme", EMPTY_URI)))


async def test_host_names_from_the_environment_are_resolved_asynchronously(environment: str) -> None:
    assert address.has_host_names(address.parameters(EMPTY_URI)) == (environment in ("name", "service"))
