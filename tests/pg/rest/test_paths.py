"""Names with characters that paths give a meaning to: a path is split before it is decoded."""

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
async def test_any_name_is_found_by_its_path(api: Service, name: str) -> None:
    """Of a table and of a function, as descriptions list them; ``Location`` leads back."""
    path = quote(name, safe="")
    answer = await api.rest("GET", path)
    assert (answer.status, answer.body) == (200, [{"id": 1, "name": name}])
    answer = await api.rest("GET", f"rpc/{quote(f'f{name}', safe='')}")
    assert (answer.status, answer.body) == (200, name)
    made = await api.rest("POST", path, {"id": 2}, headers={"prefer": "return=headers-only"})
    assert made.headers["location"] == f"/{path}?id=eq.2"
    found = await api.rest("GET", made.headers["location"].removeprefix("/"))
    assert found.body == [{"id": 2, "name": None}]
    removal = {"requests": [{"method": "DELETE", "path": f"/{path}?id=eq.2"}]}
    answer = await api.rest("POST", "", removal, headers={"content-type": batch.MEDIA_TYPE})
    assert answer.status == 200
    assert len((await api.rest("GET", path)).body) == 1


async def test_descriptions_list_paths_that_are_found(api: Service) -> None:
    for version in ("2.0", "3.1"):
        described = await api.rest("GET", f"?openapi={version}")
        paths = [path for path in json.loads(described.text)["paths"] if path != "/"]
        assert len(paths) == 2 * (len(NAMES) + 1)
        for path in paths:
            assert (await api.rest("GET", path.removeprefix("/"))).status == 200, path


async def test_a_slash_of_the_path_itself_is_none_of_a_name(api: Service) -> None:
    assert (await api.rest("GET", "rpc/a")).body == 7
    for path in ("a/b", "rpc/a/b", "rpc/"):
        assert (await api.rest("GET", path)).status == 404
