"""Computed fields and relationships from functions of a row (docs/reference/graphql.md, Types)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from graphql import validate_schema
from support.oracle import eager
from support.service import Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create type mood as enum ('sad', 'so so');
comment on type mood is '@graphql({"mappings": {"so so": "SO_SO"}})';
create table person (id int primary key, first text, last text, boss int);
comment on table person is '@graphql({"totalCount": {"enabled": true}, "aggregate": {"enabled": true}})';
create table post (id int primary key, person_id int, title text, views bigint);
comment on table post is '@graphql({"totalCount": {"enabled": true}, "aggregate": {"enabled": true}})';
create view person_list as select id, first from person;
comment on view person_list is '@graphql({"primary_key_columns": ["id"]})';
create table keyless (id int);
insert into person values (1, 'Ann', 'Bo', null), (2, 'Cy', null, 1);
insert into post select n, 1 + n % 2, 'p' || n, n * 10000000000 from generate_series(1, 6) n;

create function _full_name(rec person) returns text immutable language sql as
    'select rec.first || '' '' || rec.last';
create function initials(person) returns varchar(3) stable language plpgsql as
    'begin return left($1.first, 1) || left($1.last, 1); end';
create function _big(person) returns bigint stable language sql as 'select 9007199254740993';
create function _exact(person) returns numeric stable language sql as 'select 1.10';
create function _mood(person) returns mood stable language sql as 'select ''so so''::mood';
create function _moods(person) returns mood[] stable language sql as
    'select array[''sad'', ''so so'']::mood[]';
create function _ids(person) returns bigint[] stable language sql as 'select array[1, 2]';
create function _doc(person) returns jsonb stable language sql as 'select jsonb_build_object(''id'', $1.id)';
create function _nothing(person) returns void language sql as '';
create function _pair(person, int) returns int stable language sql as 'select $2';
create function _rec(person) returns record stable language sql as 'select 1, 2';
create function _of_list(person_list) returns text stable language sql as
    'select ''list '' || $1.first';
create function _secret(person) returns text stable language sql as 'select ''hush''';
revoke execute on function _secret from public;

create function chief(person) returns person stable language sql as
    'select * from person p where p.id = $1.boss';
create function chief_set(person) returns setof person stable rows 1 language sql as
    'select * from person p where p.id >= coalesce($1.boss, 99) order by id';
create function posts(person) returns setof post stable language sql as
    'select * from post where person_id = $1.id';
create function author(post) returns setof person stable rows 1 language sql as
    'select * from person p where p.id = $1.person_id';
create function untold(person) returns setof keyless stable language sql as 'select * from keyless';
grant select on all tables in schema public to anon;
do $$ begin create role c_columns nologin; exception when duplicate_object then end $$;
grant c_columns to authenticator;
grant select (id, first) on person to c_columns;
grant select on post to c_columns;
"""


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA)) as service:
        yield service
    server.admin.execute("drop owned by c_columns")


def test_function_of_a_row_is_a_field(api: Service) -> None:
    found = api.schema().object_type("person").fields
    kinds = {name: str(field.type) for name, field in found.items()}
    assert kinds == {
        "nodeId": "ID!",
        "id": "Int!",
        "first": "String",
        "last": "String",
        "boss": "Int",
        "full_name": "String",
        "initials": "String",
        "big": "BigInt",
        "exact": "BigFloat",
        "mood": "mood",
        "moods": "[mood]",
        "ids": "[BigInt]",
        "doc": "JSON",
        "chief": "person",
        "chief_set": "person",
        "posts": "postConnection!",
    }
    assert set(found["posts"].args) == {"first", "last", "before", "after", "offset", "filter", "orderBy"}
    assert validate_schema(eager(api.schema())) == []


async def test_computed_values_are_serialized_by_type(api: Service) -> None:
    fields = "full_name initials big exact mood moods ids doc"
    ann, cy = await api.rows("person", fields)
    assert ann == {
        "full_name": "Ann Bo",
        "initials": "AB",
        "big": "9007199254740993",
        "exact": "1.10",
        "mood": "SO_SO",
        "moods": ["sad", "SO_SO"],
        "ids": ["1", "2"],
        "doc": '{"id": 1}',
    }
    assert (cy["full_name"], cy["initials"]) == (None, None)
    assert await api.rows("person_list", "of_list", "first: 1") == [{"of_list": "list Ann"}]
    data = await api.data("{ personByPk(id: 1) { n: full_name } }")
    assert data["personByPk"] == {"n": "Ann Bo"}


async def test_function_that_returns_one_row_is_an_object(api: Service) -> None:
    ann, cy = await api.rows("person", "chief { id chief { id } full_name } chief_set { id }")
    assert ann == {"chief": None, "chief_set": None}
    assert cy == {"chief": {"id": 1, "chief": None, "full_name": "Ann Bo"}, "chief_set": {"id": 1}}


async def test_function_that_returns_rows_is_a_collection(api: Service) -> None:
    response = await api.ask(
        """{ personCollection { edges { node { id
            posts(first: 2, filter: {id: {gt: 1}}, orderBy: [{title: DescNullsLast}]) {
                totalCount aggregate { count sum { views } } pageInfo { hasNextPage endCursor }
                edges { cursor node { id
                    author { id posts(last: 1) { edges { node { id } } } } } } } } } } }"""
    )
    assert len(response.messages) == 1
    ann, cy = nodes(response.data["personCollection"])
    assert ann["posts"]["totalCount"] == 3
    assert ann["posts"]["aggregate"] == {"count": 3, "sum": {"views": "120000000000"}}
    assert [post["id"] for post in nodes(ann["posts"])] == [6, 4]
    assert ann["posts"]["pageInfo"]["hasNextPage"] is True
    assert nodes(ann["posts"])[0]["author"] == {"id": 1, "posts": {"edges": [{"node": {"id": 6}}]}}
    assert [post["id"] for post in nodes(cy["posts"])] == [5, 3]
    after = ann["posts"]["pageInfo"]["endCursor"]
    data = await api.data(
        f"""{{ personByPk(id: 1) {{ posts(after: "{after}", orderBy: [{{title: DescNullsLast}}]) {{
            edges {{ node {{ id }} }} pageInfo {{ hasPreviousPage }} }} }} }}"""
    )
    assert nodes(data["personByPk"]["posts"]) == [{"id": 2}]
    assert data["personByPk"]["posts"]["pageInfo"] == {"hasPreviousPage": True}


async def test_partly_readable_rows_have_no_computed_fields(api: Service) -> None:
    """PostgreSQL passes a whole row to a function only if the role may read every column."""
    found = set(api.schema("c_columns").object_type("person").fields)
    assert found == {"nodeId", "id", "first"}
    rows = await api.rows("person", "id first", role="c_columns")
    assert rows == [{"id": 1, "first": "Ann"}, {"id": 2, "first": "Cy"}]


async def test_computed_fields_cannot_be_filtered_or_ordered(api: Service) -> None:
    for name in ("personFilter", "personOrderBy"):
        assert "full_name" not in api.schema().object_type(name).fields
