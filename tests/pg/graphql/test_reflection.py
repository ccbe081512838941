"""Exposure of database objects in GraphQL (docs/reference/graphql.md, Exposure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from graphql import print_type
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server


SHOP = """
create table account (
    id int primary key, email varchar(50) not null, account_holder text, "1bad" int, "b c" int
);
create table no_key (id int, email text);
create table "bad-name" (id int primary key);
create table __private (id int primary key);
create view plain_view as select * from account;
create view account_view as select id, email from account;
comment on view account_view is 'Seen @graphql({"primary_key_columns": ["id"]}) by all';
create materialized view account_copy as select id, email from account;
comment on materialized view account_copy is '@graphql({"primary_key_columns": ["id"], "name": "Copy"})';
create table parted (id int, region text, primary key (id, region)) partition by list (region);
create table parted_eu partition of parted for values in ('eu');
create table parted_us partition of parted for values in ('us');
insert into account values (1, 'a@example.org', 'Ann', 1, 2), (2, 'b@example.org', null, 1, 2);
refresh materialized view account_copy;
insert into parted values (1, 'eu'), (2, 'us');
grant select on all tables in schema public to anon;
"""


@pytest.fixture(scope="module")
def shop(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SHOP)) as service:
        yield service


def test_tables_with_a_key_are_exposed_under_their_own_names(shop: Service) -> None:
    assert shop.collections() == {
        *("accountCollection", "accountByPk", "account_viewCollection", "account_viewByPk"),
        *("copyCollection", "copyByPk", "partedCollection", "partedByPk"),
        *("parted_euCollection", "parted_euByPk", "parted_usCollection", "parted_usByPk"),
    }


def test_type_has_a_field_per_column(shop: Service) -> None:
    assert print_type(shop.schema().object_type("account")) == (
        "type account implements Node {\n"
        '  """Identifies the row across all tables."""\n'
        "  nodeId: ID!\n  id: Int!\n  email: String!\n  account_holder: String\n}"
    )


def test_table_has_types_for_connections_inputs_and_responses(shop: Service) -> None:
    assert shop.fields("accountConnection") == {"edges": "[accountEdge!]!", "pageInfo": "PageInfo!"}
    assert shop.fields("accountEdge") == {"cursor": "String!", "node": "account"}
    assert shop.fields("PageInfo") == {
        "startCursor": "String",
        "endCursor": "String",
        "hasNextPage": "Boolean!",
        "hasPreviousPage": "Boolean!",
    }
    assert shop.fields("accountFilter") == {
        "nodeId": "IDFilter",
        "id": "IntFilter",
        "email": "StringFilter",
        "account_holder": "StringFilter",
        "and": "[accountFilter!]",
        "or": "[accountFilter!]",
        "not": "accountFilter",
    }
    assert shop.fields("accountOrderBy") == dict.fromkeys(
        ("id", "email", "account_holder"), "OrderByDirection"
    )
    query = shop.entries()
    collection = query["accountCollection"]
    assert str(collection.type) == "accountConnection!"
    assert {name: str(argument.type) for name, argument in collection.args.items()} == {
        "first": "Int",
        "last": "Int",
        "before": "Cursor",
        "after": "Cursor",
        "offset": "Int",
        "filter": "accountFilter",
        "orderBy": "[accountOrderBy!]",
    }
    assert {name: str(argument.type) for name, argument in query["accountByPk"].args.items()} == {
        "id": "Int!"
    }
    assert str(query["accountByPk"].type) == "account"
    assert str(query["node"].type) == "Node"
    assert {name: str(argument.type) for name, argument in query["node"].args.items()} == {"nodeId": "ID!"}
    assert list(shop.schema().object_type("OrderByDirection").values) == [
        *("AscNullsFirst", "AscNullsLast", "DescNullsFirst", "DescNullsLast")
    ]
    assert list(shop.schema().object_type("FilterIs").values) == ["NULL", "NOT_NULL"]


async def test_views_materialized_views_and_partitions_can_be_queried(shop: Service) -> None:
    assert await shop.rows("account_view", "id email", "first: 1") == [{"id": 1, "email": "a@example.org"}]
    assert await shop.ids("copy", "orderBy: {id: DescNullsLast}") == [2, 1]
    assert await shop.rows("parted", "id region") == [{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}]
    assert await shop.rows("parted_us", "id region") == [{"id": 2, "region": "us"}]
    data = await shop.data("{ copyByPk(id: 2) { nodeId email } }")
    query = "query($i: ID!) { node(nodeId: $i) { ... on Copy { id } } }"
    found = await shop.data(query, {"i": data["copyByPk"]["nodeId"]})
    assert found["node"] == {"id": 2}


async def test_foreign_tables_can_be_queried(server: Server, reactor: Any) -> None:
    server.require("postgres_fdw")
    database = server.create_database(
        f"""
        create extension postgres_fdw;
        create table here (id int primary key, name text);
        insert into here values (1, 'over there');
        create server loop foreign data wrapper postgres_fdw
            options (host '127.0.0.1', port '{server.port}', dbname 'postgres');
        create user mapping for public server loop options (user 'postgres', password_required 'false');
        create foreign table there (id int, name text) server loop options (table_name 'here');
        comment on foreign table there is '@graphql({{"primary_key_columns": ["id"]}})';
        grant select on here, there to anon;
        """
    )
    database.execute(f"alter server loop options (set dbname '{database.name}')")
    service = Service(reactor, database)
    await service.start()
    try:
        assert await service.rows("there", "id name", 'filter: {name: {like: "over%"}}') == [
            {"id": 1, "name": "over there"}
        ]
        assert (await service.data("{ thereByPk(id: 1) { name } }"))["thereByPk"] == {"name": "over there"}
    finally:
        await service.stop()
        server.drop_database(database)


SCHOOL = """
create schema people;
comment on schema public is 'All here: @graphql({"inflect_names": true, "max_rows": 3})';
create type public.class_kind as enum ('lecture', 'lab-work', 'exam');
comment on type public.class_kind is
    '@graphql({"name": "Kind", "description": "What happens", "mappings": {"lab-work": "LAB_WORK"}})';
