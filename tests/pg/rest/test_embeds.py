"""Embedded resources: every kind of relationship, inner joins, null filters, spreads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.service import Service


# ---------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        # Many to one: the row, or null.
        ("film?select=id,director(name)&id=in.(1,4)", [
            {"id": 1, "director": {"name": "Ada"}}, {"id": 4, "director": None}]),
        # One to many: a list, perhaps empty.
        ("director?select=id,film(id)&id=in.(1,4)", [
            {"id": 1, "film": [{"id": 1}, {"id": 2}]}, {"id": 4, "film": []}]),
        # Many to many, through a table whose key covers both foreign keys.
        ("film?select=id,actor(name)&id=in.(1,3)&actor.order=name", [
            {"id": 1, "actor": [{"name": "Xena"}, {"name": "Yuri"}]}, {"id": 3, "actor": []}]),
        ("actor?select=name,film(title)&id=eq.2&film.order=title", [
            {"name": "Yuri", "film": [{"title": "Alpha"}, {"title": "delta_100%"}]}]),
        # The junction table is also a resource.
        ("film?select=part(played,actor(name))&id=eq.1&part.order=played", [
            {"part": [{"played": "hero", "actor": {"name": "Xena"}},
                      {"played": "villain", "actor": {"name": "Yuri"}}]}]),
        # One to one, from either side.
        ("poster?select=url,film(title)&film=eq.1", [{"url": "alpha.png", "film": {"title": "Alpha"}}]),
        # Self-reference: the table's name embeds many rows, the column's name embeds one.
        ("director?select=id,director(id)&id=eq.1", [{"id": 1, "director": [{"id": 2}, {"id": 3}]}]),
        ("director?select=id,mentor(id)&id=in.(1,2)", [
            {"id": 1, "mentor": None}, {"id": 2, "mentor": {"id": 1}}]),
        ("director?select=id,pupils:director!mentor(id,mentor(id))&id=eq.2", [
            {"id": 2, "pupils": [{"id": 4, "mentor": {"id": 2}}]}]),
        # Constraints and columns as hints, with an alias.
        ("film?select=by:film_director_fkey(name)&id=eq.1", [{"by": {"name": "Ada"}}]),
        ("premiere?select=at:city!premiere_host_fkey(name)&id=eq.1", [{"at": {"name": "Oslo"}}]),
        ("premiere?select=at:city!city(name),host(name)&id=eq.1", [
            {"at": {"name": "Rome"}, "host": {"name": "Oslo"}}]),
        ("city?select=premiere!host(id)&id=eq.2&premiere.order=id", [{"premiere": [{"id": 1}, {"id": 2}]}]),
        # Computed relationships take precedence over foreign keys.
        ("film?select=remakes(id),lead(name)&id=in.(2,3)", [
            {"remakes": [{"id": 3}], "lead": {"name": "Xena"}}, {"remakes": [{"id": 2}], "lead": None}]),
        ("film?select=poster(url)&id=in.(1,2)", [
            {"poster": {"url": "https://posters.example/alpha.png"}}, {"poster": None}]),
        # A function that does not return a set.
        ("film?select=banner(url)&id=in.(1,2)&order=id", [
            {"banner": {"url": "alpha.png"}}, {"banner": None}]),
        ("film?select=...banner(url)&id=in.(1,2)&order=id", [{"url": "alpha.png"}, {"url": None}]),
        ("film?select=id,banner!inner()&id=in.(1,2)&order=id", [{"id": 1}]),
        ("film?select=id,banner()&banner=is.null&id=in.(1,2)&order=id", [{"id": 2}]),
        ("film?select=id,banner()&order=banner(url).desc.nullsfirst&id=in.(1,2)", [{"id": 2}, {"id": 1}]),
        ("director?select=pupils(name,pupils(name))&id=eq.1&pupils.order=name", [
            {"pupils": [{"name": "Bert", "pupils": [{"name": "Dan"}]}, {"name": "Cleo", "pupils": []}]}]),
        ("film?select=remakes(id,director(name))&id=eq.2", [
            {"remakes": [{"id": 3, "director": {"name": "Bert"}}]}]),
        # Resources within resources.
        ("city?select=name,premiere!premiere_city_fkey(film(title,director(name,mentor(name))))&id=eq.3", [
            {"name": "Lima", "premiere": [
                {"film": {"title": "Beta", "director": {"name": "Ada", "mentor": None}}}]}]),
        # A junction table with a unique key instead of a primary key.
        ("film?select=actor!crew(name)&id=eq.2", [{"actor": [{"name": "Walt"}]}]),
    ],
)  # fmt: skip
async def test_related_rows_are_embedded(features: Service, target: str, expected: Any) -> None:
    assert (
        await features.read(f"{target}&order={'film' if target.startswith('poster') else 'id'}") == expected
    )


async def test_embedded_resources_have_their_own_parameters(features: Service) -> None:
    [ada, *_] = await features.read("director?select=id,film(id)&order=id&film.title=like.B*")
    assert ada == {"id": 1, "film": [{"id": 2}]}
    [ada, *_] = await features.read("director?select=f:film(id)&order=id&f.order=id.desc&f.limit=1")
    assert ada == {"f": [{"id": 2}]}
    [ada, *_] = await features.read("director?select=f:film(id)&order=id&film.order=id&film.offset=1")
    assert ada == {"f": [{"id": 2}]}
    target = "director?select=film(part(actor(name)))&id=eq.1&film.part.actor.name=eq.Xena&film.id=eq.1"
    assert await features.read(target + "&film.part.order=actor") == [
        {"film": [{"part": [{"actor": {"name": "Xena"}}, {"actor": None}]}]}
    ]
    target = "film?select=remakes(id)&id=eq.2&remakes.data->>lang=eq.x"
    assert await features.read(target) == [{"remakes": []}]


async def test_filtered_to_one_row_becomes_null(features: Service) -> None:
    """The parent's row is returned unless the request uses ``!inner``."""
    response = await features.read("film?select=id,director(name)&director.name=eq.Bert&id=in.(1,3)&order=id")
    assert response == [{"id": 1, "director": None}, {"id": 3, "director": {"name": "Bert"}}]


