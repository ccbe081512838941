"""Operators of filters and of functions (docs/rest.md, Where it differs from PostgREST)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server
    from support.service import Service

SCHEMA = """
create schema extensions;
create extension ltree schema extensions;
create table place (id int primary key, path extensions.ltree, size int);
insert into place values (1, 'a.b', 1), (2, 'a', 5), (3, 'c', 6);
create function near(int, int) returns boolean immutable language sql as 'select abs($1 - $2) <= 1';
create operator @> (leftarg = int, rightarg = int, function = near);
create function places_near(size int) returns setof place stable language sql
    as 'select * from place where place.size operator(public.@>) places_near.size';
create function is_small(place) returns boolean stable language sql as 'select $1.size @> 0';
grant select on place to anon, authenticated;
grant usage on schema extensions to anon;
"""


@pytest.fixture(scope="module")
def service(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve tables with an extension's type. The extension's schema is not in the search path."""
    server.require("ltree")
    with serving(reactor, server.create_database(SCHEMA), db_extra_search_path=()) as service:
        yield service


@pytest.mark.parametrize(
    ("parameters", "ids"),
    [
        ("path=cs.a.b", [1, 2]),
        ("path=cd.a", [1, 2]),
        ("path=match.*.b", [1]),
        ("path=in.(a,c)", [2, 3]),
        ("path=gt.a&order=path.desc", [3, 1]),
    ],
)
async def test_operators_of_extension_types_are_found(
    service: Service, parameters: str, ids: list[int]
) -> None:
    """The role needs USAGE on the extension's schema, but no entry in the search path."""
    response = await service.rest("GET", f"place?select=id&{parameters}")
    assert [row["id"] for row in response.body] == ids
    response = await service.rest("GET", f"place?select=id&{parameters}", role="authenticated")
    assert (response.status, response.body["code"]) == (403, "42501")


async def test_user_defined_operators_on_built_in_types_are_not_found(service: Service) -> None:
    response = await service.rest("GET", "place?size=cs.5")
    assert (response.status, response.body["code"]) == (404, "42883")


@pytest.mark.parametrize(
    ("target", "ids"),
    [
        ("rpc/places_near?size=5&select=id&order=id", [2, 3]),
        ("rpc/places_near?size=5&select=id&path=cs.a", [2]),
        ("place?is_small=is.true&select=id", [1]),
        ("place?or=(is_small.is.true,path.eq.c)&select=id&order=id", [1, 3]),
    ],
)
async def test_functions_can_use_any_operator(service: Service, target: str, ids: list[int]) -> None:
    response = await service.rest("GET", target)
    assert response.status == 200, response.text
    assert [row["id"] for row in response.body] == ids
