"""``citext`` columns are strings in GraphQL, and filters on them ignore case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create extension citext;
create table subscriber (mail citext primary key);
comment on table subscriber is '@graphql({"aggregate": {"enabled": true}})';
insert into subscriber values ('ann@example.org'), ('Bob@example.org');
create table word (text citext primary key);
insert into word values ('A_b%c'), ('Axbyc'), ('a\\d');
grant select on word to anon;
grant select on subscriber to anon;
"""


@pytest.fixture(scope="module")
def service(server: Server, reactor: Any) -> Iterator[Service]:
    server.require("citext")
    with serving(reactor, server.create_database(SCHEMA)) as running:
        yield running


async def test_citext_key_ignores_case(service: Service) -> None:
    assert str(service.entries()["subscriberByPk"].args["mail"].type) == "String!"
    data = await service.data('{ subscriberByPk(mail: "BOB@example.org") { mail nodeId } }')
    assert data["subscriberByPk"]["mail"] == "Bob@example.org"
    query = "query($id: ID!) { node(nodeId: $id) { ... on subscriber { mail } } }"
    found = await service.data(query, {"id": data["subscriberByPk"]["nodeId"]})
    assert found["node"] == {"mail": "Bob@example.org"}


async def test_citext_min_and_max_ignore_case(service: Service) -> None:
    query = "{ subscriberCollection { aggregate { min { mail } max { mail } } } }"
    found = (await service.data(query))["subscriberCollection"]["aggregate"]
    assert found == {"min": {"mail": "ann@example.org"}, "max": {"mail": "Bob@example.org"}}


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("a_B%", ["A_b%c"]),
        ("aX", ["Axbyc"]),
        ("A\\\\D", ["a\\d"]),
        ("%", []),
        ("", ["A_b%c", "a\\d", "Axbyc"]),
    ],
)
async def test_starts_with_ignores_case_and_wildcards(
    service: Service, prefix: str, found: list[str]
) -> None:
    rows = await service.rows("word", "text", f'filter: {{text: {{startsWith: "{prefix}"}}}}')
    assert sorted(row["text"] for row in rows) == sorted(found)
