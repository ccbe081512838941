"""``db-tx-end``: whether writes are committed, and whether clients may override it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.settings import TransactionEnd
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create table item (id int primary key, other int references item deferrable initially deferred);
grant all on item to anon;
"""
INSERT = "mutation ($id: Int) { insertIntoitemCollection(objects: [{id: $id}]) { records { id } } }"


@pytest.fixture
def api(request: pytest.FixtureRequest, server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA), **request.param) as service:
        yield service


def settings(end: str) -> list[dict[str, Any]]:
    return [
        {"db_tx_end": TransactionEnd(end), "db_prepared_statements": prepared} for prepared in (True, False)
    ]


@pytest.mark.parametrize(
    ("api", "prefer", "is_committed"),
    [
        (project_settings, prefer, is_committed)
        for end, prefer, is_committed in (
            ("commit", "", True),
            ("commit", "tx=rollback", True),
            ("rollback", "", False),
            ("rollback", "tx=commit", False),
            ("commit-allow-override", "", True),
            ("commit-allow-override", "handling=strict, tx=rollback", False),
            ("rollback-allow-override", "", False),
            ("rollback-allow-override", "return=minimal,tx=commit", True),
        )
        for project_settings in settings(end)
    ],
    indirect=["api"],
)
async def test_write_is_committed_or_rolled_back_as_configured(
    api: Service, prefer: str, is_committed: bool
) -> None:
    headers = {"prefer": prefer} if prefer else {}
    for number in (1, 2):
        response = await api.ask(INSERT, {"id": number}, headers=headers)
        assert response.data == {"insertIntoitemCollection": {"records": [{"id": number}]}}
    assert await api.ids("item") == ([1, 2] if is_committed else [])


@pytest.mark.parametrize("api", settings("rollback"), indirect=True)
async def test_deferred_constraints_are_checked_before_the_rollback(api: Service) -> None:
    """The request fails as if it were committed, and the connection remains usable."""
    query = "mutation { insertIntoitemCollection(objects: [{id: 1, other: 9}]) { affectedCount } }"
    response = await api.ask(query)
    assert response.errors[0]["extensions"]["code"] == "23503"
    assert await api.ids("item") == []
