"""The ``graphql-http`` audits against the engine, with PostgreSQL and authentication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.audit import AUDITS, audit
from support.memory_http import KEY
from support.service import serving, token

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Server
    from support.service import Service


@pytest.fixture(scope="module", params=["compatible", "strict"])
def api(server: Server, reactor: Any, request: pytest.FixtureRequest) -> Iterator[Service]:
    """Serve the sample database with introspection: two audits query ``__type``."""
    database = server.create_chinook()
    database.execute("comment on schema public is '@graphql({\"introspection\": true})'")
    with serving(reactor, database, graphql_validation=request.param) as service:
        yield service


@pytest.mark.time_limit(180)
@pytest.mark.parametrize("role", ["anon", "authenticated"])
async def test_every_audit_of_graphql_over_http_passes(
    reactor: Any, npm_audit: Path, api: Service, role: str
) -> None:
    headers = {"apikey": KEY}
    if role != "anon":
        headers["authorization"] = f"Bearer {token(role)}"
    results = await audit(reactor, npm_audit, f"{api.url}/graphql/v1", headers)
    assert [result for result in results if result["status"] != "ok"] == []
    assert len(results) == AUDITS
