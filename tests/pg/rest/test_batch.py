"""Batches of REST requests in one transaction. All requests succeed or none, with their usual responses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.rest import batch
from dataapi.settings import TransactionEnd
from support.service import Answer, Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create schema other;
create table account (id int primary key, owner text not null, balance numeric not null check (balance >= 0));
create table other.account (id int primary key, owner text not null);
create table secret (id int);
create table delayed (id int primary key, account int references account deferrable initially deferred);
create sequence calls;
create function add_call() returns bigint volatile language sql as $$
    insert into account select 100 + nextval('calls'), 'called', 0 returning 1::bigint $$;
create function level() returns text stable language sql set default_transaction_isolation = 'serializable'
    as $$ select current_setting('transaction_isolation') $$;
create function lower_level() returns text stable language sql
    set default_transaction_isolation = 'repeatable read'
    as $$ select current_setting('transaction_isolation') $$;
create function told() returns json volatile language sql as $$
    select json_build_object(
        'path', current_setting('request.path'), 'method', current_setting('request.method'),
        'role', current_user, 'zone', current_setting('TimeZone'),
        'only', current_setting('transaction_read_only')) $$;
create function teapot() returns text volatile language sql as $$
    select set_config('response.status', '418', true) $$;
create function act_as_service() returns text volatile language sql as $$
    select set_config('role', 'service_role', true) $$;
grant usage on schema other to anon, authenticated;
grant all on account, other.account, delayed, calls to anon, authenticated;
"""
START = "truncate account, other.account, delayed; insert into account values (1, 'ada', 50), (2, 'bob', 10)"


@pytest.fixture(scope="module", params=[True, False], ids=["prepared", "inlined"])
def served(request: pytest.FixtureRequest, server: Server, reactor: Any) -> Iterator[Service]:
    database = server.create_database(SCHEMA)
    settings = {"db_schemas": ("public", "other"), "db_prepared_statements": request.param}
    with serving(reactor, database, db_tx_end=TransactionEnd.COMMIT_ALLOW_OVERRIDE, **settings) as service:
        yield service


@pytest.fixture
def api(served: Service) -> Service:
    served.database.execute(START)
    return served


async def send(api: Service, *requests: Any, role: str = "anon", **headers: str) -> Answer:
    sent = {"content-type": batch.MEDIA_TYPE, **headers}
    return await api.rest("POST", "", json.dumps({"requests": list(requests)}), role=role, headers=sent)


