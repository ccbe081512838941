"""``db-statement-timeout`` applies unless the role, function or database has its own timeout."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.session import SessionOptions
from dataapi.settings import Project
from support.messages import message
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dataapi.database.pool import Pool
    from support.postgres import Database, Server
    from support.service import Service

    MakePool = Callable[..., Pool]

SCHEMA = """
create table item (id int primary key);
insert into item select generate_series(1, 3);
grant select, insert on item to anon, authenticated;
create function nap(seconds float8) returns int language sql as 'select 1 from pg_sleep(seconds)';
create function limit_of_mine() returns text stable language sql
    as $$ select current_setting('statement_timeout') $$;
create function limit_of_its_own() returns text stable language sql set statement_timeout = '7s'
    as $$ select current_setting('statement_timeout') $$;
create function slow(i item) returns int stable language sql as 'select 1 from pg_sleep(30)';
alter role authenticated in database "{name}" set statement_timeout = '6s';
"""
TIMEOUT = "canceling statement due to statement timeout"
SHOW = "select current_setting('statement_timeout')"


@pytest.fixture(scope="module", params=[None, False], ids=["prepared", "inlined"])
def api(request: pytest.FixtureRequest, server: Server, reactor: Any) -> Iterator[Service]:
    database = server.create_database()
    database.execute(SCHEMA.format(name=database.name))
    limits: dict[str, Any] = {"db_statement_timeout": 1.0, "db_prepared_statements": request.param}
    with serving(reactor, database, **limits) as service:
        yield service


async def test_rest_response_is_the_same_as_postgrests(api: Service) -> None:
    expected = {"code": "57014", "details": None, "hint": None, "message": TIMEOUT}
    for method, target, body in (
        ("POST", "rpc/nap", {"seconds": 30}),
        ("GET", "item?select=id,slow", None),
    ):
        response = await api.rest(method, target, body)
        assert (response.status, response.body) == (500, expected)
    streamed = await api.rest("GET", "item?select=id,slow", headers={"Accept": "application/x-ndjson"})
    assert (streamed.status, streamed.body) == (500, expected)
    assert (await api.rest("POST", "rpc/nap", {"seconds": 0})).status == 200


async def test_graphql_response_contains_the_error(api: Service) -> None:
    for query in ("{ itemCollection { edges { node { slow } } } }", "mutation { nap(seconds: 30) }"):
        response = await api.ask(query)
        assert [error["message"] for error in response.body["errors"]] == [TIMEOUT]
    assert await api.data("{ limit_of_mine }") == {"limit_of_mine": "1s"}


async def test_timeout_of_a_role_or_function_takes_precedence(api: Service) -> None:
    for role, name, expected in (
        ("anon", "limit_of_mine", "1s"),
        ("authenticated", "limit_of_mine", "6s"),
        ("anon", "limit_of_its_own", "7s"),
        ("authenticated", "limit_of_its_own", "7s"),
    ):
        assert (await api.rest("GET", f"rpc/{name}", role=role)).body == expected
        assert await api.data(f"{{ {name} }}", role=role) == {name: expected}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("alter database {name} set statement_timeout = '1min'", "1min"),
        ("alter role authenticator in database {name} set statement_timeout = 0", "0"),
        ("alter role authenticator in database {name} set statement_timeout = '1s'", "1s"),
        ("", "30s"),
    ],
)
async def test_timeout_of_the_login_role_or_database_takes_precedence(
    make_pool: MakePool, database: Database, statement: str, expected: str
) -> None:
    if statement:
        database.execute(statement.format(name=database.name))
    pool = make_pool(size=1, statement_timeout=Project("", "", "").db_statement_timeout)
    await pool.start()
    assert await pool.run(message(SHOW)) == [(expected,)]
    assert await pool.fetch(SHOW) == [(expected if statement else "0",)]


async def test_timeout_can_be_disabled(make_pool: MakePool) -> None:
    pool = make_pool(size=1, statement_timeout=None)
    await pool.start()
    assert await pool.run(message(SHOW)) == [("0",)]
    assert SessionOptions().statement_timeout is None


async def test_timeout_is_restored_after_a_function_in_a_batch(api: Service) -> None:
    names = ("limit_of_mine", "limit_of_its_own", "limit_of_mine")
    batch = json.dumps({"requests": [{"method": "GET", "path": f"/rpc/{name}"} for name in names]})
    headers = {"Content-Type": "application/vnd.dataapi.batch+json"}
    response = await api.rest("POST", "", batch, headers=headers)
    assert [part["body"] for part in response.body] == ["1s", "7s", "1s"]
