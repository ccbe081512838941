"""GraphQL subscriptions over server-sent events (docs/reference/graphql.md, Live queries)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.catalog.names import CatalogNames
from dataapi.graphql.schema.role_schema import RoleSchema, catalog_view, schema_text
from support.live import LiveService, serving_live

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create table author (id int primary key, name text not null);
create table book (id int primary key, author_id int references author, title text not null);
comment on table author is '@graphql({"totalCount": {"enabled": true}, "subscriptions": {"enabled": true}})';
create index on book (author_id);
create function newest() returns book language sql stable as 'select * from book order by id desc limit 1';
create function bump() returns int language sql volatile as 'select 1';
insert into author values (1, 'Ada'), (2, 'Grace');
insert into book values (1, 1, 'Notes'), (2, 2, 'Compilers');
grant all on all tables in schema public to anon;
comment on schema public is '@graphql({"introspection": true})';
"""
NAMES = "subscription { authorCollection(orderBy: [{id: AscNullsLast}]) { edges { node { name } } } }"


@pytest.fixture
def live(server: Server, reactor: Any) -> Iterator[LiveService]:
    """Serve the schema with subscriptions to all tables."""
    with serving_live(reactor, server.create_database(SCHEMA)) as service:
        yield service


@pytest.fixture
def selective(server: Server, reactor: Any) -> Iterator[LiveService]:
    """Serve the schema with subscriptions to one table, enabled by its directive."""
    with serving_live(reactor, server.create_database(SCHEMA), graphql_features=frozenset()) as service:
        yield service


def names(data: Any) -> list[str]:
    return [edge["node"]["name"] for edge in data["data"]["authorCollection"]["edges"]]


async def test_subscription_sends_a_new_result_when_data_changes(live: LiveService) -> None:
    stream = await live.graphql(NAMES)
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    first = await live.next(stream)
    assert (first.name, names(first.json)) == ("next", ["Ada", "Grace"])
    live.database.execute("insert into author values (3, 'Barbara')")
    assert names((await live.next(stream)).json) == ["Ada", "Grace", "Barbara"]


@pytest.mark.parametrize(
    ("field", "before", "after"),
    [
        ("bookByPk(id: 1) { title }", {"bookByPk": {"title": "Notes"}}, {"bookByPk": {"title": "Sketch"}}),
        (
            "authorCollection(first: 1) { totalCount pageInfo { hasNextPage } edges { node { "
            "bookCollection { edges { node { title } } } } } }",
            {
                "authorCollection": {
                    "totalCount": 2,
                    "pageInfo": {"hasNextPage": True},
                    "edges": [{"node": {"bookCollection": {"edges": [{"node": {"title": "Notes"}}]}}}],
                }
            },
            {
                "authorCollection": {
                    "totalCount": 2,
                    "pageInfo": {"hasNextPage": True},
                    "edges": [{"node": {"bookCollection": {"edges": [{"node": {"title": "Sketch"}}]}}}],
                }
            },
        ),
    ],
)
async def test_subscription_has_the_root_fields_of_query(
    live: LiveService, field: str, before: Any, after: Any
) -> None:
    stream = await live.graphql(f"subscription {{ {field} }}")
    assert (await live.next(stream)).json == {"data": before}
    live.database.execute("update book set title = 'Sketch' where id = 1")
    assert (await live.next(stream)).json == {"data": after}


async def test_stable_functions_and_nodes_can_be_subscribed_to(live: LiveService) -> None:
    stream = await live.graphql("subscription { newest { nodeId title } }")
    first = (await live.next(stream)).json["data"]["newest"]
    node = await live.graphql(
        f'subscription {{ node(nodeId: "{first["nodeId"]}") {{ ... on book {{ title }} }} }}'
    )
    assert (await live.next(node)).json == {"data": {"node": {"title": "Compilers"}}}
    live.database.execute("update book set title = 'COBOL' where id = 2")
    assert (await live.next(stream)).json["data"]["newest"]["title"] == "COBOL"
    assert (await live.next(node)).json == {"data": {"node": {"title": "COBOL"}}}
    volatile = await live.graphql("subscription { bump }")
    assert "bump" in (await live.next(volatile)).json["errors"][0]["message"]