def batched(method: str, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
    """Return a request for a batch. Underscores in header names become hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"method": method, "path": path, "headers": named} | ({} if body is None else {"body": body})


def balances(api: Service) -> dict[int, int]:
    return {number: int(sum_) for number, sum_ in api.database.execute("select id, balance from account")}


async def test_each_request_gets_the_response_of_a_separate_request(api: Service) -> None:
    response = await send(
        api,
        batched("POST", "/account", {"id": 3, "owner": "cy", "balance": 5}),
        batched("PATCH", "/account?id=eq.1", {"balance": 45}, Prefer="return=representation"),
        batched("GET", "/account?select=id,balance&order=id", Prefer="count=exact"),
        batched("GET", "/account?id=eq.3", Accept="application/vnd.pgrst.object+json"),
        batched("DELETE", "/account?id=eq.2"),
        batched("HEAD", "/account"),
        batched("GET", "/account?select=owner&order=id", Accept="text/csv"),
    )
    assert response.status == 200
    assert [one["status"] for one in response.body] == [201, 200, 200, 200, 204, 200, 200]
    bodies = [one["body"] for one in response.body]
    assert bodies[0] is bodies[4] is bodies[5] is None
    assert bodies[1] == [{"id": 1, "owner": "ada", "balance": 45}]
    assert bodies[2] == [{"id": 1, "balance": 45}, {"id": 2, "balance": 10}, {"id": 3, "balance": 5}]
    assert bodies[3] == {"id": 3, "owner": "cy", "balance": 5}
    assert bodies[6].split() == ["owner", "ada", "cy"]
    assert response.body[2]["headers"]["Content-Range"] == "0-2/3"
    assert balances(api) == {1: 45, 3: 5}


@pytest.mark.parametrize(
    ("failing", "status", "code"),
    [
        (batched("PATCH", "/account?id=eq.2", {"balance": -1}), 400, "23514"),
        (batched("POST", "/account", {"id": 1, "owner": "x", "balance": 0}), 409, "23505"),
        (batched("GET", "/account?id=eq.99", Accept="application/vnd.pgrst.object+json"), 406, "PGRST116"),
        (batched("GET", "/nowhere"), 404, "PGRST205"),
        (batched("GET", "/account?id=nonsense.1"), 400, "PGRST100"),
        (batched("GET", "/account", Accept_Profile="hidden"), 406, "PGRST106"),
        (batched("GET", "/account", Accept="image/png"), 406, "PGRST107"),
        (batched("GET", "/rpc/add_call"), 405, None),
    ],
)
async def test_error_rolls_back_the_batch_and_reports_the_index(
    api: Service, failing: dict[str, Any], status: int, code: str | None
) -> None:
    first = batched("PATCH", "/account?id=eq.1", {"balance": 0})
    response = await send(api, first, failing, first)
    assert response.status == status
    assert response.body["index"] == 1
    assert response.body.keys() == {"code", "message", "details", "hint", "index"}
    assert code is None or response.body["code"] == code
    assert balances(api) == {1: 50, 2: 10}
    [after] = (await send(api, batched("GET", "/account?select=id&order=id"))).body
    assert after["body"] == [{"id": 1}, {"id": 2}]


async def test_deferred_constraint_rolls_back_the_batch(api: Service) -> None:
    response = await send(
        api,
        batched("POST", "/delayed", {"id": 1, "account": 9}),
        batched("PATCH", "/account?id=eq.1", {"balance": 1}),
    )
    assert (response.status, response.body["code"]) == (409, "23503")
    assert "index" not in response.body
    assert balances(api) == {1: 50, 2: 10}
    good = await send(
        api,
        batched("POST", "/delayed", {"id": 1, "account": 9}),
        batched("POST", "/account", {"id": 9, "owner": "late", "balance": 0}),
    )
    assert good.status == 200


async def test_post_can_write_before_and_after_a_get(api: Service) -> None:
    write, read = batched("POST", "/rpc/add_call"), batched("GET", "/account?select=id")
    response = await send(api, write, read, write, read)
    assert response.status == 200
    assert len(response.body[3]["body"]) == 4
    shown = await send(
        api, batched("GET", "/rpc/level"), batched("POST", "/rpc/told"), batched("GET", "/rpc/level")
    )
    assert shown.body[1]["body"]["only"] == "off"


async def test_sql_sees_the_settings_of_each_request(api: Service) -> None:
    response = await send(
        api,
        batched("POST", "/rpc/told", Prefer="timezone=Asia/Tokyo"),
        batched("POST", "/rpc/told"),
        role="authenticated",
    )
    reported = [one["body"] for one in response.body]
    assert [one["zone"] for one in reported] == ["Asia/Tokyo", reported[1]["zone"]]
    assert reported[1]["zone"] != "Asia/Tokyo"
    assert {(one["path"], one["method"], one["role"]) for one in reported} == {
        ("/rpc/told", "POST", "authenticated")
    }


async def test_role_set_by_a_function_is_reset_for_the_next_request(api: Service) -> None:
    response = await send(api, batched("POST", "/rpc/act_as_service", {}), batched("POST", "/rpc/told", {}))
    changed, reported = [one["body"] for one in response.body]
    assert (changed, reported["role"]) == ("service_role", "anon")


async def test_response_settings_apply_to_one_request_only(api: Service) -> None:
    response = await send(api, batched("POST", "/rpc/teapot"), batched("GET", "/account"))
    assert [one["status"] for one in response.body] == [418, 200]


async def test_isolation_level_of_a_function_applies_to_the_batch(api: Service) -> None:
    response = await send(api, batched("GET", "/account"), batched("GET", "/rpc/level"))
    assert response.body[1]["body"] == "serializable"
    response = await send(api, batched("GET", "/rpc/level"), batched("GET", "/rpc/lower_level"))
    assert [one["body"] for one in response.body] == ["serializable", "serializable"]
    response = await send(api, batched("GET", "/rpc/lower_level"))
    assert response.body[0]["body"] == "repeatable read"


async def test_each_request_selects_its_own_schema(api: Service) -> None:
    response = await send(
        api,
        batched("POST", "/account", {"id": 1, "owner": "elsewhere"}, Content_Profile="other"),
        batched("GET", "/account?select=owner&id=eq.1", Accept_Profile="other"),
        batched("GET", "/account?select=owner&id=eq.1"),
    )
    assert [one["body"] for one in response.body[1:]] == [[{"owner": "elsewhere"}], [{"owner": "ada"}]]


async def test_batch_can_be_rolled_back(api: Service) -> None:
    """``Prefer: tx=rollback`` on the batch returns normal responses and changes nothing."""
    change = batched("PATCH", "/account?id=eq.1", {"balance": 0}, Prefer="return=representation")
    response = await send(api, change, prefer="tx=rollback")
    assert response.body[0]["body"] == [{"id": 1, "owner": "ada", "balance": 0}]
    assert balances(api) == {1: 50, 2: 10}


async def test_batch_has_the_same_privileges_as_separate_requests(api: Service) -> None:
    response = await send(api, batched("GET", "/account"), batched("GET", "/secret"))
    separate = await api.rest("GET", "secret")
    assert (response.status, response.body["code"]) == (separate.status, separate.body["code"])
    assert response.body["index"] == 1


async def test_streamed_formats_are_returned_whole_in_a_batch(api: Service) -> None:
    response = await send(api, batched("GET", "/account?select=id&order=id", Accept="application/x-ndjson"))
    assert response.body[0]["body"].splitlines() == ['{"id":1}', '{"id":2}']
