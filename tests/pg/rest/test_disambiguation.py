"""Resources that could be meant in several ways: PGRST201 tells which, and hints choose."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.service import Service


async def test_two_keys_between_the_same_tables_are_ambiguous(features: Service) -> None:
    """The details list both; the hint says how to ask for each."""
    answer = await features.rest("GET", "premiere?select=city(*)")
    assert (answer.status, answer.body) == (300, {
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
    answer = await features.rest("GET", "city?select=premiere(*)")
    assert (answer.status, answer.body["code"]) == (300, "PGRST201")
    assert answer.body["details"][1] == {
        "cardinality": "one-to-many",
        "embedding": "city with premiere",
        "relationship": "premiere_host_fkey using city(id) and premiere(host)",
    }


async def test_ambiguous_relationships_are_listed_by_kind_then_by_name(features: Service) -> None:
    """To many first, then to one, whichever key is older: clients show the hint as it comes."""
    await features.execute(
        "create table troupe (id int primary key, head int);"
        " create table player ("
        " id int primary key, troupe int references troupe, former int references troupe);"
        " alter table troupe add constraint aa_head foreign key (head) references player;"
        " grant select on troupe, player to anon; select 1"
    )
    answer = await features.rest("GET", "troupe?select=player(*)")
    assert [(way["cardinality"], way["relationship"].split()[0]) for way in answer.body["details"]] == [
        ("one-to-many", "player_former_fkey"),
        ("one-to-many", "player_troupe_fkey"),
        ("many-to-one", "aa_head"),
    ]
    assert await choices(features, "troupe?select=player(*)") == [
        "player!player_former_fkey", "player!player_troupe_fkey", "player!aa_head",
    ]  # fmt: skip


async def choices(service: Service, target: str) -> list[str]:
    """Return what the hint of an ambiguous request says, each of which then works."""
    answer = await service.rest("GET", target)
    assert (answer.status, answer.body["code"]) == (300, "PGRST201"), answer.text
    offered: str = answer.body["hint"].partition("following: ")[2].partition(". Find")[0]
    return [choice.strip("'") for choice in offered.split(", ")]


async def test_every_choice_that_a_hint_offers_works(features: Service) -> None:
    """Two keys, from both sides."""
    for target, name in (("premiere", "city"), ("city", "premiere")):
        offered = await choices(features, f"{target}?select={name}(*)")
        for choice in offered:
            answer = await features.rest("GET", f"{target}?select={choice}(id)&limit=1")
            assert (answer.status, list(answer.body[0])) == (200, [name]), choice


async def test_two_junction_tables_are_told_apart(features: Service) -> None:
    """Each by its name."""
    await features.execute(
        "create table extra (film int references film, actor int references actor,"
        " primary key (film, actor)); grant select on extra to anon; insert into extra values (5, 4);"
        "select 1"
    )
    answer = await features.rest("GET", "film?select=actor(*)")
    assert (answer.status, answer.body["details"]) == (300, [
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
    answer = await features.rest("GET", "film?select=actor!extra(name)&id=eq.5")
    assert answer.body == [{"actor": [{"name": "Walt"}]}]
    answer = await features.rest("GET", "film?select=actor!part(name)&id=eq.2")
    assert answer.body == [{"actor": [{"name": "Xena"}]}]


async def test_two_resources_of_one_name_are_refused(features: Service) -> None:
    """One would be lost to whoever reads the answer; by an alias both come, and spread columns are none."""
    both = "premiere?select=city!premiere_city_fkey(id),{}city!premiere_host_fkey(id)&limit=1"
    answer = await features.rest("GET", both.format(""))
    assert (answer.status, answer.body) == (400, {
        "code": "42712",
        "message": 'table name "premiere_city_1" specified more than once',
        "details": None,
        "hint": "Give one of the resources named 'city' an alias in the 'select' query parameter.",
    })  # fmt: skip
    answer = await features.rest("GET", both.format("host:"))
    assert (answer.status, list(answer.body[0])) == (200, ["city", "host"])
    answer = await features.rest("GET", both.format("..."))
    assert (answer.status, list(answer.body[0])) == (200, ["city", "id"])
