"""The request as seen by SQL, and SQL settings that affect the response."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create table log (id serial primary key, line text);
create view told as select 1 as id, current_user::text as role,
    current_setting('request.jwt.claims', true)::text as claims,
    current_setting('request.headers', true)::json ->> 'x-extra' as header,
    current_setting('request.method', true) as method, current_setting('request.path', true) as path,
    current_setting('transaction_read_only') as read_only, current_setting('search_path') as search_path;
comment on view told is '@graphql({"primary_key_columns": ["id"]})';
create table t (id int primary key, at timestamptz, local timestamp, day date, span interval, bytes bytea);
insert into t select n, timestamptz '2024-06-30 22:00+00' + n * interval '1 hour',
    timestamp '2024-02-01 10:00' + n * interval '1 day', date '2024-02-01' + n, n * interval '1 day 1 hour',
    int4send(n) from generate_series(1, 8) n;
create function _writing(t) returns text volatile language sql as
    'insert into log (line) values (''no'') returning line';
create function _slow(t) returns int stable language plpgsql as 'begin perform pg_sleep(5); return 1; end';
create function before() returns void language plpgsql as $$ begin
    if current_setting('request.headers', true)::json ->> 'x-extra' = 'stop' then
        raise exception 'stopped before' using errcode = 'P0001';
    end if;
    perform set_config('app.before', 'ran', true);
end $$;
create view ran as select 1 as id, current_setting('app.before', true) as before;
comment on view ran is '@graphql({"primary_key_columns": ["id"]})';
do $$ begin create role q_hurried nologin; exception when duplicate_object then end $$;
grant q_hurried to authenticator;
alter role q_hurried set statement_timeout = '50ms';
grant select, insert on all tables in schema public to anon, authenticated, q_hurried;
grant usage on all sequences in schema public to anon;
"""


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    database = server.create_database(SCHEMA)
    database.execute(
        f"alter database {database.name} set timezone = 'Asia/Kolkata';"
        f"alter database {database.name} set datestyle = 'SQL, DMY';"
        f"alter database {database.name} set intervalstyle = 'iso_8601'"
    )
    with serving(reactor, database) as service:
        yield service
    server.admin.execute("drop owned by q_hurried")


async def test_sql_sees_the_role_and_request(api: Service) -> None:
    [row] = await api.rows(
        "told", "role claims header method path read_only", headers={"X-Extra": "hé 'quoted'"}
    )
    assert row["role"] == "anon"
    assert row["header"] == "hé 'quoted'"
    assert (row["method"], row["path"], row["read_only"]) == ("POST", "/graphql/v1", "on")
    [row] = await api.rows("told", "role claims", role="authenticated")
    assert row["role"] == "authenticated"
    assert json.loads(row["claims"])["sub"] == "a user of authenticated"


async def test_query_cannot_write(api: Service) -> None:
    response = await api.ask("{ tCollection(first: 1) { edges { node { writing } } } }")
    assert response.errors[0]["extensions"] == {"code": "25006"}
    assert api.database.execute("select count(*) from log") == [(0,)]


async def test_roles_own_settings_apply(api: Service) -> None:
    response = await api.ask("{ tByPk(id: 1) { slow } }", role="q_hurried")
    assert response.errors[0]["extensions"]["code"] == "57014"
    assert response.body["data"] is None
    assert (await api.data("{ tByPk(id: 1) { id } }", role="q_hurried"))["tByPk"] == {"id": 1}


async def test_times_are_iso_8601_whatever_the_database_prefers(api: Service) -> None:
    [row] = await api.rows("t", "at local day span", "first: 1")
    assert row == {
        "at": "2024-07-01T04:30:00+05:30",
        "local": "2024-02-02T10:00:00",
        "day": "2024-02-02",
        "span": "P1DT1H",
    }
    condition = ", ".join(f'{name}: {{eq: "{row[name]}"}}' for name in ("at", "local", "day", "span"))
    assert await api.ids("t", f"filter: {{{condition}}}") == [1]


@pytest.mark.parametrize("column", ["at", "local", "day", "span", "bytes"])
async def test_cursors_of_times_are_read_back_the_same(api: Service, column: str) -> None:
    found: list[int] = []
    cursor = None
    while len(found) < 9:
        query = f"""query($a: Cursor) {{
            tCollection(first: 3, after: $a, orderBy: {{{column}: AscNullsLast}}) {{
                edges {{ node {{ id }} }} pageInfo {{ endCursor hasNextPage }} }} }}"""
        page = (await api.data(query, {"a": cursor}))["tCollection"]
        found += [node["id"] for node in nodes(page)]
        cursor = page["pageInfo"]["endCursor"]
        if not page["pageInfo"]["hasNextPage"]:
            break
    assert found == list(range(1, 9))


async def test_db_max_rows_is_the_page_cap_without_a_directive(api: Service, reactor: Any) -> None:
    service = Service(reactor, api.database, db_max_rows=2)
    await service.start()
    try:
        assert await service.ids("t") == [1, 2]
        assert await service.ids("t", "first: 5") == [1, 2]
    finally:
        await service.stop()


async def test_pre_request_function_runs_first(api: Service, reactor: Any) -> None:
    service = Service(reactor, api.database, db_pre_request="public.before")
    await service.start()
    try:
        response = await service.ask("{ ranByPk(id: 1) { before } }")
        assert response.data == {"ranByPk": {"before": "ran"}}
        assert len(response.messages) == 1
        response = await service.ask("{ ranByPk(id: 1) { before } }", headers={"X-Extra": "stop"})
        assert response.error == "stopped before"
        assert response.body["data"] is None
    finally:
        await service.stop()


async def test_additional_members_of_requests_are_accepted(api: Service) -> None:
    body = {"query": "query A { tByPk(id: 1) { id } }", "variables": None, "operationName": None}
    extras: list[dict[str, Any]] = [
        {},
        {"extensions": {}},
        {"extensions": None, "id": 3},
        {"operationName": "A"},
    ]
    for extra in extras:
        response = await api.send(json.dumps({**body, **extra}).encode())
        assert response.body == {"data": {"tByPk": {"id": 1}}}
    accept = "application/graphql-response+json,application/json;q=0.9"
    response = await api.send(json.dumps(body).encode(), headers={"accept": accept})
    assert response.headers["content-type"].startswith("application/graphql-response+json")
    assert response.body == {"data": {"tByPk": {"id": 1}}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"query": "{ __typename }", "variables": []}, "variables must be an object"),
        ({"query": "{ __typename }", "variables": "{}"}, "variables must be an object"),
        ({"query": 1}, "query must be a string"),
        ({}, "query is missing"),
        ([], "batches are not supported"),
    ],
)
async def test_malformed_bodies_are_rejected(api: Service, body: object, message: str) -> None:
    response = await api.send(json.dumps(body).encode())
    assert message in response.error
    assert response.status == 400
    assert response.messages == ()
