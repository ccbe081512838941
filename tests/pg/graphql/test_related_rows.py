"""Related to-one rows in pages of both APIs, fetched by a join or by a lookup per row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

KINDS = range(1, 8)
SCHEMA = f"""
create table place (id int primary key, name text not null, "aboveId" int references place);
insert into place select n, 'place ' || n, nullif(n - 1, 0) from generate_series(1, 12) as n;

create table maker (id int primary key, name text);
insert into maker select n, 'maker ' || n from generate_series(1, 40) as n;
create table thing (id int primary key, name text, maker_id int references maker);
insert into thing select n, 'thing ' || n * 7919 % 211, n * 31 % 41 from generate_series(1, 200) as n
    where n * 31 % 41 > 0;
insert into thing values (201, 'nobody''s', null);

create function _fragile(maker) returns text language plpgsql stable as $$
begin
    if $1.id > 20 then
        raise exception 'called for %', $1.id;
    end if;
    return $1.name;
end $$;
create function _strange(maker) returns text language plpgsql volatile as $$
begin
    if $1.id is null then
        raise exception 'called for nobody';
    end if;
    return $1.name;
end $$;

{"".join(f"create table kind{n} (id int primary key, name text);" for n in KINDS)}
{"".join(f"insert into kind{n} values ({n}, 'k{n}');" for n in KINDS)}
create table sorted (id int primary key, {", ".join(f"kind{n}_id int references kind{n}" for n in KINDS)});
insert into sorted values (1, {", ".join(map(str, KINDS))}), (2{", null" * len(KINDS)});

create table secret (id int primary key, name text);
insert into secret values (1, 'seen'), (2, 'hidden');
alter table secret enable row level security;
create policy first on secret to anon using (id = 1);
create table keeper (id int primary key, secret_id int references secret);
insert into keeper values (1, 1), (2, 2), (3, null);

create table animal (id int primary key, name text);
create table dog () inherits (animal);
insert into animal values (1, 'cat'), (2, 'cow');
insert into dog values (1, 'dog');
create table owner (id int primary key, animal_id int references animal);
insert into owner values (1, 1), (2, 2);