async def test_query_and_mutation_complete_after_one_result(live: LiveService) -> None:
    query = await live.graphql("{ bookByPk(id: 1) { title } }")
    assert (await live.next(query)).json == {"data": {"bookByPk": {"title": "Notes"}}}
    assert (await live.next(query)).name == "complete"
    await query.ended
    text = 'mutation { updatebookCollection(set: {title: "x"}, filter: {id: {eq: 1}}) { affectedCount } }'
    streams = [await live.graphql(text) for _ in range(2)]
    for stream in streams:
        result = (await live.next(stream)).json
        assert result == {"data": {"updatebookCollection": {"affectedCount": 1}}}
        assert (await live.next(stream)).name == "complete"
        await stream.ended
    assert live.figures.cohorts == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("subscription { nothing }", "Cannot query field 'nothing' on type 'Subscription'"),
        ("subscription { a: heartbeat }", "Cannot query field 'heartbeat' on type 'Subscription'"),
        (
            "subscription { bookByPk(id: 1) { id } authorByPk(id: 1) { id } }",
            "Anonymous Subscription must select only one top level field.",
        ),
        ("subscription {", "Syntax Error"),
    ],
)
async def test_document_errors_are_sent_as_results(live: LiveService, text: str, message: str) -> None:
    stream = await live.graphql(text)
    assert stream.status == 200
    assert message in (await live.next(stream)).json["errors"][0]["message"]
    assert (await live.next(stream)).name == "complete"
    await stream.ended


async def test_subscription_requires_an_event_stream(live: LiveService) -> None:
    """A single JSON response would not be a subscription, so the request fails before it runs."""
    stream = await live.graphql(NAMES, Accept="application/json")
    await stream.ended
    assert stream.status == 200
    assert "text/event-stream" in stream.text


async def test_get_request_can_subscribe(live: LiveService) -> None:
    """``EventSource`` in browsers sends GET requests. Only REST accepts the API key as a parameter."""
    stream = await live.open("/graphql/v1?query=subscription%7BbookByPk(id:1)%7Btitle%7D%7D")
    assert (await live.next(stream)).json == {"data": {"bookByPk": {"title": "Notes"}}}


async def test_directive_enables_subscriptions_for_a_table(selective: LiveService) -> None:
    stream = await selective.graphql(NAMES)
    assert names((await selective.next(stream)).json) == ["Ada", "Grace"]
    refused = await selective.graphql("subscription { bookByPk(id: 1) { id } }")
    assert "on type 'Subscription'" in (await selective.next(refused)).json["errors"][0]["message"]


async def test_variables_are_used_and_database_errors_end_the_stream(live: LiveService) -> None:
    body = {"query": "subscription($id: Int!) { bookByPk(id: $id) { title } }", "variables": {"id": 2}}
    stream = await live.open("/graphql/v1", body)
    assert (await live.next(stream)).json == {"data": {"bookByPk": {"title": "Compilers"}}}
    live.database.execute("revoke select on book from anon")
    last = await live.next(stream)
    assert last.name == "next"
    assert last.json["errors"]
    assert (await live.next(stream)).name == "complete"
    await stream.ended


async def test_schema_has_no_subscription_type_when_disabled(selective: LiveService) -> None:
    catalog = selective.part._watcher.current
    assert catalog is not None
    without = catalog_view(catalog, CatalogNames(catalog), "anon", selective.project)
    assert "type Subscription" in schema_text(RoleSchema(without))
    selective.database.execute("comment on table author is null")
    await selective.part.reload()
    catalog = selective.part._watcher.current
    assert catalog is not None
    without = catalog_view(catalog, CatalogNames(catalog), "anon", selective.project)
    assert "Subscription" not in schema_text(RoleSchema(without))
    stream = await selective.graphql(NAMES)
    assert "subscription" in (await selective.next(stream)).json["errors"][0]["message"].lower()
