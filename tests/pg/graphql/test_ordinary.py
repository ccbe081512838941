"""Queries of ordinary applications do not exceed the default limits."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.graphql.document import Limits
from dataapi.settings import Project
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

LEVELS = ("region", "country", "city", "street")
SCHEMA = f"""
create table region (id int primary key, name text);
create table country (id int primary key, region_id int references region);
create table city (id int primary key, country_id int references country);
create table street (id int primary key, city_id int references city);
create table person (
    id int primary key, name text, email text, born date, score numeric, boss_id int references person
);
create table shop (id int primary key);
create table sale (id int primary key, shop_id int references shop);
comment on table shop is '@graphql({{"max_rows": 1000}})';
comment on table sale is '@graphql({{"max_rows": 1000}})';
{"".join(f"insert into {table} values (1); insert into {table} values (2);" for table in LEVELS)}
insert into person (id, name, boss_id) values (1, 'one', 1);
insert into shop values (1);
insert into sale values (1, 1);
grant all on all tables in schema public to anon;
"""
DEFAULTS = {item.name: item.default for item in fields(Project) if item.name.startswith("graphql_max_")}


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve tables without row estimates, so that costs depend only on page sizes."""
    with serving(reactor, server.create_database(SCHEMA), **DEFAULTS) as service:
        yield service


def test_default_limits_match_the_settings() -> None:
    limits = Limits()
    assert list(DEFAULTS.values()) == [limits.depth, limits.aliases, limits.tokens, limits.cost]


def collections(*tables: str) -> str:
    inner = collections(*tables[1:]) if tables[1:] else ""
    return f"{tables[0]}Collection {{ edges {{ node {{ id {inner} }} }} }}"


@pytest.mark.parametrize("tables", [LEVELS, ("shop", "sale")], ids=["four", "two of 1,000 rows"])
async def test_collections_nested_in_pages_of_the_usual_size(api: Service, tables: tuple[str, ...]) -> None:
    data = await api.data(f"{{ {collections(*tables)} }}")
    assert data[f"{tables[0]}Collection"]["edges"]


async def test_many_rows_can_be_written_into_the_document(api: Service) -> None:
    for count in (300, 1000):
        rows = ", ".join(
            f'{{id: {count + n}, name: "name {n}", email: "mail {n}", born: "2000-01-01"}}'
            for n in range(count)
        )
        data = await api.data(
            f"mutation {{ insertIntopersonCollection(objects: [{rows}]) {{ affectedCount }} }}"
        )
        assert data["insertIntopersonCollection"]["affectedCount"] == count


async def test_hundred_aliases_are_accepted(api: Service) -> None:
    data = await api.data(f"{{ {' '.join(f'a{n}: personByPk(id: {n}) {{ name }}' for n in range(101))} }}")
    assert len(data) == 101


@pytest.mark.parametrize("depth", [21, 50])
async def test_deep_selections_are_accepted(api: Service, depth: int) -> None:
    inner = "{ person " * (depth - 2) + "{ id }" + " }" * (depth - 2)
    assert (await api.data(f"{{ personByPk(id: 1) {inner} }}"))["personByPk"]


async def test_long_lists_and_many_conditions_work(api: Service) -> None:
    query = "{ personCollection(filter: {%s}) { edges { node { id } } } }"
    await api.data(query % f"id: {{in: [{', '.join(map(str, range(10_000)))}]}}")
    await api.data(query % f"or: [{', '.join(f'{{id: {{eq: {n}}}}}' for n in range(1000))}]")
