"""A cached plan does not change the response to a request."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.service import Answer, Service

SCHEMA = """
create table team (id int primary key, name text not null);
create table player (id int primary key, name text, team_id int references team, score int default 7);
insert into team values (1, 'red'), (2, 'blue');
create function score_of(name text, variadic bonus int[] default '{}') returns int
language sql stable as $$
  select player.score + coalesce((select sum(each)::int from unnest(bonus) as each), 0)
  from player where player.name = $1
$$;
create function players(at_least int default 0) returns setof player
language sql stable as 'select * from player where score >= at_least order by id';
create function whole(json) returns json language sql as 'select $1';
grant all on team, player to anon;
"""
RESET = """
truncate player;
insert into player values (1, 'Ann', 1, 3), (2, 'Bob', 1, null), (3, 'Cy', 2, 9);
"""

JSON = {"content-type": "application/json"}
OBJECT = "application/vnd.pgrst.object+json"
REQUESTS: list[tuple[str, str, Any, dict[str, str]]] = [
    ("GET", "player?select=id,name&id=eq.1", None, {}),
    ("GET", "player?select=id,name&id=eq.3", None, {}),
    ("HEAD", "player?select=id,name&id=eq.3", None, {}),
    ("GET", "player?select=id,name&id=eq.3", None, {"accept": OBJECT}),
    ("GET", "player?select=id,name&id=gt.1&order=id", None, {"accept": OBJECT}),
    ("GET", "player?select=id,name&id=gt.1&order=id", None, {"accept": "text/csv"}),
    ("GET", "player?select=id&order=id&limit=1&offset=1", None, {}),
    ("GET", "player?select=id&order=id&limit=1&offset=2", None, {"prefer": "count=exact"}),
    ("GET", "player?select=id&order=id&limit=1&offset=9", None, {"prefer": "count=exact"}),
    ("GET", "player?select=id&order=id", None, {"prefer": "count=planned"}),
    ("GET", "player?select=id&order=id", None, {"range": "0-1", "range-unit": "items"}),
    ("GET", "player?select=id&order=id", None, {"prefer": "timezone=Europe/Berlin"}),
    ("GET", "player?select=id&order=id", None, {"prefer": "handling=strict, timezone=Nowhere/Else"}),
    ("GET", "player?select=id,team(name)&team.name=eq.blue&order=id", None, {}),
    ("GET", "player?select=nothing", None, {}),
    ("GET", "nowhere", None, {}),
    ("OPTIONS", "player", None, {}),
    ("POST", "player?columns=id,name", {"id": 10, "name": "Di"}, {"prefer": "tx=rollback"}),
    ("POST", "player", {"id": 11, "name": "Ed"}, {"prefer": "return=representation"}),
    ("POST", "player", [{"id": 12, "name": "Flo"}], {"prefer": "return=headers-only"}),
    ("POST", "player", {"id": 1, "name": "taken"}, {}),
    ("POST", "player", {"id": 1, "score": 5},
     {"prefer": "resolution=merge-duplicates,return=representation"}),
    ("POST", "player?columns=id", {"id": 13}, {"prefer": "missing=default,return=representation"}),
    ("PUT", "player?id=eq.1", {"id": 1, "name": "Ann", "team_id": 1, "score": 3}, {}),
    ("PUT", "player?id=eq.2", {"id": 1, "name": "Ann", "team_id": 1, "score": 3}, {}),
    ("PATCH", "player?id=eq.1", {"score": 4}, {"prefer": "return=representation"}),
    ("PATCH", "player?id=eq.1", {"score": 4}, {"prefer": "return=representation,count=exact"}),
    ("PATCH", "player?id=gt.0", {"score": 4}, {"prefer": "handling=strict,max-affected=1"}),
    ("PATCH", "player?id=gt.2", {"score": 4}, {"prefer": "handling=strict,max-affected=1"}),
    ("PATCH", "player", [{"id": 1, "score": 8}, {"id": 3, "score": 8}],
     {"prefer": "resolution=match,return=representation"}),
    ("PATCH", "player", [{"id": 1, "score": 8}, {"id": 3, "name": "Cyd"}],
     {"prefer": "resolution=match,return=representation"}),
    ("PATCH", "player", [{"id": 1, "score": 8}, {"id": 1, "score": 9}], {"prefer": "resolution=match"}),
    ("PATCH", "player", [{"id": 1, "score": 8}, {"score": 9}], {"prefer": "resolution=match"}),
    ("GET", "rpc/score_of?name=Ann", None, {}),
    ("GET", "rpc/score_of?name=Cy", None, {}),
    ("GET", "rpc/score_of?name=Ann&bonus=1", None, {}),
    ("GET", "rpc/score_of?name=Ann&bonus=1&bonus=20", None, {}),
    ("GET", "rpc/score_of?name=eq.Ann", None, {}),
    ("GET", "rpc/players?at_least=5&id=gt.1&select=id", None, {}),
    ("GET", "rpc/players?at_least=gt.5&id=gt.1&select=id", None, {}),
    ("GET", "rpc/players?id=gt.1&select=id", None, {"accept": OBJECT}),
    ("GET", "rpc/players?limit=1&offset=1&select=id", None, {"prefer": "count=exact"}),
    ("GET", "rpc/players", None, {"accept": "application/x-ndjson"}),
    ("GET", "rpc/players", None,
     {"accept": "application/x-ndjson", "prefer": "handling=strict,max-affected=1"}),
    ("POST", "rpc/players", {"at_least": 4}, {"prefer": "handling=strict,max-affected=1"}),
    ("POST", "rpc/players", {"at_least": 3}, {"prefer": "handling=strict,max-affected=1"}),
    ("POST", "rpc/score_of", {"name": "Cy", "bonus": [1, 2]}, {}),
    ("POST", "rpc/whole", [{"a": 1}, {"b": 2}], {}),
    ("POST", "rpc/players", [{"a": 1}, {"b": 2}], {}),
    ("HEAD", "rpc/players", None, {}),
    ("OPTIONS", "rpc/players", None, {}),
    ("DELETE", "rpc/players", None, {}),
    ("DELETE", "player?id=eq.12", None, {"prefer": "return=representation"}),
    ("DELETE", "player?id=eq.13", None, {}),
]  # fmt: skip


async def send_and_reset(api: Service, number: int) -> tuple[int, Any, dict[str, str]]:
    """Return the response, except headers that vary. Undo the request's changes."""
    method, target, body, headers = REQUESTS[number]
    response: Answer = await api.rest(method, target, body, headers={**(JSON if body else {}), **headers})
    if method in ("POST", "PUT", "PATCH", "DELETE") and response.status < 300:
        await api.execute(RESET)
    stable_headers = {
        name: value for name, value in response.headers.items() if name not in ("date", "x-request-id")
    }
    return response.status, response.text, stable_headers


async def test_cached_plan_gives_the_same_response(api: Service) -> None:
    await api.execute(RESET)
    fresh = []
    for number in range(len(REQUESTS)):
        api.handler._roles.clear()
        fresh.append(await send_and_reset(api, number))
    assert {200, 201, 204, 206, 400, 404, 406, 409, 416} <= {status for status, _, _ in fresh}
    order = [*range(len(REQUESTS))] * 2
    random.Random(0).shuffle(order)
    for number in order:
        assert await send_and_reset(api, number) == fresh[number], REQUESTS[number]
