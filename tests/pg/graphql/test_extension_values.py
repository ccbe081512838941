"""Values that the input function of an extension's type refuses without a code of its own."""

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
async def test_a_bad_value_is_the_clients_mistake(
    api: Service, server: Server, query: str, field: str
) -> None:
    """PostgreSQL gives it the code of internal errors where the extension gives none (hstore, PostGIS).

    PostgreSQL 13 does not report that a value was the cause.
    """
    reported = server.version >= 14
    for _ in range(2):
        answer = await api.ask(query, {"v": "bad="})
        assert answer.status == (200 if reported else 500)
        [error] = answer.errors
        assert error.get("path") == ([field] if reported else None)
        assert ("unexpected end of string" in error["message"].lower()) is reported
    assert "errors" not in (await api.ask(query, {"v": "b=>2"})).body
    api.database.execute("delete from thing where id = 2")


async def test_a_bad_value_in_json_is_the_clients_mistake_too(api: Service) -> None:
    query = """mutation($rows: [thingInsertInput!]!) {
        insertIntothingCollection(objects: $rows) { affectedCount } }"""
    answer = await api.ask(query, {"rows": [{"id": 3, "tags": "c=>3"}, {"id": 4, "tags": "bad="}]})
    assert answer.status == 200
    assert "unexpected end of string" in answer.error.lower()
    assert answer.errors[0]["path"] == ["insertIntothingCollection"]
    assert api.database.execute("select id from thing") == [(1,)]
    answer = await api.ask("query($v: Opaque!) { count_in(given: $v) }", {"v": {"tags": "bad="}})
    assert answer.status == 200
    assert "unexpected end of string" in answer.error.lower()


@pytest.mark.parametrize(
    "query", ['{ broken(tags: "a=>1") }', "{ thingCollection { edges { node { broken } } } }"]
)
async def test_internal_errors_beside_good_values_stay_in_the_log(api: Service, query: str) -> None:
    answer = await api.ask(query)
    assert answer.status == 500
    assert "page 7" not in answer.text


async def test_an_internal_error_of_an_insert_of_good_rows_stays_in_the_log(api: Service) -> None:
    query = """mutation($rows: [thingInsertInput!]!) {
        insertIntothingCollection(objects: $rows) { records { broken } } }"""
    answer = await api.ask(query, {"rows": [{"id": 5, "tags": "c=>3"}, {"id": 6, "tags": "d=>4"}]})
    assert answer.status == 500
    assert "page 7" not in answer.text
    assert api.database.execute("select id from thing") == [(1,)]


async def test_rest_answers_as_postgrest(api: Service) -> None:
    """Its status for class XX is 500, with the message."""
    answer = await api.rest("GET", "thing?tags=eq.bad=")
    assert answer.status == (500 if answer.body["code"] == "XX000" else 400)
    assert "unexpected end of string" in answer.body["message"].lower()


PAIRS = {"a": "1", 'q"\\ ü': 'x"=>\\ y', "none": None, "": ""}


async def test_pairs_are_taken_as_they_are_shown(api: Service) -> None:
    """By both APIs: an ``hstore`` is shown as an object, and its own text is taken still."""
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
            answer = await api.rest(method, target, body, headers=shown_too)
            assert [row["tags"] for row in answer.body] == [shown], answer.text
        answer = await api.rest(
            "PATCH", "thing?id=eq.7", {"tags": None}, headers={"prefer": "return=representation"}
        )
        assert answer.body[0]["tags"] is None
        for called in ({"tags": given}, [{"tags": given}]):
            answer = await api.rest("POST", "rpc/same", called)
            assert answer.body == shown, answer.text
        api.database.execute("delete from thing where id > 6")
    assert (await api.rest("POST", "rpc/same", {"tags": None})).body is None
