"""Ambiguous embedded resources: error PGRST201 lists the candidates, and a hint in the request selects
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server
    from support.service import Service

RELATED = """
create schema api;
create schema shop;
create table film (id int primary key, name text);
create table actor (id int primary key, name text);
create table part (film int references film, actor int references actor, primary key (film, actor));
create view api.film as select * from film;
create view api.actor as select * from actor;
create view api.part as select * from part;
create view shop.film as select * from film;
create view shop.actor as select * from actor;
create schema other;
create view other.part as select * from part;

create table team (id int primary key, name text);
create table stadium (id int primary key);
create table game (
    home int references team, away int references team, at int references stadium,
    primary key (home, away, at)
);
create table follows (
    person int, followed int, primary key (person, followed)
);
create table blocks (person int, blocked int, primary key (person, blocked));
create table person (id int primary key);
alter table follows add foreign key (person) references person, add foreign key (followed) references person;
alter table blocks add foreign key (person) references person, add foreign key (blocked) references person;

create table egg (ref int, id int primary key, "no.1" int);
create table hen (ref int, id int primary key);
alter table egg add constraint laid foreign key (ref) references hen;
alter table hen add constraint laid foreign key (ref) references egg;
alter table egg add constraint "by,a hen" foreign key ("no.1") references hen;
create table nest (id int primary key, inner_egg int, egg int);
alter table nest add constraint "inner" foreign key (inner_egg) references egg;
alter table nest add constraint "left" foreign key (egg) references egg;
create function egg(nest) returns setof egg rows 1 stable language sql
    as 'select * from egg where id = $1.egg';

create table employee (
    company int, id int, boss int, next int unique, tutor int,
    primary key (company, id),
    constraint boss_key foreign key (company, boss) references employee
);
create table step (id int primary key, next int unique constraint next_step references step);
insert into film values (1, 'f');
insert into actor values (2, 'a');
insert into part values (1, 2);
insert into team values (1, 'home'), (2, 'away');
insert into stadium values (1);
insert into game values (1, 2, 1);
insert into employee (company, id, boss) values (1, 1, null), (1, 2, 1), (2, 1, null);
insert into step values (1, null), (2, 1);
grant usage on schema api, shop, other to anon;
grant select on all tables in schema public, api, shop, other to anon;
"""


@pytest.fixture(scope="module")
def related(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve tables with several relationships, some of them in several schemas."""
    schemas = ("public", "api", "shop", "other")
    with serving(reactor, server.create_database(RELATED), db_schemas=schemas) as service:
        yield service


async def test_two_keys_between_the_same_tables_are_ambiguous(features: Service) -> None:
    response = await features.rest("GET", "premiere?select=city(*)")
    assert (response.status, response.body) == (300, {
        "code": "PGRST201",
        "message": "Could not embed because more than one relationship was found for 'premiere' and 'city'",
        "details": [
            {
                "cardinality": "many-to-one",
                "embedding": "premiere with city",
                "relationship": "premiere_city_fkey using premiere(city) and city(id)",
            },
            {
                "cardinality": "many-to-one",
                "embedding": "premiere with city",
                "relationship": "premiere_host_fkey using premiere(host) and city(id)",
            },
        ],
        "hint": "Try changing 'city' to one of the following: 'city!premiere_city_fkey',"
        " 'city!premiere_host_fkey'. Find the desired relationship in the 'details' key.",
    })  # fmt: skip
    response = await features.rest("GET", "city?select=premiere(*)")
    assert (response.status, response.body["code"]) == (300, "PGRST201")
    assert response.body["details"][1] == {
        "cardinality": "one-to-many",
        "embedding": "city with premiere",
        "relationship": "premiere_host_fkey using city(id) and premiere(host)",
    }


async def test_ambiguous_relationships_are_listed_by_kind_and_name(features: Service) -> None:
    await features.execute(
        "create table troupe (id int primary key, head int);"
        " create table player ("
        " id int primary key, troupe int references troupe, former int references troupe);"
        " alter table troupe add constraint aa_head foreign key (head) references player;"
        " grant select on troupe, player to anon; select 1"
    )
    response = await features.rest("GET", "troupe?select=player(*)")
    assert [
        (candidate["cardinality"], candidate["relationship"].split()[0])
        for candidate in response.body["details"]
    ] == [
        ("one-to-many", "player_former_fkey"),
        ("one-to-many", "player_troupe_fkey"),
        ("many-to-one", "aa_head"),
    ]
    assert await choices(features, "troupe?select=player(*)") == [
        "player!player_former_fkey", "player!player_troupe_fkey", "player!aa_head",
    ]  # fmt: skip


async def choices(service: Service, target: str, schema: str | None = None) -> list[str]:
    """Return the candidates that the hint of a PGRST201 error lists."""
    headers = {} if schema is None else {"accept-profile": schema}
    response = await service.rest("GET", target, headers=headers)
    assert (response.status, response.body["code"]) == (300, "PGRST201"), response.text
    offered: str = response.body["hint"].partition("following: ")[2].partition(". Find")[0]
    return [choice.strip("'") for choice in offered.split(", ")]


