"""Documents over HTTP: operations, variables, fragments, directives, merging."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dataapi.database.message import Statement
from support.service import Service, nodes

SCHEMA = """
create table blog (id int primary key, name text not null, owner text, flag boolean);
create table post (id int primary key, blog_id int not null references blog, title text);
insert into blog values (1, 'A', 'x', true), (2, 'B', 'y', false), (3, 'C', 'x', null);
insert into post select n, 1 + n % 2, 'p' || n from generate_series(1, 5) n;
create table wide (id int primary key);
do $$ begin
    for n in 1..120 loop execute format('alter table wide add c%s int default %s', n, n); end loop;
end $$;
insert into wide (id) values (1), (2);
alter table wide add parent int default 1 references wide;
grant select on all tables in schema public to anon;
"""


async def test_all_root_fields_share_one_message(service: Service) -> None:
    response = await service.ask(
        """{ a: blogCollection { edges { node { name
                postCollection { edges { node { title blog { name } } } } } } }
            b: blogByPk(id: 2) { name } c: postCollection(last: 1) { edges { node { id } } }
            node(nodeId: "WyJwdWJsaWMiLCAiYmxvZyIsIDFd") { nodeId } heartbeat __typename }"""
    )
    assert len(response.messages) == 1
    assert len(response.statements) == 1
    assert list(response.data) == ["a", "b", "c", "node", "heartbeat", "__typename"]
    assert response.data["b"] == {"name": "B"}
    assert response.data["__typename"] == "Query"


async def test_typename_alone_needs_no_query(service: Service) -> None:
    response = await service.ask("query Ping { __typename again: __typename }")
    assert response.data == {"__typename": "Query", "again": "Query"}
    assert response.messages == ()


async def test_members_are_in_the_order_of_the_query(service: Service) -> None:
    query = """{ z: heartbeat blogByPk(id: 1) { owner ...f id nodeId again: name } a: __typename }
        fragment f on blog { __typename name }"""
    text = (await service.ask(query)).text
    order = ('"z"', '"blogByPk"', '"owner"', '"__typename"', '"name"', '"id"', '"nodeId"', '"again"', '"a"')
    positions = [text.index(name) for name in order]
    assert positions == sorted(positions)


async def test_typename_is_on_every_object(service: Service) -> None:
    data = await service.data(
        """{ __typename blogCollection(first: 1) { __typename pageInfo { __typename t: __typename }
            edges { __typename node { __typename postCollection(first: 1) { __typename edges { node {
                __typename blog { __typename } } } } } } } blogByPk(id: 1) { kind: __typename } }"""
    )
    connection = data["blogCollection"]
    assert (data["__typename"], connection["__typename"]) == ("Query", "blogConnection")
    assert connection["pageInfo"] == {"__typename": "PageInfo", "t": "PageInfo"}
    [edge] = connection["edges"]
    assert edge["__typename"] == "blogEdge"
    posts = edge["node"]["postCollection"]
    assert (edge["node"]["__typename"], posts["__typename"]) == ("blog", "postConnection")
    assert nodes(posts)[0] == {"__typename": "post", "blog": {"__typename": "blog"}}
    assert data["blogByPk"] == {"kind": "blog"}


async def test_aliases_of_a_field_can_have_different_arguments(service: Service) -> None:
    data = await service.data(
        """{ first: blogByPk(id: 1) { n: name m: name } second: blogByPk(id: 2) { name }
            blogCollection(first: 1) { edges { node {
                one: postCollection(first: 1) { edges { node { id } } }
                all: postCollection { edges { node { id } } } } } } }"""
    )
    assert data["first"] == {"n": "A", "m": "A"}
    [blog] = nodes(data["blogCollection"])
    assert [post["id"] for post in nodes(blog["one"])] == [2]
    assert [post["id"] for post in nodes(blog["all"])] == [2, 4]


async def test_fields_with_the_same_name_are_merged(service: Service) -> None:
    data = await service.data(
        """{ blogByPk(id: 1) { name } ...q blogCollection(first: 1) { edges { node { id } } }
            blogByPk(id: 1) { id name }
            blogCollection(first: 1) { edges { cursor node { name } } pageInfo { __typename } } }
        fragment q on Query { blogByPk(id: 1) { postCollection(first: 1) { edges { node { id } } } }
            blogByPk(id: 1) { postCollection(first: 1) { edges { node { title } } } } }"""
    )
    assert data["blogByPk"] == {
        "name": "A",
        "postCollection": {"edges": [{"node": {"id": 2, "title": "p2"}}]},
        "id": 1,
    }
    assert data["blogCollection"] == {
        "edges": [{"node": {"id": 1, "name": "A"}, "cursor": "WzFd"}],
        "pageInfo": {"__typename": "PageInfo"},
    }


@pytest.mark.parametrize(
    "query",
    [
        "{ x: blogByPk(id: 1) { id } x: blogByPk(id: 2) { id } }",
        "{ blogByPk(id: 1) { x: id x: name } }",
        "query($a: Int!, $b: Int!) { x: blogByPk(id: $a) { id } x: blogByPk(id: $b) { id } }",
    ],
)
async def test_fields_that_cannot_merge_are_rejected(service: Service, query: str) -> None:
    response = await service.ask(query, {"a": 1, "b": 1} if "$" in query else None)
    assert response.error.startswith("Fields 'x' conflict because")
    assert response.messages == ()


async def test_fragments_nest_and_repeat(service: Service) -> None:
    data = await service.data(
        """{ blogByPk(id: 2) { ...a ... { owner } ... on blog { flag } ...a }
            other: blogByPk(id: 1) { ...b } }
        fragment a on blog { ...b postCollection { ...c } }
        fragment b on blog { id }
        fragment c on postConnection { edges { ...d } }
        fragment d on postEdge { node { blog { ...b } } }"""
    )
    assert data["blogByPk"] == {
        "id": 2,
        "postCollection": {"edges": [{"node": {"blog": {"id": 2}}}] * 3},
        "owner": "y",
        "flag": False,
    }
    assert data["other"] == {"id": 1}


DIRECTIVES = """query($yes: Boolean!, $no: Boolean! = false) {
    blogByPk(id: 1) @include(if: $yes) { id @skip(if: $yes) name @skip(if: $no) @include(if: $yes)
        ...f @include(if: $no) ... on blog @skip(if: $no) { flag }
        postCollection(first: 1) @include(if: true) {
            edges @skip(if: false) { node { id @include(if: $yes) title } } } }
    __typename @include(if: $no) }
    fragment f on blog { owner }"""


async def test_include_and_skip_follow_their_variables(service: Service) -> None:
    for _ in range(2):
        assert (await service.data(DIRECTIVES, {"yes": True})) == {
            "blogByPk": {
                "name": "A",
                "flag": True,
                "postCollection": {"edges": [{"node": {"id": 2, "title": "p2"}}]},
            }
        }
        assert (await service.data(DIRECTIVES, {"yes": False})) == {}
        assert (await service.data(DIRECTIVES, {"yes": False, "no": True})) == {"__typename": "Query"}
        assert (await service.data(DIRECTIVES, {"yes": True, "no": True})) == {
            "blogByPk": {"owner": "x", "postCollection": {"edges": [{"node": {"id": 2, "title": "p2"}}]}},
            "__typename": "Query",
        }


async def test_row_without_fields_is_an_empty_object(service: Service) -> None:
    data = await service.data(
        "query($no: Boolean!) { blogByPk(id: 1) { id @include(if: $no) } }", {"no": False}
    )
    assert data == {"blogByPk": {}}
    data = await service.data(
        "query($no: Boolean!) { blogCollection(first: 2) { edges { node { id @include(if: $no) } } } }",
        {"no": False},
    )
    assert data == {"blogCollection": {"edges": [{"node": {}}, {"node": {}}]}}


async def test_null_variable_of_a_directive_is_rejected(service: Service) -> None:
    query = "query($x: Boolean = true) { __typename @include(if: $x) }"
    assert (await service.data(query)) == {"__typename": "Query"}
    response = await service.ask(query, {"x": None}, check=False)
    assert response.error == "Variable '$x' must not be null where a value of type 'Boolean!' is expected."
    assert response.errors[0]["locations"] == [{"line": 1, "column": 53}]
    assert response.body["data"] is None


async def test_variables_have_defaults(service: Service) -> None:
    query = """query($first: Int = 2, $filter: blogFilter = {owner: {eq: "x"}}, $name: String = "C") {
        a: blogCollection(first: $first, filter: $filter) { edges { node { id } } }
        b: blogCollection(filter: {name: {eq: $name}}) { edges { node { id } } } }"""

    async def ids(variables: dict[str, Any] | None) -> tuple[list[int], list[int]]:
        data = await service.data(query, variables)
        return [row["id"] for row in nodes(data["a"])], [row["id"] for row in nodes(data["b"])]

    assert await ids(None) == ([1, 3], [3])
    assert await ids({"first": 1}) == ([1], [3])
    assert await ids({"first": None, "filter": None}) == ([1, 2, 3], [3])
    assert await ids({"filter": {}, "name": "A"}) == ([1, 2], [1])
    assert await ids({"name": None}) == ([1, 3], [])


async def test_absent_variable_omits_its_argument(service: Service) -> None:
    query = """query($f: StringFilter, $v: String) {
        blogCollection(filter: {name: {eq: $v}, owner: $f}) { edges { node { id } } } }"""
    assert nodes((await service.data(query))["blogCollection"]) == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert nodes((await service.data(query, {"v": None}))["blogCollection"]) == []
    assert nodes((await service.data(query, {"f": {"eq": "x"}}))["blogCollection"]) == [{"id": 1}, {"id": 3}]
    assert nodes((await service.data(query, {"f": None, "v": "B"}))["blogCollection"]) == [{"id": 2}]


async def test_one_document_serves_every_shape_of_its_filter(service: Service) -> None:
    query = "query($f: blogFilter) { blogCollection(filter: $f) { edges { node { id } } } }"
    shapes: dict[str, tuple[dict[str, Any] | None, list[int]]] = {
        "none": (None, [1, 2, 3]),
        "equal": ({"name": {"eq": "B"}}, [2]),
        "or": ({"or": [{"name": {"eq": "A"}}, {"id": {"gt": 2}}]}, [1, 3]),
        "order of members": ({"id": {"gt": 1}, "owner": {"eq": "x"}}, [3]),
        "null": ({"flag": {"is": "NULL"}}, [3]),
        "not null": ({"flag": {"is": "NOT_NULL"}}, [1, 2]),
        "bool": ({"flag": {"eq": True}}, [1]),
        "list": ({"id": {"in": [1, 3]}}, [1, 3]),
        "null operand": ({"id": {"eq": None}}, []),
    }
    statements: dict[str, Statement] = {}
    for _ in range(2):
        for name, (value, expected) in shapes.items():
            response = await service.ask(query, {"f": value})
            assert [row["id"] for row in nodes(response.data["blogCollection"])] == expected, name
            bound = response.messages[0].statements[0]
            assert statements.setdefault(name, bound.statement) is bound.statement, "compiled once"
    same = (await service.ask(query, {"f": {"name": {"eq": "C"}}})).messages[0].statements[0]
    assert same.statement is statements["equal"]
    assert same.values[0] == "C"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "Variable '$id' has invalid value: Expected a value of non-null type"),
        ({"id": None}, "Variable '$id'"),
        ({"id": "1"}, "Variable '$id'"),
        ({"id": 1.5}, "Variable '$id'"),
        ({"id": 2**40}, "Variable '$id'"),
        ({"id": True}, "Variable '$id'"),
        ({"id": 1, "f": {"name": {"eq": 1}}}, "Variable '$f'"),
        ({"id": 1, "f": {"unknown": 1}}, "Variable '$f'"),
        ({"id": 1, "f": [1]}, "Variable '$f'"),
        (
            {"id": 1, "f": {"and": [{"or": [{"id": {"eq": "x"}}]}]}},
            "Variable '$f' has invalid value at .and[0].or[0].id.eq",
        ),
    ],
)
async def test_variables_of_a_wrong_type_are_rejected(
    service: Service, variables: dict[str, Any], message: str
) -> None:
    query = """query($id: Int!, $f: blogFilter) {
        blogByPk(id: $id) { id } blogCollection(filter: $f) { __typename } }"""
    response = await service.ask(query, variables)
    assert message in response.error.replace('"', "'")
    assert response.messages == ()
    assert "data" not in response.body


async def test_variables_that_the_operation_does_not_know_are_ignored(service: Service) -> None:
    assert (await service.data("query($id: Int!) { blogByPk(id: $id) { id } }", {"id": 1, "more": [1]}))[
        "blogByPk"
    ]


async def test_variables_may_be_anywhere_in_a_list(service: Service) -> None:
    query = """query($a: Int!, $b: [Int!]) {
        a: blogCollection(filter: {id: {in: [1, $a]}}) { edges { node { id } } }
        b: blogCollection(filter: {id: {in: $b}}) { edges { node { id } } } }"""
    data = await service.data(query, {"a": 3, "b": 2})
    assert [row["id"] for row in nodes(data["a"])] == [1, 3]
    assert [row["id"] for row in nodes(data["b"])] == [2]
    query = """query($f: blogFilter!) {
        blogCollection(filter: {or: [{id: {eq: 1}}, $f]}) { edges { node { id } } } }"""
    data = await service.data(query, {"f": {"id": {"eq": 2}}})
    assert [row["id"] for row in nodes(data["blogCollection"])] == [1, 2]


SEVERAL = "query one { blogByPk(id: 1) { id } } query two($x: Int!) { blogByPk(id: $x) { name } }"


async def test_operation_name_chooses(service: Service) -> None:
    assert (await service.data(SEVERAL, operation="one")) == {"blogByPk": {"id": 1}}
    assert (await service.data(SEVERAL, {"x": 2}, operation="two")) == {"blogByPk": {"name": "B"}}
    assert (await service.data("query one { __typename }", operation="one")) == {"__typename": "Query"}


@pytest.mark.parametrize(
    ("query", "operation", "message"),
    [
        (SEVERAL, None, "Must provide operation name if query contains multiple operations."),
        (SEVERAL, "three", "Operation not found"),
        ("{ __typename }", "three", "Operation not found"),
        ("query a { __typename } query a { __typename }", "a", "There can be only one operation named 'a'."),
        (
            "{ __typename } query a { __typename }",
            "a",
            "This anonymous operation must be the only defined operation.",
        ),
        ("fragment f on blog { id }", None, "No operation found"),
        ("subscription { blogCollection { __typename } }", None, "subscription"),
        ("mutation { x }", None, "mutation"),
        ("type A { a: Int }", None, "not executable"),
        ("{ ...f } fragment f on Query { ...f }", None, "Cannot spread fragment 'f' within itself."),
        (
            "{ ...f } fragment f on Query { ...g } fragment g on Query { ...f }",
            None,
            "Cannot spread fragment 'f'",
        ),
        ("{ ...missing }", None, "Unknown fragment 'missing'."),
        ("{ ... on blog { id } }", None, "can never be of type 'blog'"),
        ("{ blogByPk(id: 1) { ... on post { id } } }", None, "can never be of type 'post'"),
        ("{ blogByPk(id: 1) }", None, "must have a selection of subfields"),
        ("{ heartbeat { a } }", None, "must not have a selection"),
        ("{ __typename @unknown }", None, "Unknown directive '@unknown'."),
        ("{ __typename @include }", None, "of type 'Boolean!' is required"),
    ],
)
async def test_invalid_documents_are_rejected(
    service: Service, query: str, operation: str | None, message: str
) -> None:
    response = await service.ask(query, operation=operation)
    assert any(message in error["message"] for error in response.errors), response.errors
    assert "data" not in response.body
    assert response.messages == ()


async def test_row_of_a_hundred_columns_is_one_object(service: Service) -> None:
    """PostgreSQL functions accept at most 100 arguments."""
    names = [f"c{number}" for number in range(1, 121)]
    fields = f"{' '.join(names)} nodeId"
    query = (
        f"{{ wideCollection {{ edges {{ node {{ {fields} wide {{ {fields} wide {{ {fields} }} }} }} }} }} }}"
    )
    rows = nodes((await service.data(query))["wideCollection"])
    assert [list(row)[:120] for row in rows] == [names, names]
    assert rows[1]["wide"]["wide"]["c120"] == 120
    assert len((await service.ask(query)).statements[0]) < 100_000


async def test_requests_work_with_and_without_prepared_statements(either: Service) -> None:
    query = "query($v: String) { blogCollection(filter: {name: {neq: $v}}) { edges { node { name } } } }"
    for value in ("A", "it's", "%s", "$1", "\\", '"', "😀"):
        response = await either.ask(query, {"v": value})
        assert len(response.messages) == 1
        expected = [{"name": other} for other in "ABC" if other != value]
        assert nodes(response.data["blogCollection"]) == expected


async def test_evicted_documents_are_compiled_again(service: Service) -> None:
    query = "query($f: blogFilter) { blogCollection(filter: $f) { edges { node { id } } } }"
    for size in (*range(1, 80), 1, 2):
        value = {"or": [{"id": {"eq": number}} for number in range(size)]}
        data = await service.data(query, {"f": json.loads(json.dumps(value))})
        assert [row["id"] for row in nodes(data["blogCollection"])] == [n for n in (1, 2, 3) if n < size]
