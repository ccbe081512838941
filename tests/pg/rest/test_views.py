"""REST views: relationships inherited from the underlying tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("studio?select=*&order=id", [{"id": 1, "name": "North"}, {"id": 2, "name": "South"}]),
        # Foreign keys of hidden tables, with renamed columns in the views.
        ("lot?select=number,studio(name)&order=number&limit=1", [{"number": 1, "studio": {"name": "North"}}]),
        ("studio?select=name,lot(number)&order=id&lot.order=number", [
            {"name": "North", "lot": [{"number": 1}, {"number": 2}]},
            {"name": "South", "lot": [{"number": 3}]}]),
        # A view over several tables.
        ("lot_report?select=owner_name,studio(id)&number=eq.3", [
            {"owner_name": "South", "studio": {"id": 2}}]),
        # Relationships between views and tables.
        ("film_brief?select=id,director(name)&id=eq.1", [{"id": 1, "director": {"name": "Ada"}}]),
        ("director?select=film_brief(id)&id=eq.1&film_brief.order=id", [
            {"film_brief": [{"id": 1}, {"id": 2}]}]),
        ("film?select=id,director_brief(name)&id=eq.1", [{"id": 1, "director_brief": {"name": "Ada"}}]),
        ("director_brief?select=name,film_brief(title)&id=eq.3", [
            {"name": "Cleo", "film_brief": [{"title": "Epsilon*"}]}]),
        ("film_brief?select=id,premiere(id)&id=eq.2", [{"id": 2, "premiere": [{"id": 3}]}]),
        ("film_brief?select=id,actor(name)&id=eq.2", [{"id": 2, "actor": [{"name": "Xena"}]}]),
        # Filters and inner joins on relationships of views.
        ("studio?select=id,lot!inner()&lot.area=gt.250", [{"id": 2}]),
    ],
)  # fmt: skip
async def test_views_inherit_the_relationships_of_their_tables(
    features: Service, target: str, expected: Any
) -> None:
    response = await features.rest("GET", target)
    assert response.body == expected


async def test_view_with_repeated_rows_embeds_only_one(features: Service) -> None:
    await features.execute(
        "create view busy_director as"
        " select d.id, d.name, f.title from director d join film f on f.director = d.id;"
        "grant select on busy_director to anon; select 1"
    )
    response = await features.rest("GET", "film?select=busy_director(name)&id=eq.1")
    assert (response.status, response.body) == (200, [{"busy_director": {"name": "Ada"}}])


@pytest.mark.parametrize(
    ("table", "allow"),
    [
        ("film", "OPTIONS,GET,HEAD,POST,PUT,PATCH,DELETE"),
        ("keyless", "OPTIONS,GET,HEAD,POST,PATCH,DELETE"),
        ("film_brief", "OPTIONS,GET,HEAD,POST,PUT,PATCH,DELETE"),
        ("fixed_words", "OPTIONS,GET,HEAD"),
        ("lot_report", "OPTIONS,GET,HEAD"),
        ("director_brief", "OPTIONS,GET,HEAD"),
    ],
)
async def test_options_lists_the_methods_of_a_table(features: Service, table: str, allow: str) -> None:
    """A view allows the writes that PostgreSQL supports. PUT requires a key."""
    response = await features.rest("OPTIONS", table)
    assert (response.status, response.text, response.headers["allow"]) == (200, "", allow)


async def test_options_of_a_view_depend_on_its_triggers(features: Service) -> None:
    await features.execute("""
        create function unwritten() returns trigger language plpgsql as 'begin return new; end';
        create view updatable as select distinct id from film;
        create trigger t instead of update on updatable for each row execute function unwritten();
        create view insertable as select distinct id from film;
        comment on view insertable is '@graphql({"primary_key_columns": ["id"]})';
        create trigger t instead of insert on insertable for each row execute function unwritten();
        grant all on updatable, insertable to anon; select 1""")
    for table, allow in (("updatable", "OPTIONS,GET,HEAD,PATCH"), ("insertable", "OPTIONS,GET,HEAD,POST")):
        assert (await features.rest("OPTIONS", table)).headers["allow"] == allow


async def test_head_has_the_headers_of_get_and_counts_without_a_body(features: Service) -> None:
    for target in ("film?select=id&limit=2", "film?select=id,actor(name)"):
        got = await features.rest("GET", target)
        head = await features.rest("HEAD", target)
        assert (head.status, head.text) == (got.status, "")
        for name in ("content-type", "content-range", "vary", "etag"):
            assert head.headers[name] == got.headers[name]
        counting = await features.rest("HEAD", target, headers={"prefer": "count=exact"})
        assert counting.messages[0].statements[0].statement.text.startswith("select null::text, ")


DECLARED = """
create table owner (id int primary key, name text);
create table pet (id int primary key, owner_id int references owner, friend_id int references pet);
create table meeting (pet_id int references pet, owner_id int references owner, at date,
    primary key (pet_id, owner_id, at));
create view pet_list as select id, owner_id, friend_id from pet;
create view pet_count as select owner_id + 0 as owner_id, count(*) as pets from pet group by 1;
create view meeting_list as select pet_id, owner_id + 0 as owner_id, at from meeting;
insert into owner values (1, 'Ann'), (2, 'Bob');
insert into pet values (1, 1, null), (2, 2, 1);
insert into meeting values (1, 1, '2024-01-01'), (1, 1, '2024-01-02');
grant select on all tables in schema public to anon;
"""
_KEY = (
    '{{"local_columns": ["{}"], '
    '"foreign_schema": "public", "foreign_table": "{}", "foreign_columns": ["id"]}}'
)


def declaring(*keys: str, key: str = "") -> str:
    """Return a directive comment that declares foreign keys and optionally a primary key."""
    primary = f'"primary_key_columns": ["{key}"], ' if key else ""
    return f"""'@graphql({{{primary}"foreign_keys": [{", ".join(keys)}]}})'"""


COMMENTS = {
    "view pet_list": declaring(_KEY.format("owner_id", "owner"), key="id"),
    "view pet_count": declaring(_KEY.format("owner_id", "owner"), key="owner_id"),
    "view meeting_list": declaring(
        _KEY.format("owner_id", "owner"), _KEY.format("pet_id", "pet"), key='pet_id", "owner_id'
    ),
    "table pet": declaring(_KEY.format("owner_id", "owner")),
}
TARGETS = (
    "pet_list?select=id,owner!pet_owner_id_fkey(name)&order=id",
    "owner?select=id,pet_list!pet_owner_id_fkey(id)&order=id&pet_list.order=id",
    "pet_count?select=owner_id,owner(name)&order=owner_id",
    "owner?select=id,pet_count(pets)&order=id",
    "pet?select=id,owner!pet_owner_id_fkey(name)&order=id&owner.order=id",
    "pet?select=id,owner!meeting_list(name)&order=id",
)


@pytest.fixture
def undeclared(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a database without directives."""
    with serving(reactor, server.create_database(DECLARED)) as service:
        yield service


async def test_graphql_directives_do_not_affect_rest(undeclared: Service) -> None:
    before = [await undeclared.rest("GET", target) for target in TARGETS]
    assert [response.status for response in before] == [200, 200, 400, 400, 200, 400]
    for thing, comment in COMMENTS.items():
        await undeclared.execute(f"comment on {thing} is {comment}; select 1")
    after = [await undeclared.rest("GET", target) for target in TARGETS]
    assert [(response.status, response.body) for response in after] == [
        (response.status, response.body) for response in before
    ]
