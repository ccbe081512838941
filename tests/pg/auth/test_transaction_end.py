"""``db-tx-end``: whether what a request writes stays, and whether the client may say otherwise."""

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
    """Serve a database of the test's own with the settings that the test is parametrised with."""
    with serving(reactor, server.create_database(SCHEMA), **request.param) as service:
        yield service


def settings(end: str) -> list[dict[str, Any]]:
    """Return settings with that end, with and without prepared statements."""
    return [
        {"db_tx_end": TransactionEnd(end), "db_prepared_statements": prepared} for prepared in (True, False)
    ]


@pytest.mark.parametrize(
    ("api", "prefer", "stays"),
    [
        (given, prefer, stays)
        for end, prefer, stays in (
            ("commit", "", True),
            ("commit", "tx=rollback", True),
            ("rollback", "", False),
            ("rollback", "tx=commit", False),
            ("commit-allow-override", "", True),
            ("commit-allow-override", "handling=strict, tx=rollback", False),
            ("rollback-allow-override", "", False),
            ("rollback-allow-override", "return=minimal,tx=commit", True),
        )
        for given in settings(end)
    ],
    indirect=["api"],
)
async def test_a_write_stays_or_is_undone(api: Service, prefer: str, stays: bool) -> None:
    headers = {"prefer": prefer} if prefer else {}
    for number in (1, 2):
        answer = await api.ask(INSERT, {"id": number}, headers=headers)
        assert answer.data == {"insertIntoitemCollection": {"records": [{"id": number}]}}
    assert await api.ids("item") == ([1, 2] if stays else [])


@pytest.mark.parametrize("api", settings("rollback"), indirect=True)
async def test_deferred_constraints_are_checked_before_the_rollback(api: Service) -> None:
    """A rolled back request fails as a committed one would, and the next one finds a clean connection."""
    query = "mutation { insertIntoitemCollection(objects: [{id: 1, other: 9}]) { affectedCount } }"
    answer = await api.ask(query)
    assert answer.errors[0]["extensions"]["code"] == "23503"
    assert await api.ids("item") == []