@pytest.mark.parametrize("select", ["film(id),late:film(id)", "late:film(id),film(id)"])
async def test_table_can_be_embedded_more_than_once(features: Service, select: str) -> None:
    target = f"director?select={select}&id=eq.1&film.year=lt.1992&late.year=gt.1992"
    assert await features.read(target) == [{"film": [{"id": 1}], "late": [{"id": 2}]}]
    assert await features.read(f"{target}&late.limit=0") == [{"film": [{"id": 1}], "late": []}]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select=id,director(name)&director.limit=1&id=eq.1", [{"id": 1, "director": {"name": "Ada"}}]),
        ("select=id,director(name)&director.limit=7&id=eq.1", [{"id": 1, "director": {"name": "Ada"}}]),
        ("select=id,director(name)&director.limit=0&id=eq.1", [{"id": 1, "director": None}]),
        ("select=id,director(name)&director.offset=1&id=eq.1", [{"id": 1, "director": None}]),
        ("select=id,...director(name)&director.offset=1&id=eq.1", [{"id": 1, "name": None}]),
        ("select=id,lead(name)&lead.offset=1&id=eq.1", [{"id": 1, "lead": None}]),
        ("select=id,director()&director=is.null&director.offset=1&id=eq.1", [{"id": 1}]),
        ("select=id,director!inner()&director.offset=1", []),
        ("select=id,part!inner()&part.limit=0", []),
        ("select=id,part!inner()&part.limit=1&id=in.(1,3)", [{"id": 1}]),
        ("select=id,director()&director=not.is.null&director.limit=0", []),
        ("select=id,director()&director=is.null&director.limit=0&id=eq.1", [{"id": 1}]),
        ("select=id,part!inner(played)&part.offset=1&part.order=played.nullslast&order=id", [
            {"id": 1, "part": [{"played": "villain"}]}, {"id": 4, "part": [{"played": None}]}]),
        ("select=id,director(name)&director.offset=1&order=director(name).desc,id&limit=2", [
            {"id": 1, "director": None}, {"id": 2, "director": None}]),
    ],
)  # fmt: skip
async def test_limit_and_offset_can_exclude_a_to_one_row(
    features: Service, query: str, expected: Any
) -> None:
    assert await features.read(f"film?{query}") == expected