async def test_every_candidate_in_the_hint_works(features: Service) -> None:
    for target, name in (("premiere", "city"), ("city", "premiere")):
        offered = await choices(features, f"{target}?select={name}(*)")
        for choice in offered:
            response = await features.rest("GET", f"{target}?select={choice}(id)&limit=1")
            assert (response.status, list(response.body[0])) == (200, [name]), choice


@pytest.mark.parametrize("schema", ["public", "api"])
async def test_junction_in_the_requested_schema_is_preferred(related: Service, schema: str) -> None:
    response = await related.rest("GET", "film?select=actor(name)", headers={"accept-profile": schema})
    assert (response.status, response.body) == (200, [{"actor": [{"name": "a"}]}])


@pytest.mark.parametrize(
    ("target", "name", "schema", "expected"),
    [
        ("film", "actor", "shop", {
            'actor!"public.part"', 'actor!"api.part"', 'actor!"other.part"',
        }),
        ("stadium", "team", None, {"team!game_home_fkey", "team!game_away_fkey"}),
        ("team", "stadium", None, {"stadium!game_home_fkey", "stadium!game_away_fkey"}),
        ("person", "person!person", None, {
            "person!follows_person_fkey", "person!blocks_person_fkey",
        }),
        ("egg", "hen", None, {'hen!"id=ref"', 'hen!"ref=id"', 'hen!"by,a hen"'}),
        ("hen", "egg", None, {'egg!"id=ref"', 'egg!"ref=id"', 'egg!"by,a hen"'}),
        ("egg", "nest", None, {"nest!inner_egg", "nest!egg"}),
    ],
)  # fmt: skip
async def test_hints_resolve_every_kind_of_ambiguity(
    related: Service, target: str, name: str, schema: str | None, expected: set[str]
) -> None:
    candidates = await choices(related, f"{target}?select={name}(*)", schema)
    assert set(candidates) == expected
    for choice in candidates:
        headers = {} if schema is None else {"accept-profile": schema}
        response = await related.rest("GET", f"{target}?select={choice}(*)", headers=headers)
        assert response.status == 200, (choice, response.text)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("employee?select=id,boss_key(id)&company=eq.1&order=id", [
            {"id": 1, "boss_key": None}, {"id": 2, "boss_key": {"id": 1}},
        ]),
        ("employee?select=id,employee(id)&company=eq.1&order=id", [
            {"id": 1, "employee": [{"id": 2}]}, {"id": 2, "employee": []},
        ]),
        ("employee?select=id,staff:employee!boss_key(id)&company=eq.1&id=eq.1", [
            {"id": 1, "staff": [{"id": 2}]},
        ]),
        ("employee?select=id,staff:employee!\"company,boss\"(id)&company=eq.1&id=eq.1", [
            {"id": 1, "staff": [{"id": 2}]},
        ]),
        ("step?select=id,next(id)&order=id", [{"id": 1, "next": None}, {"id": 2, "next": {"id": 1}}]),
        ("step?select=id,next_step(id)&id=eq.2", [{"id": 2, "next_step": {"id": 1}}]),
        ("step?select=id,step(id)&order=id", [{"id": 1, "step": {"id": 2}}, {"id": 2, "step": None}]),
        ("step?select=id,step!next_step(id)&id=eq.1", [{"id": 1, "step": {"id": 2}}]),
    ],
)  # fmt: skip
async def test_self_references_have_two_directions(related: Service, target: str, expected: Any) -> None:
    response = await related.rest("GET", target)
    assert (response.status, response.body) == (200, expected)


async def test_hints_distinguish_two_junction_tables(features: Service) -> None:
    await features.execute(
        "create table extra (film int references film, actor int references actor,"
        " primary key (film, actor)); grant select on extra to anon; insert into extra values (5, 4);"
        "select 1"
    )
    response = await features.rest("GET", "film?select=actor(*)")
    assert (response.status, response.body["details"]) == (300, [
        {
            "cardinality": "many-to-many",
            "embedding": "film with actor",
            "relationship": "extra using extra_film_fkey(film) and extra_actor_fkey(actor)",
        },
        {
            "cardinality": "many-to-many",
            "embedding": "film with actor",
            "relationship": "part using part_film_fkey(film) and part_actor_fkey(actor)",
        },
    ])  # fmt: skip
    response = await features.rest("GET", "film?select=actor!extra(name)&id=eq.5")
    assert response.body == [{"actor": [{"name": "Walt"}]}]
    response = await features.rest("GET", "film?select=actor!part(name)&id=eq.2")
    assert response.body == [{"actor": [{"name": "Xena"}]}]


async def test_two_resources_with_the_same_name_are_rejected(features: Service) -> None:
    """JSON parsers would drop one of them. An alias or a spread avoids the conflict."""
    both = "premiere?select=city!premiere_city_fkey(id),{}city!premiere_host_fkey(id)&limit=1"
    response = await features.rest("GET", both.format(""))
    assert (response.status, response.body) == (400, {
        "code": "42712",
        "message": 'table name "premiere_city_1" specified more than once',
        "details": None,
        "hint": "Give one of the resources named 'city' an alias in the 'select' query parameter.",
    })  # fmt: skip
    response = await features.rest("GET", both.format("host:"))
    assert (response.status, list(response.body[0])) == (200, ["city", "host"])
    response = await features.rest("GET", both.format("..."))
    assert (response.status, list(response.body[0])) == (200, ["city", "id"])
