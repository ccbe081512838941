"""Names with special characters: a path is split before it is decoded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from dataapi.rest import batch

if TYPE_CHECKING:
    from support.service import Service

NAMES = ("a/b", "rpc/a", "/", "100%", "a%2Fb", "a%252Fb", "%25", "ä b?#")
TABLES = "\n".join(
    f'create table "{name}" (id int primary key, name text); insert into "{name}" values (1, \'{name}\');'
    f"create function \"f{name}\"() returns text language sql stable as $$ select '{name}'::text $$;"
    for name in NAMES
)
SCHEMA = f"""
{TABLES}
create table "a" (id int primary key);
create function a() returns int language sql stable as 'select 7';
grant all on all tables in schema public to anon;
"""


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_can_be_addressed_by_its_path(api: Service, name: str) -> None:
    path = quote(name, safe="")
    response = await api.rest("GET", path)
    assert (response.status, response.body) == (200, [{"id": 1, "name": name}])
    response = await api.rest("GET", f"rpc/{quote(f'f{name}', safe='')}")
    assert (response.status, response.body) == (200, name)
    made = await api.rest("POST", path, {"id": 2}, headers={"prefer": "return=headers-only"})
    assert made.headers["location"] == f"/{path}?id=eq.2"
    fetched = await api.rest("GET", made.headers["location"].removeprefix("/"))
    assert fetched.body == [{"id": 2, "name": None}]
    removal = {"requests": [{"method": "DELETE", "path": f"/{path}?id=eq.2"}]}
    response = await api.rest("POST", "", removal, headers={"content-type": batch.MEDIA_TYPE})
    assert response.status == 200
    assert len((await api.rest("GET", path)).body) == 1


async def test_described_paths_exist(api: Service) -> None:
    for version in ("2.0", "3.1"):
        described = await api.rest("GET", f"?openapi={version}")
        paths = [path for path in json.loads(described.text)["paths"] if path != "/"]
        assert len(paths) == 2 * (len(NAMES) + 1)
        for path in paths:
            assert (await api.rest("GET", path.removeprefix("/"))).status == 200, path


async def test_unescaped_slash_is_not_part_of_a_name(api: Service) -> None:
    assert (await api.rest("GET", "rpc/a")).body == 7
    for path in ("a/b", "rpc/a/b", "rpc/"):
        assert (await api.rest("GET", path)).status == 404
