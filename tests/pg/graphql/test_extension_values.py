"""Invalid values of extension types whose errors have only the SQLSTATE of internal errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create extension hstore;
create table thing (id int primary key, tags hstore, more hstore[]);
create type labelled as (tags hstore);
create function count_of(tags hstore) returns int language sql stable as 'select 1';
create function same(tags hstore) returns hstore language sql stable as 'select tags';
create function count_in(given labelled) returns int language sql stable as
    'select length((given).tags::text)';
create function broken(tags hstore) returns int language plpgsql stable as
    'begin raise sqlstate ''XX000'' using message = ''page 7 of hidden''; end';
create function _broken(thing) returns int language plpgsql stable as
    'begin raise sqlstate ''XX000'' using message = ''page 7 of hidden''; end';
insert into thing values (1, 'a=>1', null);
grant all on thing to anon;
"""


@pytest.fixture(scope="module", params=[True, False], ids=["prepared", "inlined"])
def api(request: pytest.FixtureRequest, server: Server, reactor: Any) -> Iterator[Service]:
    server.require("hstore")
    with serving(reactor, server.create_database(SCHEMA), db_prepared_statements=request.param) as running:
        yield running


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("query($v: Opaque) { t: thingCollection(filter: {tags: {eq: $v}}) { edges { cursor } } }", "t"),
        ("query($v: [Opaque!]) { t: thingCollection(filter: {more: {eq: $v}}) { edges { cursor } } }", "t"),
        ("query($v: Opaque!) { count_of(tags: $v) }", "count_of"),
        ("mutation($v: Opaque) { insertIntothingCollection(objects: {id: 2, tags: $v}) { __typename } }",
         "insertIntothingCollection"),
        ("mutation($v: Opaque) { u: updatethingCollection(set: {tags: $v}) { affectedCount } }", "u"),
    ],
)  # fmt: skip
async def test_invalid_value_is_a_client_error(api: Service, server: Server, query: str, field: str) -> None:
    """The extension raises internal errors. PostgreSQL 13 does not report that a parameter caused them."""
    has_cause = server.version >= 14
    for _ in range(2):
        response = await api.ask(query, {"v": "bad="})
        assert response.status == (200 if has_cause else 500)
        [error] = response.errors
        assert error.get("path") == ([field] if has_cause else None)
        assert ("unexpected end of string" in error["message"].lower()) is has_cause
    assert "errors" not in (await api.ask(query, {"v": "b=>2"})).body
    api.database.execute("delete from thing where id = 2")


async def test_invalid_value_in_json_is_a_client_error(api: Service) -> None:
    query = """mutation($rows: [thingInsertInput!]!) {
        insertIntothingCollection(objects: $rows) { affectedCount } }"""
    response = await api.ask(query, {"rows": [{"id": 3, "tags": "c=>3"}, {"id": 4, "tags": "bad="}]})
    assert response.status == 200
    assert "unexpected end of string" in response.error.lower()
    assert response.errors[0]["path"] == ["insertIntothingCollection"]
    assert api.database.execute("select id from thing") == [(1,)]
    response = await api.ask("query($v: Opaque!) { count_in(given: $v) }", {"v": {"tags": "bad="}})
    assert response.status == 200
    assert "unexpected end of string" in response.error.lower()


@pytest.mark.parametrize(
    "query", ['{ broken(tags: "a=>1") }', "{ thingCollection { edges { node { broken } } } }"]
)
async def test_internal_errors_with_valid_values_are_only_logged(api: Service, query: str) -> None:
    response = await api.ask(query)
    assert response.status == 500
    assert "page 7" not in response.text


async def test_internal_error_of_a_valid_insert_is_only_logged(api: Service) -> None:
    query = """mutation($rows: [thingInsertInput!]!) {
        insertIntothingCollection(objects: $rows) { records { broken } } }"""
    response = await api.ask(query, {"rows": [{"id": 5, "tags": "c=>3"}, {"id": 6, "tags": "d=>4"}]})
    assert response.status == 500
    assert "page 7" not in response.text
    assert api.database.execute("select id from thing") == [(1,)]


async def test_rest_status_matches_postgrest(api: Service) -> None:
    """PostgREST returns status 500 for class XX, with the message."""
    response = await api.rest("GET", "thing?tags=eq.bad=")
    assert response.status == (500 if response.body["code"] == "XX000" else 400)
    assert "unexpected end of string" in response.body["message"].lower()


PAIRS = {"a": "1", 'q"\\ ü': 'x"=>\\ y', "none": None, "": ""}


async def test_hstore_is_an_object_in_both_apis(api: Service) -> None:
    insert = """mutation($tags: Opaque) { insertIntothingCollection(objects: [{id: 7, tags: $tags}]) {
        records { tags } } }"""
    for given, shown in ((PAIRS, PAIRS), ({}, {}), ("a=>1", {"a": "1"})):
        data = await api.data(insert, {"tags": given})
        assert data["insertIntothingCollection"]["records"] == [{"tags": shown}]
        rows = """mutation($rows: [thingInsertInput!]!) {
            insertIntothingCollection(objects: $rows) { records { tags } } }"""
        data = await api.data(rows, {"rows": [{"id": 8, "tags": given}, {"id": 9, "tags": None}]})
        assert data["insertIntothingCollection"]["records"] == [{"tags": shown}, {"tags": None}]
        found = (
            "query($tags: Opaque) { thingCollection(filter: {tags: {eq: $tags}}) { edges { node { id } } } }"
        )
        data = await api.data(found, {"tags": given})
        assert {7, 8} <= {edge["node"]["id"] for edge in data["thingCollection"]["edges"]}
        for method, target, body in (
            ("PATCH", "thing?id=eq.7", {"tags": given}),
            ("POST", "thing", {"id": 10, "tags": given}),
            ("POST", "thing", [{"id": 11, "tags": given}]),
        ):
            shown_too = {"prefer": "return=representation"}
            response = await api.rest(method, target, body, headers=shown_too)
            assert [row["tags"] for row in response.body] == [shown], response.text
        response = await api.rest(
            "PATCH", "thing?id=eq.7", {"tags": None}, headers={"prefer": "return=representation"}
        )
        assert response.body[0]["tags"] is None
        for called in ({"tags": given}, [{"tags": given}]):
            response = await api.rest("POST", "rpc/same", called)
            assert response.body == shown, response.text
        api.database.execute("delete from thing where id > 6")
    assert (await api.rest("POST", "rpc/same", {"tags": None})).body is None