async def test_order_of_a_to_one_resource_is_validated(features: Service) -> None:
    assert await features.read("film?select=id,director(name)&director.order=name&id=eq.4") == [
        {"id": 4, "director": None}
    ]
    response = await features.rest("GET", "film?select=id,director(name)&director.order=nothing")
    assert (response.status, response.body["code"]) == (400, "42703")


async def test_empty_resources_add_no_members(features: Service) -> None:
    """A resource without columns, ``resource()``, only serves filters."""
    assert await features.read("film?select=id,director()&id=eq.1") == [{"id": 1}]
    assert await features.read("film?select=id,director(film())&id=eq.1") == [{"id": 1}]
    assert await features.read("film?select=id,...director()&id=eq.1") == [{"id": 1}]


async def test_table_can_be_many_to_many_with_itself(features: Service) -> None:
    await features.execute(
        "create table knows (who int references actor, whom int references actor, primary key (who, whom));"
        "grant select on knows to anon; insert into knows values (1, 2), (1, 3), (3, 1); select 1"
    )
    target = "actor?select=name,known:actor!{}(name)&order=id&limit=2&known.order=id"
    assert await features.read(target.format("who")) == [
        {"name": "Xena", "known": [{"name": "Yuri"}, {"name": "Zoe"}]},
        {"name": "Yuri", "known": []},
    ]
    assert await features.read(target.format("whom")) == [
        {"name": "Xena", "known": [{"name": "Zoe"}]},
        {"name": "Yuri", "known": [{"name": "Xena"}]},
    ]


async def test_composite_keys_relate_rows_by_all_columns(features: Service) -> None:
    await features.execute(
        "create table cast_note (film int, actor int, note text, constraint noted foreign key (film, actor)"
        " references part); grant select on cast_note to anon;"
        "insert into cast_note values (1, 2, 'late'), (2, 1, 'early'), (1, null, 'none'); select 1"
    )
    assert await features.read("part?select=played,cast_note(note)&film=eq.1&order=actor") == [
        {"played": "hero", "cast_note": []},
        {"played": "villain", "cast_note": [{"note": "late"}]},
    ]
    assert await features.read("cast_note?select=note,noted(played)&order=note") == [
        {"note": "early", "noted": {"played": "queen"}},
        {"note": "late", "noted": {"played": "villain"}},
        {"note": "none", "noted": None},
    ]


# ---------------------------------------------------------------- filtered parents


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("select=id,director!inner(name)", [1, 2, 3, 5]),
        ("select=id,director!inner(name)&director.name=eq.Ada", [1, 2]),
        ("select=id,actor!inner(id)&actor.name=eq.Yuri", [1, 4]),
        ("select=id,part!inner(actor!inner(id))&part.actor.name=eq.Xena", [1, 2]),
        ("select=id,part!inner(actor(id))&part.actor.name=eq.Xena", [1, 2, 4]),
        ("select=id,director!inner(mentor!inner(id))", [3, 5]),
        ("select=id,remakes!inner(id)", [2, 3]),
        ("select=id,lead!inner(name)&lead.name=eq.Yuri", [4]),
        ("select=id,director!left(name)", [1, 2, 3, 4, 5]),
        ("select=id,director!inner()&director.name=eq.Ada", [1, 2]),
        ("select=id,...director!inner(name)&director.name=eq.Ada", [1, 2]),
        ("select=id,d:director!film_director_fkey!inner(name)&d.name=eq.Cleo", [5]),
        ("select=id,director()&director=is.null", [4]),
        ("select=id,director(name)&director=not.is.null", [1, 2, 3, 5]),
        ("select=id,d:director()&d=is.not_null", [1, 2, 3, 5]),
        ("select=id,actor()&actor=is.null", [3, 5]),
        ("select=id,actor()&actor.name=eq.Yuri&actor=not.is.null", [1, 4]),
        ("select=id,part(actor())&part.actor=is.null", [1, 2, 3, 4, 5]),
        ("select=id,remakes()&remakes=is.null", [1, 4, 5]),
        ("select=id,lead()&lead=is.null&year=not.is.null", [3]),
    ],
)
async def test_embedded_resources_filter_their_parents(features: Service, query: str, ids: list[int]) -> None:
    assert [row["id"] for row in await features.read(f"film?{query}&order=id")] == ids


