"""``db-statement-timeout``: what no role, function or database limits ends after a while, and says so."""

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


async def test_rest_answers_as_postgrest_does(api: Service) -> None:
    refused = {"code": "57014", "details": None, "hint": None, "message": TIMEOUT}
    for method, target, body in (
        ("POST", "rpc/nap", {"seconds": 30}),
        ("GET", "item?select=id,slow", None),
    ):
        answer = await api.rest(method, target, body)
        assert (answer.status, answer.body) == (500, refused)
    streamed = await api.rest("GET", "item?select=id,slow", headers={"Accept": "application/x-ndjson"})
    assert (streamed.status, streamed.body) == (500, refused)
    assert (await api.rest("POST", "rpc/nap", {"seconds": 0})).status == 200


async def test_graphql_says_it_in_an_error(api: Service) -> None:
    for query in ("{ itemCollection { edges { node { slow } } } }", "mutation { nap(seconds: 30) }"):
        answer = await api.ask(query)
        assert [error["message"] for error in answer.body["errors"]] == [TIMEOUT]
    assert await api.data("{ limit_of_mine }") == {"limit_of_mine": "1s"}


async def test_what_a_role_or_function_has_of_its_own_wins(api: Service) -> None:
    for role, name, expected in (
        ("anon", "limit_of_mine", "1s"),
        ("authenticated", "limit_of_mine", "6s"),
        ("anon", "limit_of_its_own", "7s"),
        ("authenticated", "limit_of_its_own", "7s"),
    ):
        assert (await api.rest("GET", f"rpc/{name}", role=role)).body == expected
        assert await api.data(f"{{ {name} }}", role=role) == {name: expected}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("alter database {name} set statement_timeout = '1min'", "1min"),
        ("alter role authenticator in database {name} set statement_timeout = 0", "0"),
        ("alter role authenticator in database {name} set statement_timeout = '1s'", "1s"),
        ("", "30s"),
    ],
)
async def test_the_login_roles_and_the_databases_own_win(
    make_pool: MakePool, database: Database, said: str, expected: str
) -> None:
    """Also where they are no limit; the daemon's own statements have what PostgreSQL says."""
    if said:
        database.execute(said.format(name=database.name))
    pool = make_pool(size=1, statement_timeout=Project("", "", "").db_statement_timeout)
    await pool.start()
    assert await pool.run(message(SHOW)) == [(expected,)]
    assert await pool.fetch(SHOW) == [(expected if said else "0",)]


async def test_without_a_limit_there_is_none(make_pool: MakePool) -> None:
    """``db-statement-timeout = 0``."""
    pool = make_pool(size=1, statement_timeout=None)
    await pool.start()
    assert await pool.run(message(SHOW)) == [("0",)]
    assert SessionOptions().statement_timeout is None


async def test_the_limit_comes_back_after_a_request_of_a_batch_with_its_own(api: Service) -> None:
    names = ("limit_of_mine", "limit_of_its_own", "limit_of_mine")
    batch = json.dumps({"requests": [{"method": "GET", "path": f"/rpc/{name}"} for name in names]})
    kind = {"Content-Type": "application/vnd.dataapi.batch+json"}
    answer = await api.rest("POST", "", batch, headers=kind)
    assert [one["body"] for one in answer.body] == ["1s", "7s", "1s"]
