"""Several REST requests in one transaction: all or nothing, each as if it were alone."""

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
    """Serve accounts, with prepared statements and without."""
    database = server.create_database(SCHEMA)
    settings = {"db_schemas": ("public", "other"), "db_prepared_statements": request.param}
    with serving(reactor, database, db_tx_end=TransactionEnd.COMMIT_ALLOW_OVERRIDE, **settings) as service:
        yield service


@pytest.fixture
def api(served: Service) -> Service:
    """Give the service with its two accounts."""
    served.database.execute(START)
    return served


async def send(api: Service, *requests: Any, role: str = "anon", **headers: str) -> Answer:
    """Send a batch."""
    sent = {"content-type": batch.MEDIA_TYPE, **headers}
    return await api.rest("POST", "", json.dumps({"requests": list(requests)}), role=role, headers=sent)


def asked(method: str, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
    """Make a request of a batch; names of headers are written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"method": method, "path": path, "headers": named} | ({} if body is None else {"body": body})


def balances(api: Service) -> dict[int, int]:
    """Return what is on the accounts."""
    return {number: int(sum_) for number, sum_ in api.database.execute("select id, balance from account")}


async def test_each_request_is_answered_as_if_it_were_alone(api: Service) -> None:
    answer = await send(
        api,
        asked("POST", "/account", {"id": 3, "owner": "cy", "balance": 5}),
        asked("PATCH", "/account?id=eq.1", {"balance": 45}, Prefer="return=representation"),
        asked("GET", "/account?select=id,balance&order=id", Prefer="count=exact"),
        asked("GET", "/account?id=eq.3", Accept="application/vnd.pgrst.object+json"),
        asked("DELETE", "/account?id=eq.2"),
        asked("HEAD", "/account"),
        asked("GET", "/account?select=owner&order=id", Accept="text/csv"),
    )
    assert answer.status == 200
    assert [one["status"] for one in answer.body] == [201, 200, 200, 200, 204, 200, 200]
    bodies = [one["body"] for one in answer.body]
    assert bodies[0] is bodies[4] is bodies[5] is None
    assert bodies[1] == [{"id": 1, "owner": "ada", "balance": 45}]
    assert bodies[2] == [{"id": 1, "balance": 45}, {"id": 2, "balance": 10}, {"id": 3, "balance": 5}]
    assert bodies[3] == {"id": 3, "owner": "cy", "balance": 5}
    assert bodies[6].split() == ["owner", "ada", "cy"]
    assert answer.body[2]["headers"]["Content-Range"] == "0-2/3"
    assert balances(api) == {1: 45, 3: 5}


@pytest.mark.parametrize(
    ("failing", "status", "code"),
    [
        (asked("PATCH", "/account?id=eq.2", {"balance": -1}), 400, "23514"),
        (asked("POST", "/account", {"id": 1, "owner": "x", "balance": 0}), 409, "23505"),
        (asked("GET", "/account?id=eq.99", Accept="application/vnd.pgrst.object+json"), 406, "PGRST116"),
        (asked("GET", "/nowhere"), 404, "PGRST205"),
        (asked("GET", "/account?id=nonsense.1"), 400, "PGRST100"),
        (asked("GET", "/account", Accept_Profile="hidden"), 406, "PGRST106"),
        (asked("GET", "/account", Accept="image/png"), 406, "PGRST107"),
        (asked("GET", "/rpc/add_call"), 405, None),
    ],
)
async def test_an_error_in_one_undoes_all_and_says_in_which(
    api: Service, failing: dict[str, Any], status: int, code: str | None
) -> None:
    first = asked("PATCH", "/account?id=eq.1", {"balance": 0})
    answer = await send(api, first, failing, first)
    assert answer.status == status
    assert answer.body["index"] == 1
    assert answer.body.keys() == {"code", "message", "details", "hint", "index"}
    assert code is None or answer.body["code"] == code
    assert balances(api) == {1: 50, 2: 10}
    [after] = (await send(api, asked("GET", "/account?select=id&order=id"))).body
    assert after["body"] == [{"id": 1}, {"id": 2}]


async def test_a_constraint_that_is_checked_at_the_end_undoes_all(api: Service) -> None:
    answer = await send(
        api,
        asked("POST", "/delayed", {"id": 1, "account": 9}),
        asked("PATCH", "/account?id=eq.1", {"balance": 1}),
    )
    assert (answer.status, answer.body["code"]) == (409, "23503")
    assert "index" not in answer.body
    assert balances(api) == {1: 50, 2: 10}
    good = await send(
        api,
        asked("POST", "/delayed", {"id": 1, "account": 9}),
        asked("POST", "/account", {"id": 9, "owner": "late", "balance": 0}),
    )
    assert good.status == 200


async def test_a_request_that_reads_may_not_write_among_those_that_do(api: Service) -> None:
    """A GET of a function that inserts is refused; a POST of it is not, before or after a GET."""
    write, read = asked("POST", "/rpc/add_call"), asked("GET", "/account?select=id")
    answer = await send(api, write, read, write, read)
    assert answer.status == 200
    assert len(answer.body[3]["body"]) == 4
    shown = await send(
        api, asked("GET", "/rpc/level"), asked("POST", "/rpc/told"), asked("GET", "/rpc/level")
    )
    assert shown.body[1]["body"]["only"] == "off"


async def test_every_request_tells_sql_about_itself(api: Service) -> None:
    answer = await send(
        api,
        asked("POST", "/rpc/told", Prefer="timezone=Asia/Tokyo"),
        asked("POST", "/rpc/told"),
        role="authenticated",
    )
    told = [one["body"] for one in answer.body]
    assert [one["zone"] for one in told] == ["Asia/Tokyo", told[1]["zone"]]
    assert told[1]["zone"] != "Asia/Tokyo"
    assert {(one["path"], one["method"], one["role"]) for one in told} == {
        ("/rpc/told", "POST", "authenticated")
    }


async def test_a_role_that_a_function_takes_on_is_not_the_next_requests(api: Service) -> None:
    answer = await send(api, asked("POST", "/rpc/act_as_service", {}), asked("POST", "/rpc/told", {}))
    changed, told = [one["body"] for one in answer.body]
    assert (changed, told["role"]) == ("service_role", "anon")


async def test_what_a_function_says_of_its_answer_is_for_that_alone(api: Service) -> None:
    answer = await send(api, asked("POST", "/rpc/teapot"), asked("GET", "/account"))
    assert [one["status"] for one in answer.body] == [418, 200]


async def test_a_functions_isolation_is_the_batchs(api: Service) -> None:
    answer = await send(api, asked("GET", "/account"), asked("GET", "/rpc/level"))
    assert answer.body[1]["body"] == "serializable"
    answer = await send(api, asked("GET", "/rpc/level"), asked("GET", "/rpc/lower_level"))
    assert [one["body"] for one in answer.body] == ["serializable", "serializable"]
    answer = await send(api, asked("GET", "/rpc/lower_level"))
    assert answer.body[0]["body"] == "repeatable read"


async def test_schemas_are_each_requests_own(api: Service) -> None:
    answer = await send(
        api,
        asked("POST", "/account", {"id": 1, "owner": "elsewhere"}, Content_Profile="other"),
        asked("GET", "/account?select=owner&id=eq.1", Accept_Profile="other"),
        asked("GET", "/account?select=owner&id=eq.1"),
    )
    assert [one["body"] for one in answer.body[1:]] == [[{"owner": "elsewhere"}], [{"owner": "ada"}]]


async def test_the_batch_may_be_rolled_back_as_a_whole(api: Service) -> None:
    """``Prefer: tx=rollback`` on the batch answers as if, and changes nothing."""
    change = asked("PATCH", "/account?id=eq.1", {"balance": 0}, Prefer="return=representation")
    answer = await send(api, change, prefer="tx=rollback")
    assert answer.body[0]["body"] == [{"id": 1, "owner": "ada", "balance": 0}]
    assert balances(api) == {1: 50, 2: 10}


async def test_a_role_reads_in_a_batch_what_it_reads_alone(api: Service) -> None:
    answer = await send(api, asked("GET", "/account"), asked("GET", "/secret"))
    alone = await api.rest("GET", "secret")
    assert (answer.status, answer.body["code"]) == (alone.status, alone.body["code"])
    assert answer.body["index"] == 1


async def test_what_would_be_streamed_alone_comes_whole(api: Service) -> None:
    answer = await send(api, asked("GET", "/account?select=id&order=id", Accept="application/x-ndjson"))
    assert answer.body[0]["body"].splitlines() == ['{"id":1}', '{"id":2}']