create type public.odd_kind as enum ('a b', 'c');
create type public.empty_kind as enum ();
create type people.mood as enum ('good', 'bad');
create table people.person (person_id int primary key, full_name text not null, mood people.mood);
create table course_class (
    class_id int primary key, "Some_Title" text not null, teacher_id int not null, odd public.odd_kind,
    kind public.class_kind not null default 'lecture', kinds public.class_kind[], empty public.empty_kind,
    constraint class_teacher foreign key (teacher_id) references people.person
);
comment on table course_class is
    'x @graphql({"name": "Lesson", "description": "A lesson", "max_rows": 2,
        "totalCount": {"enabled": true}})';
comment on column course_class."Some_Title" is '@graphql({"name": "heading", "description": "Its heading"})';
comment on constraint class_teacher on course_class is
    '@graphql({"foreign_name": "teacher", "local_name": "lessons"})';
create table enrolled_person (
    person_id int references people.person, class_id int references course_class, sort_order int,
    primary key (person_id, class_id)
);
create function people._greeting(people.person) returns text language sql stable as
    'select ''Hello '' || $1.full_name';
comment on function people._greeting is '@graphql({"name": "salute", "description": "A greeting"})';
insert into people.person select n, 'P' || n, 'good' from generate_series(1, 5) n;
insert into course_class (class_id, "Some_Title", teacher_id, kind, kinds)
    select n, 'T' || n, 1, 'lab-work', '{exam,lab-work}' from generate_series(1, 5) n;