async def test_count_excludes_filtered_parents(features: Service) -> None:
    headers = {"prefer": "count=exact"}
    response = await features.rest("GET", "film?select=id,director!inner()&limit=1", headers=headers)
    assert (response.status, response.headers["content-range"]) == (206, "0-0/4")


# ---------------------------------------------------------------- spreads


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("film?select=id,...director(by:name,born)&id=in.(1,4)&order=id", [
            {"id": 1, "by": "Ada", "born": "1950-01-01"}, {"id": 4, "by": None, "born": None}]),
        ("film?select=...director(name,...mentor(m:name))&id=eq.3", [{"name": "Bert", "m": "Ada"}]),
        ("film?select=title,...director(mentor(name))&id=eq.3", [
            {"title": 'Gamma, the "last"', "mentor": {"name": "Ada"}}]),
        ("film?select=...director(name,film(id))&id=eq.3", [{"name": "Bert", "film": [{"id": 3}]}]),
        ("film?select=...lead(star:name)&id=in.(1,3)&order=id", [{"star": "Xena"}, {"star": None}]),
        # Many rows: a list for each member, in the order of the rows.
        ("director?select=name,...film(id,title)&id=in.(1,4)&order=id&film.order=id.desc", [
            {"name": "Ada", "id": [2, 1], "title": ["Beta", "Alpha"]},
            {"name": "Dan", "id": [], "title": []}]),
        ("film?select=id,...actor(name)&id=eq.1&actor.order=name.desc", [
            {"id": 1, "name": ["Yuri", "Xena"]}]),
        ("film?select=id,...part(played,...actor(name))&id=eq.1&part.order=actor", [
            {"id": 1, "played": ["hero", "villain"], "name": ["Xena", "Yuri"]}]),
        ("director?select=film(...actor(name))&id=eq.1&film.order=id&film.actor.order=name", [
            {"film": [{"name": ["Xena", "Yuri"]}, {"name": ["Xena"]}]}]),
        ("director?select=name,...film(id)&id=eq.1&film.order=id&film.limit=1", [{"name": "Ada", "id": [1]}]),
    ],
)  # fmt: skip
async def test_spread_resources_add_their_members_to_the_parent(
    features: Service, target: str, expected: Any
) -> None:
    assert await features.read(target) == expected


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("target", "status", "body"),
    [
        ("film?select=*,unrelated(*)", 400, {
            "code": "PGRST200",
            "message": "Could not find a relationship between 'film' and 'unrelated' in the schema cache",
            "details": "Searched for a foreign key relationship between 'film' and 'unrelated' in the schema"
                       " 'public', but no matches were found.",
            "hint": "Perhaps you meant 'director' instead of 'unrelated'.",
        }),
        ("film?select=*,directr(*)", 400, {
            "code": "PGRST200",
            "message": "Could not find a relationship between 'film' and 'directr' in the schema cache",
            "details": "Searched for a foreign key relationship between 'film' and 'directr' in the schema"
                       " 'public', but no matches were found.",
            "hint": "Perhaps you meant 'director' instead of 'directr'.",
        }),
        ("premieres?select=word,film(*)", 400, {
            "code": "PGRST200",
            "message": "Could not find a relationship between 'premieres' and 'film' in the schema cache",
            "details": "Searched for a foreign key relationship between 'premieres' and 'film' in the schema"
                       " 'public', but no matches were found.",
            "hint": "Perhaps you meant 'premiere' instead of 'premieres'.",
        }),
        ("unrelated?select=id,film(*)", 400, {
            "code": "PGRST200",
            "message": "Could not find a relationship between 'unrelated' and 'film' in the schema cache",
            "details": "Searched for a foreign key relationship between 'unrelated' and 'film' in the schema"
                       " 'public', but no matches were found.",
            "hint": None,
        }),
        ("film?select=*,director!nope(*)", 400, {
            "code": "PGRST200",
            "message": "Could not find a relationship between 'film' and 'director' in the schema cache",
            "details": "Searched for a foreign key relationship between 'film' and 'director' using the hint"
                       " 'nope' in the schema 'public', but no matches were found.",
            "hint": None,
        }),
        ("film?select=id,forbidden(*)", 401, {
            "code": "42501", "message": "permission denied for table forbidden", "details": None,
            "hint": None,
        }),
        ("film?select=id,director(name)&director=eq.1&nothing.id=eq.1", 400, {
            "code": "PGRST108", "message": "'nothing' is not an embedded resource in this request",
            "details": None, "hint": "Verify that 'nothing' is included in the 'select' query parameter.",
        }),
        ("film?select=id,actor(name)&actor=eq.1", 400, {
            "code": "PGRST120", "message": "Bad operator on the 'actor' embedded resource",
            "details": "Only is null or not is null filters are allowed on embedded resources", "hint": None,
        }),
        ("film?select=id,actor(name)&or=(id.eq.1,actor.gt.3)", 400, {
            "code": "PGRST120", "message": "Bad operator on the 'actor' embedded resource",
            "details": "Only is null or not is null filters are allowed on embedded resources", "hint": None,
        }),
        ("film?select=id,actor(nope)", 400, {
            "code": "42703", "message": "column actor.nope does not exist", "details": None,
            "hint": 'Perhaps you meant to reference the column "actor.name".',
        }),
        ("film?select=id,by:director(nope)", 400, {
            "code": "42703", "message": "column director_1.nope does not exist", "details": None,
            "hint": 'Perhaps you meant to reference the column "director_1.name".',
        }),
        ("director?select=film(remakes(nope))", 400, {
            "code": "42703", "message": "column film_2.nope does not exist", "details": None, "hint": None,
        }),
    ],
)  # fmt: skip
async def test_invalid_embeds_are_rejected(
    features: Service, target: str, status: int, body: dict[str, Any]
) -> None:
    response = await features.rest("GET", target)
    assert (response.status, response.body) == (status, body)


