"""Documents that differ only in literals share a compiled plan, and responses do not reveal this."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create table item (id int primary key, name text, price numeric, code uuid, note varchar(3), rank int);
insert into item values (1, 'one', 1.5, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'a', 3),
    (2, 'two', 2.5, null, null, 2), (3, 'three', null, null, 'c', null);
create table other (id int primary key, name text);
insert into other values (1, 'other');
grant all on all tables in schema public to anon;
"""


@pytest.fixture
def api(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA)) as service:
        yield service


async def _statements(api: Service, *queries: str) -> list[Any]:
    statements = []
    for query in queries:
        response = await api.ask(query)
        assert "errors" not in response.body, response.body
        statements += [bound.statement for message in response.messages for bound in message.statements]
    return statements


async def test_documents_that_differ_in_literals_run_one_statement(api: Service) -> None:
    query = """{ itemCollection(first: 5, filter: {name: {eq: "%s"}, id: {in: [%s, 9]}}) {
        edges { node { id } } } }"""
    queries = [query % ("one", 1), query % ('it\\"s', 2), query % ("two", 2)]
    statements = await _statements(api, *queries)
    assert len(set(map(id, statements))) == 1
    assert [node["id"] for node in nodes((await api.data(queries[0]))["itemCollection"])] == [1]
    assert [node["id"] for node in nodes((await api.data(queries[2]))["itemCollection"])] == [2]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            "{ itemByPk(id: 1) { id } }",
            "{ itemByPk(id: 99999999999) { id } }",
            "Int cannot represent non 32-bit",
        ),
        (
            '{ itemCollection(filter: {code: {eq: "a0eebc999c0b4ef8bb6d6bb9bd380a11"}}) { __typename } }',
            '{ itemCollection(filter: {code: {eq: "no uuid"}}) { __typename } }',
            "Invalid input for UUID type",
        ),
        (
            '{ itemCollection(filter: {price: {gt: "1"}}) { edges { cursor } } }',
            '{ itemCollection(filter: {price: {gt: "much"}}) { edges { cursor } } }',
            "Invalid input for BigFloat type",
        ),
        (
            "{ itemCollection(first: 1) { edges { cursor } } }",
            "{ itemCollection(first: -1) { edges { cursor } } }",
            "`first` must be an unsigned integer",
        ),
        (
            'mutation { insertIntoitemCollection(objects: [{id: 7, note: "abc"}]) { affectedCount } }',
            'mutation { insertIntoitemCollection(objects: [{id: 8, note: "abcd"}]) { affectedCount } }',
            "Maximum character length 3",
        ),
        (
            "{ a: itemByPk(id: 1) { id } a: itemByPk(id: 1) { name } }",
            "{ a: itemByPk(id: 1) { id } a: itemByPk(id: 2) { name } }",
            "Fields 'a' conflict",
        ),
    ],
)
async def test_invalid_value_is_rejected_if_the_shape_is_cached(
    api: Service, first: str, second: str, message: str
) -> None:
    assert "errors" in (cold := await api.ask(second)).body
    assert message in cold.errors[0]["message"]
    await api.reload()
    assert (await api.ask(first)).data
    assert (await api.ask(second)).body == cold.body


async def test_error_location_refers_to_the_text_of_the_client(api: Service) -> None:
    query = '{ a: itemCollection(filter: {name: {eq: "%s"}}, first: %s) { edges { cursor } } }'
    assert (await api.ask(query % ("x", 1))).data
    text = query % ("a much longer name", -1)
    error = (await api.ask(text)).errors[0]
    assert error["locations"] == [{"line": 1, "column": text.index("-1") + 1}]
    assert error["path"] == ["a"]


def _encoded(*values: object) -> str:
    return base64.b64encode(json.dumps(values).encode()).decode()


async def test_node_ids_and_cursors_in_literals_decide_the_statement(api: Service) -> None:
    node = '{ node(nodeId: "%s") { ... on item { name } ... on other { id name } } }'
    assert await api.data(node % _encoded("public", "item", 2)) == {"node": {"name": "two"}}
    assert await api.data(node % _encoded("public", "other", 1)) == {"node": {"id": 1, "name": "other"}}
    assert await api.data(node % _encoded("public", "item", 1)) == {"node": {"name": "one"}}
    page = '{ itemCollection(orderBy: [{rank: DescNullsFirst}], after: "%s") { edges { node { id } } } }'
    assert [row["id"] for row in nodes((await api.data(page % _encoded(3, 1)))["itemCollection"])] == [2]
    assert [row["id"] for row in nodes((await api.data(page % _encoded(None, 3)))["itemCollection"])] == [
        1,
        2,
    ]


async def test_literals_work_in_fragments_and_with_variables(api: Service) -> None:
    query = """query ($name: String) {
            itemCollection(filter: {or: [{name: {eq: $name}}, {id: {eq: %s}}]}) { ...f } }
        fragment f on itemConnection { edges { node { id @include(if: true) } } }"""
    for number, expected in ((1, [1, 3]), (2, [2, 3])):
        data = await api.data(query % number, {"name": "three"})
        assert [row["id"] for row in nodes(data["itemCollection"])] == expected
