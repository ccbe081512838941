"""``db-uri = postgresql://``: libpq's environment says where the database is, to the daemon as to psql."""

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

NOWHERE = "postgresql://"


@pytest.fixture(params=["address", "name", "socket", "service"])
def environment(
    request: pytest.FixtureRequest,
    server: Server,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> str:
    """Set the variables that lead to this test's database."""
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
async def test_the_environment_leads_to_the_database(
    database: Database, make_pool: Callable[..., Pool]
) -> None:
    """The pool, the commands and ``check-config`` find it."""
    database.execute("create table item (id int primary key); grant select on item to anon")
    pool = make_pool(uri=NOWHERE)
    await pool.start()
    assert await pool.run(message("select current_database()")) == [(database.name,)]
    with connected(NOWHERE) as fetch:
        assert fetch("select current_user::text", ()) == [("authenticator",)]
    assert not any(finding.wrong for finding in inspect(Project("ref", "acme", NOWHERE)))


async def test_names_of_the_environment_are_looked_up_without_blocking(environment: str) -> None:
    """By the daemon, and not by libpq."""
    assert address.has_host_names(address.parameters(NOWHERE)) == (environment in ("name", "service"))