async def test_column_with_the_name_of_a_resource_can_be_filtered(features: Service) -> None:
    """Operators other than ``is`` apply to the column."""
    assert [
        row["id"] for row in await features.read("film?select=id,director(name)&director=eq.1&order=id")
    ] == [1, 2]


async def test_too_deeply_nested_embeds_are_rejected(features: Service) -> None:
    response = await features.rest("GET", "director?select=" + "pupils(" * 25 + "id" + ")" * 25)
    assert (response.status, response.body["code"]) == (400, "PGRST100")


# ---------------------------------------------------------------- partitions


async def test_partitions_are_reachable_only_through_their_parent(features: Service) -> None:
    """A request for the partition itself would bypass the policies of its parent."""
    await features.execute(
        "create table reading (day date primary key, film int references film) partition by range (day);"
        " create table reading_23 partition of reading for values from ('2023-01-01') to ('2024-01-01');"
        " alter table reading enable row level security;"
        " create policy known on reading using (film is not null);"
        " insert into reading values ('2023-05-05', 1), ('2023-06-06', null);"
        " grant all on reading, reading_23 to anon; select 1"
    )
    response = await features.rest("GET", "film?select=id,reading(day)&reading=not.is.null")
    assert response.body == [{"id": 1, "reading": [{"day": "2023-05-05"}]}]
    for method, body in (("GET", None), ("PATCH", b"{}"), ("DELETE", None), ("POST", b"{}")):
        response = await features.rest(method, "reading_23?day=gt.2023-01-01", body=body)
        assert (response.status, response.body["code"]) == (404, "PGRST205"), method
    response = await features.rest("GET", "film?select=id,reading_23(day)")
    assert (response.status, response.body["code"]) == (400, "PGRST200")
    assert response.body["hint"] == "Perhaps you meant 'reading' instead of 'reading_23'."