create type point2 as (x int, y int);
create table spot (at point2 primary key, name text);
insert into spot values (row(1, null), 'half');
create table visit (id int primary key, spot point2 references spot);
insert into visit values (1, row(1, null)), (2, null);
grant all on all tables in schema public to anon;
"""


@pytest.fixture(scope="module")
def service(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA)) as running:
        yield running


async def test_relationships_of_any_depth_are_followed(service: Service) -> None:
    deep = "name"
    for _ in range(9):
        deep = f"name above {{ {deep} }}"
    data = await service.data(f"{{ placeCollection(last: 6) {{ edges {{ node {{ id {deep} }} }} }} }}")
    for found in nodes(data["placeCollection"]):
        names, row = [], found
        while row is not None:
            names.append(row["name"])
            row = row.get("above")
        assert names == [f"place {n}" for n in range(found["id"], max(0, found["id"] - 10), -1)]


async def test_any_number_of_relationships_is_followed(service: Service) -> None:
    fields = " ".join(f"kind{n} {{ name }}" for n in KINDS)
    data = await service.data(f"{{ sortedCollection {{ edges {{ node {{ {fields} }} }} }} }}")
    assert nodes(data["sortedCollection"]) == [
        {f"kind{n}": {"name": f"k{n}"} for n in KINDS},
        {f"kind{n}": None for n in KINDS},
    ]


THINGS = """thingCollection({}, orderBy: [{{name: DescNullsLast}}]) {{
    edges {{ node {{ id maker {{ id name }} }} }} {} }}"""


async def test_pages_with_related_rows_preserve_order(service: Service) -> None:
    [(ids,)] = service.database.execute("select array_agg(id order by name desc, id) from thing")
    info = "pageInfo { hasNextPage endCursor hasPreviousPage startCursor }"
    for first, after, on, end in (
        ("first", "after", "hasNextPage", "endCursor"),
        ("last", "before", "hasPreviousPage", "startCursor"),
    ):
        found: list[Any] = []
        page, more = f"{first}: 29", True
        while more:
            data = await service.data("{ " + THINGS.format(page, info) + " }")
            some = [(row["id"], row["maker"]) for row in nodes(data["thingCollection"])]
            found = [*found, *some] if first == "first" else [*some, *found]
            facts = data["thingCollection"]["pageInfo"]
            page, more = f'{first}: 29, {after}: "{facts[end]}"', facts[on]
        assert [number for number, _ in found] == ids
        makers = dict(service.database.execute("select id, maker_id from thing"))
        assert all((maker and maker["id"]) == makers[number] for number, maker in found)


async def test_rest_pages_with_related_rows_preserve_order(service: Service) -> None:
    [(ids,)] = service.database.execute(
        "select array_agg(id) from (select id from thing order by name desc, id limit 50 offset 100) as t"
    )
    response = await service.rest("GET", "thing?select=id,maker(name)&order=name.desc,id&limit=50&offset=100")
    assert [row["id"] for row in response.body] == ids


async def test_computed_fields_are_called_only_for_returned_rows(service: Service) -> None:
    [(ids,)] = service.database.execute("select array_agg(id) from thing where maker_id <= 20 or id = 201")
    fields = "id maker { name fragile strange }"
    chosen = f"filter: {{id: {{in: {ids}}}}}, first: 30"
    data = await service.data(f"{{ thingCollection({chosen}) {{ edges {{ node {{ {fields} }} }} }} }}")
    rows = nodes(data["thingCollection"])
    assert len(rows) == 30
    makers = [row["maker"] for row in rows if row["maker"]]
    assert all(maker["fragile"] == maker["strange"] == maker["name"] for maker in makers)
    response = await service.rest(
        "GET", "thing?select=id,maker(fragile:_fragile)&id=in.(201," + str(ids[0]) + ")"
    )
    assert sorted(bool(row["maker"]) for row in response.body) == [False, True]


async def test_rows_that_a_policy_hides_are_null(service: Service) -> None:
    data = await service.data("{ keeperCollection { edges { node { id secret { name } } } } }")
    assert [row["secret"] for row in nodes(data["keeperCollection"])] == [{"name": "seen"}, None, None]


async def test_duplicate_keys_in_child_tables_do_not_duplicate_rows(service: Service) -> None:
    """PostgreSQL does not enforce keys across a table and its child tables."""
    data = await service.data("{ ownerCollection { edges { node { id animal { id } } } } }")
    expected = [{"id": 1, "animal": {"id": 1}}, {"id": 2, "animal": {"id": 2}}]
    assert nodes(data["ownerCollection"]) == expected
    response = await service.rest("GET", "owner?select=id,animal(id)&order=id")
    assert response.body == expected
    assert (await service.data("{ animalByPk(id: 1) { id } }"))["animalByPk"] == {"id": 1}


async def test_composite_keys_with_nulls_are_followed(service: Service) -> None:
    response = await service.rest("GET", "visit?select=id,spot:visit_spot_fkey(name)&order=id")
    assert response.body == [{"id": 1, "spot": {"name": "half"}}, {"id": 2, "spot": None}]


async def test_changed_rows_are_shown_with_their_related_ones_in_order(service: Service) -> None:
    rows = ", ".join(f'{{id: {1000 + n * 37 % 50}, name: "x", maker_id: {n % 5 + 1}}}' for n in range(50))
    insert = f"insertIntothingCollection(objects: [{rows}]) {{ records {{ id maker {{ id }} }} }}"
    records = (await service.data(f"mutation {{ {insert} }}"))["insertIntothingCollection"]["records"]
    assert [(row["id"], row["maker"]["id"]) for row in records] == [
        (1000 + n * 37 % 50, n % 5 + 1) for n in range(50)
    ]
    gone = "deleteFromthingCollection(filter: {id: {gte: 1000}}, atMost: 50) { records { maker { name } } }"
    records = (await service.data(f"mutation {{ {gone} }}"))["deleteFromthingCollection"]["records"]
    assert sorted(row["maker"]["name"] for row in records) == [f"maker {n // 10 + 1}" for n in range(50)]
