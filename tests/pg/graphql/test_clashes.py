"""Name clashes between GraphQL fields: the field that gets the name, and the reported problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.service.project import ProjectPart
from dataapi.settings import Project
from support.service import Service, nodes, serving
from twisted.logger import globalLogPublisher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server
    from twisted.logger import LogEvent

SCHEMA = """
comment on schema public is '@graphql({"inflect_names": true})';
create table account (_id int not null, id int primary key, name text);
create table blog (
    id int primary key, count int, owner text, owner_id int references account, editor int,
    unique (count)
);
alter table blog add constraint written_by foreign key (editor) references account;
comment on table blog is '@graphql({"aggregate": {"enabled": true}, "relationFilters": {"enabled": true},
    "relationOrder": {"enabled": true}, "nestedInserts": {"enabled": true}})';
create function _count(blog) returns int language sql stable as 'select 1000 + $1.count';
create function "blogCollection"() returns int language sql stable as 'select 42';
insert into account values (-1, 1, 'Ann'), (-2, 2, 'Bob');
insert into blog values (1, 10, 'nobody', 1, 2), (2, 20, 'somebody', 2, 1);
grant all on all tables in schema public to anon;
"""


@pytest.fixture(scope="module")
def clashing(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA)) as running:
        yield running


async def test_clashing_fields_get_names_of_their_own(clashing: Service) -> None:
    rows = await clashing.rows("blog", "count count_2 owner { name } owner_2 account { name }")
    assert rows == [
        {
            "count": 10,
            "count_2": 1010,
            "owner": {"name": "Ann"},
            "owner_2": "nobody",
            "account": {"name": "Bob"},
        },
        {
            "count": 20,
            "count_2": 1020,
            "owner": {"name": "Bob"},
            "owner_2": "somebody",
            "account": {"name": "Ann"},
        },
    ]
    (ann, _) = nodes(
        (
            await clashing.data(
                "{ accountCollection { edges { node { id _id blogCollection { edges { node { id } } }"
                " blogCollectionByOwnerId { edges { node { id } } } } } } }"
            )
        )["accountCollection"]
    )
    assert (ann["id"], ann["_id"]) == (1, -1)
    assert nodes(ann["blogCollection"]) == [{"id": 2}], "the relationship of the foreign key written_by"
    assert nodes(ann["blogCollectionByOwnerId"]) == [{"id": 1}]


async def test_columns_keep_their_names_in_filters_orders_and_aggregates(clashing: Service) -> None:
    assert await clashing.ids("blog", 'filter: {count: {eq: 10}, owner: {eq: "nobody"}}') == [1]
    assert await clashing.ids("blog", "orderBy: [{count: DescNullsLast}]") == [2, 1]
    data = await clashing.data("{ blogCollection { aggregate { max { count owner } } } }")
    assert data["blogCollection"]["aggregate"]["max"] == {"count": 20, "owner": "somebody"}


async def test_renamed_fields_work_in_inputs(clashing: Service) -> None:
    assert await clashing.ids("blog", 'filter: {accountByOwnerId: {name: {eq: "Bob"}}}') == [2]
    assert await clashing.ids("blog", "filter: {count_2: {eq: 1010}}") == [1]
    assert await clashing.ids("blog", "orderBy: [{accountByOwnerId: {name: DescNullsLast}}]") == [2, 1]


async def test_inserts_and_updates_use_column_names(clashing: Service) -> None:
    data = await clashing.data(
        """mutation { insertIntoBlogCollection(
            objects: [{id: 3, count: 30, owner: "me", accountByOwnerId: {id: 3, _id: 0}}]
        ) { records { count count_2 owner { id } owner_2 } } }"""
    )
    assert data["insertIntoBlogCollection"]["records"] == [
        {"count": 30, "count_2": 1030, "owner": {"id": 3}, "owner_2": "me"}
    ]
    data = await clashing.data(
        "mutation { updateBlogCollection(set: {count: 31}, filter: {id: {eq: 3}}) { records { count } } }"
    )
    assert data["updateBlogCollection"]["records"] == [{"count": 31}]
    await clashing.execute("delete from blog where id = 3; delete from account where id = 3")


async def test_function_is_renamed_if_a_table_needs_its_name(clashing: Service) -> None:
    data = await clashing.data("{ blogCollection { edges { node { id } } } blogCollection_2 }")
    assert nodes(data["blogCollection"]) == [{"id": 1}, {"id": 2}]
    assert data["blogCollection_2"] == 42


async def test_renamed_fields_are_logged_as_catalog_problems(clashing: Service) -> None:
    logged: list[str] = []

    def observe(event: LogEvent) -> None:
        if event.get("log_namespace") == "dataapi.catalog" and "problem" in event:
            logged.append(f"{event['place']}: {event['problem']}")

    globalLogPublisher.addObserver(observe)  # type: ignore[arg-type]
    try:
        await clashing.reload()
    finally:
        globalLogPublisher.removeObserver(observe)  # type: ignore[arg-type]
    assert logged == [f"{problem.place}: {problem.message}" for problem in clashing.catalog.problems]
    assert {problem.place for problem in clashing.catalog.problems} == {
        "column public.account._id",
        "column public.blog.owner",
        "foreign key blog_owner_id_fkey of table public.blog",
        "function public._count",
        "function public.blogCollection",
    }


async def test_ready_reports_clashes_and_stays_ready(clashing: Service, reactor: Any) -> None:
    part = ProjectPart(reactor, Project("p" * 20, "acme", clashing.database.uri, jwt_secret="s" * 32))
    await part.start()
    try:
        state = part.state()
    finally:
        await part.stop()
    assert state.ready
    assert (
        "function public._count: the GraphQL field count of Blog belongs to column public.blog.count;"
        " this one is named count_2"
    ) in state.problems