insert into enrolled_person select n, 1, n from generate_series(1, 5) n;
grant usage on schema people to anon;
grant select on all tables in schema public, people to anon;
"""


@pytest.fixture(scope="module")
def school(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHOOL), db_schemas=("public", "people")) as service:
        yield service


def test_inflection_is_configured_per_schema(school: Service) -> None:
    assert school.collections() == {
        *("lessonCollection", "lessonByPk", "enrolledPersonCollection", "enrolledPersonByPk"),
        *("personCollection", "personByPk"),
    }
    assert school.fields("EnrolledPerson") == {
        "nodeId": "ID!",
        "personId": "Int!",
        "classId": "Int!",
        "sortOrder": "Int",
        "person": "person",
        "class": "Lesson",
    }
    assert set(school.fields("person")) == {
        *("nodeId", "person_id", "full_name", "mood", "salute", "lessons", "enrolledPersonCollection")
    }


def test_names_and_descriptions_are_overridden_one_by_one(school: Service) -> None:
    schema = school.schema()
    lesson = schema.object_type("Lesson")
    assert lesson.description == "A lesson"
    assert lesson.fields["heading"].description == "Its heading"
    assert str(lesson.fields["teacher"].type) == "person"
    assert lesson.fields["kind"].description is None
    assert schema.object_type("person").fields["salute"].description == "A greeting"
    assert str(schema.object_type("person").fields["lessons"].type) == "LessonConnection!"
    kind = schema.object_type("Kind")
    assert kind.description == "What happens"
    assert list(kind.values) == ["lecture", "LAB_WORK", "exam"]
    for name in ("Lesson", "LessonConnection", "LessonEdge", "LessonFilter", "LessonOrderBy"):
        assert name in schema.schema.type_map
    # A comment without a directive is not a description.
    assert schema.object_type("EnrolledPerson").description is None


async def test_enum_values_travel_under_their_names(school: Service) -> None:
    assert school.fields("Lesson")["kind"] == "Kind!"
    assert school.fields("Lesson")["kinds"] == "[Kind]"
    assert school.fields("Lesson")["odd"] == school.fields("Lesson")["empty"] == "Opaque"
    assert "OddKind" not in school.schema().schema.type_map
    school.database.execute("update course_class set odd = 'a b' where class_id = 1")
    rows = await school.rows("lesson", "kind kinds odd", "first: 1, filter: {kind: {eq: LAB_WORK}}")
    assert rows == [{"kind": "LAB_WORK", "kinds": ["exam", "LAB_WORK"], "odd": "a b"}]
    query = """query($k: [Kind!], $o: Opaque) {
        lessonCollection(filter: {kind: {in: $k}, odd: {eq: $o}}) { totalCount } }"""
    assert (await school.data(query, {"k": ["LAB_WORK"], "o": "a b"}))["lessonCollection"] == {
        "totalCount": 1
    }
    response = await school.ask(query, {"k": ["lab-work"]})
    assert "does not exist in 'Kind' enum" in response.error
    response = await school.ask(query, {"o": "c d"})
    assert response.errors[0]["extensions"]["code"] == "22P02"


async def test_max_rows_is_the_tables_then_the_schemas_then_thirty(school: Service) -> None:
    query = """{ lessonCollection { edges { cursor } } enrolledPersonCollection { edges { cursor } }
        personCollection { edges { cursor } } }"""
    data = await school.data(query)
    assert [len(connection["edges"]) for connection in data.values()] == [2, 3, 5]


async def test_renamed_fields_can_be_queried(school: Service) -> None:
    nested = 'lessons(first: 1, filter: {heading: {eq: "T2"}}) { edges { node { classId } } }'
    [row] = await school.rows(
        "lesson",
        f"heading teacher {{ full_name salute {nested} }}",
        "first: 1, orderBy: {heading: DescNullsLast}",
    )
    assert row == {
        "heading": "T5",
        "teacher": {
            "full_name": "P1",
            "salute": "Hello P1",
            "lessons": {"edges": [{"node": {"classId": 2}}]},
        },
    }
