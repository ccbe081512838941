"""Role, request and response settings, errors and streams of REST statements."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from support.memory_http import SECRET
from support.service import Answer, Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create table seen (id int primary key);
create table guarded (id int primary key, owner text);
alter table guarded enable row level security;
create policy own on guarded using (owner = current_setting('request.jwt.claims')::json ->> 'sub');
create table closed (id int);
create view number as select g as id, repeat('x', 50) as pad from generate_series(1, 20000) g;
create view breaking as select g as id, 1 / (15000 - g) as part from generate_series(1, 20000) g;
create function before() returns void language plpgsql as $$ begin
    if current_setting('request.headers')::json ->> 'x-refuse' is not null then
        raise sqlstate 'PT429' using message = 'Slow down', detail = 'Too many', hint = 'Wait';
    end if;
    perform set_config('app.before', 'ran', true);
    perform set_config('response.headers', '[{"X-Before": "ran"}]', true);
end $$;
create function report() returns json stable language sql as $$ select json_build_object(
    'role', current_user, 'session', session_user, 'method', current_setting('request.method'),
    'path', current_setting('request.path'), 'header', current_setting('request.headers')::json ->> 'x-own',
    'cookie', current_setting('request.cookies')::json ->> 'flavour',
    'sub', current_setting('request.jwt.claims')::json ->> 'sub', 'before', current_setting('app.before'),
    'timeout', current_setting('statement_timeout')) $$;
create function careful() returns json stable language sql
    set statement_timeout = '9s' set default_transaction_isolation = 'serializable' set work_mem = '1MB'
    as $$ select json_build_object('timeout', current_setting('statement_timeout'),
                                   'isolation', current_setting('transaction_isolation')) $$;
create function slow() returns int stable language sql set statement_timeout = '20ms'
    as $$ select 1 from pg_sleep(5) $$;
create function add(number int) returns int volatile language sql
    as 'insert into seen values ($1) returning id';
create function teapot() returns text volatile language plpgsql as $$ begin
    perform set_config('response.headers', '[{"X-Own": "yes"}, {"Cache-Control": "no-store"}]', true);
    perform set_config('response.status', '418', true);
    return 'short and stout'; end $$;
create function heading(headers text) returns text volatile language sql as $$
    select 'said' from set_config('response.headers', headers, true) $$;
create function expired() returns text stable language plpgsql as $$ begin
    raise sqlstate 'PGRST' using
        message = '{"code": "419", "message": "Expired", "details": "Yesterday", "hint": "Begin again"}',
        detail = '{"status": 419, "status_text": "Page Expired", "headers": {"X-Own": "gone"}}'; end $$;
create function malformed() returns text stable language plpgsql as $$ begin
    raise sqlstate 'PGRST' using message = 'no json', detail = '{"status": 400, "headers": {}}'; end $$;
create function configured() returns json stable language sql as $$ select json_build_object(
    'greeting', current_setting('app.settings.greeting'), 'empty', current_setting('app.settings.empty')) $$;
create function overwrite() returns text volatile language sql
    as $$ select set_config('app.settings.greeting', 'changed', false) $$;
create function peek() returns bigint stable language sql as 'select count(*) from closed';
create function fail(state text) returns text stable language plpgsql as $$ begin
    raise exception using errcode = state, message = 'told so', detail = 'a detail', hint = 'a hint'; end $$;
grant select on seen, guarded, number, breaking to anon, authenticated;
grant insert on seen to anon;
insert into guarded values (1, 'ada'), (2, 'bob');
alter role authenticated in database "{name}" set statement_timeout = '8s';
"""


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve functions that report the settings they see."""
    database = server.create_database()
    database.execute(SCHEMA.replace("{name}", database.name))
    with serving(
        reactor,
        database,
        db_pre_request="public.before",
        server_timing_enabled=True,
        app_settings=(("app.settings.greeting", "it's 100 % \\o/"), ("app.settings.Empty", "")),
    ) as service:
        yield service


def bearer(**claims: Any) -> dict[str, str]:
    """Return an Authorization header with these claims."""
    return {"authorization": f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"}


# ---------------------------------------------------------------- role and settings


async def test_statement_runs_as_the_tokens_role(api: Service) -> None:
    for role in ("anon", "authenticated"):
        reported = (await api.rest("POST", "rpc/report", {}, role=role)).body
        assert (reported["role"], reported["session"]) == (role, "authenticator")


async def test_sql_can_read_the_request_from_settings(api: Service) -> None:
    """The settings have PostgREST's names."""
    headers = {"x-own": "mine", "cookie": "flavour=vanilla; a=b", **bearer(role="authenticated", sub="7")}
    reported = (await api.rest("GET", "rpc/report", headers=headers)).body
    assert (reported["method"], reported["path"], reported["header"]) == ("GET", "/rpc/report", "mine")
    assert (reported["cookie"], reported["sub"]) == ("vanilla", "7")


async def test_sql_can_read_configured_settings(api: Service) -> None:
    for _ in range(2):
        response = await api.rest("GET", "rpc/configured")
        assert response.body == {"greeting": "it's 100 % \\o/", "empty": ""}
        assert (await api.rest("POST", "rpc/overwrite")).status == 200
        [configured] = (await api.data("{ configured }")).values()
        assert json.loads(configured) == response.body


async def test_policies_use_the_claims(api: Service) -> None:
    for sub, expected in (("ada", [1]), ("bob", [2]), ("nobody", [])):
        rows = (await api.rest("GET", "guarded", headers=bearer(role="authenticated", sub=sub))).body
        assert [row["id"] for row in rows] == expected


async def test_role_settings_apply_to_requests(api: Service) -> None:
    """``set role`` alone does not apply the settings from ``alter role … set``."""
    assert (await api.rest("GET", "rpc/report", role="authenticated")).body["timeout"] == "8s"
    assert (await api.rest("GET", "rpc/report")).body["timeout"] == "30s"


@pytest.mark.parametrize("role", ["anon", "authenticated"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_function_settings_apply_to_the_whole_transaction(api: Service, method: str, role: str) -> None:
    """``default_transaction_isolation`` takes effect only at the start of a transaction."""
    response = await api.rest(method, "rpc/careful", {} if method == "POST" else None, role=role)
    assert response.body == {"timeout": "9s", "isolation": "serializable"}
    assert (await api.rest("GET", "rpc/slow", role=role)).body["code"] == "57014"


async def test_pre_request_function_runs_first_and_can_reject(api: Service) -> None:
    assert (await api.rest("GET", "rpc/report")).body["before"] == "ran"
    for accept in ("application/json", "text/csv"):
        response = await api.rest("GET", "number?id=lt.200", headers={"accept": accept})
        assert response.headers["x-before"] == "ran"
    for accept in ("application/json", "application/x-ndjson"):
        refused = await api.rest("GET", "number", headers={"x-refuse": "1", "accept": accept})
        assert refused.status == 429
        assert refused.body == {
            "code": "PT429", "message": "Slow down", "details": "Too many", "hint": "Wait",
        }  # fmt: skip
    assert (await api.rest("GET", "")).status == 200
    for method in ("GET", "HEAD"):
        assert (await api.rest(method, "", headers={"x-refuse": "1"})).status == 429, "the description also"


async def test_get_and_head_cannot_write(api: Service) -> None:
    response = await api.rest("GET", "rpc/add?number=1")
    assert (response.status, response.body["code"]) == (405, "25006")
    assert (await api.rest("HEAD", "rpc/add?number=1")).status == 405
    assert (await api.rest("POST", "rpc/add", {"number": 1})).body == 1


async def test_function_can_set_status_and_headers(api: Service) -> None:
    response = await api.rest("POST", "rpc/teapot", {})
    assert (response.status, response.headers["x-own"]) == (418, "yes")
    assert response.headers["cache-control"] == "no-store"
    after = await api.rest("GET", "rpc/report")
    assert after.status == 200
    assert "x-own" not in after.headers


@pytest.mark.parametrize(
    ("headers", "status", "expected"),
    [
        ([{"X-Own": "a\r\nX-Other: b"}], 200, "a  X-Other: b"),
        ([{"Content-Length": "5"}, {"Transfer-Encoding": "chunked"}, {"X-Own": "c"}], 200, "c"),
        ([{"X-Own: a\r\nX-Other": "b"}], 500, None),
        ([{"X-Own": 5}], 500, None),
        ([{"X-Own": "d", "X-Other": "e"}], 500, None),
        ([{}], 500, None),
    ],
)
async def test_function_cannot_corrupt_the_response_headers(
    api: Service, headers: Any, status: int, expected: str | None
) -> None:
    response = await api.rest("POST", "rpc/heading", {"headers": json.dumps(headers)})
    assert (response.status, response.headers.get("x-own")) == (status, expected)
    assert "x-other" not in response.headers
    assert response.body == "said" if status == 200 else response.body["code"] == "PGRST111"


async def test_responses_report_the_durations_of_stages(api: Service) -> None:
    for method, path in (("GET", "seen"), ("HEAD", "")):
        assert await stages(api, method, path) == ["jwt", "parse", "plan", "transaction", "response"]


async def test_graphql_responses_report_the_same_stages(api: Service) -> None:
    for query, expected in (
        ("{ __typename }", ["response"]),
        ("{ seenCollection { edges { node { id } } } }", ["transaction", "response"]),
        ("{ nothing }", []),
    ):
        header = (await api.ask(query)).headers["server-timing"]
        assert [stage.partition(";")[0] for stage in header.split(", ")] == [
            "jwt",
            "parse",
            "plan",
            *expected,
        ]


async def test_error_reports_stages_up_to_the_failed_one(api: Service) -> None:
    assert await stages(api, "GET", "rpc/expired") == ["jwt", "parse", "plan", "transaction"]
    assert await stages(api, "GET", "seen", Authorization="Bearer none") == ["jwt"]


async def stages(api: Service, method: str, path: str, **headers: str) -> list[str]:
    header = (await api.rest(method, path, headers=headers)).headers["server-timing"]
    return [stage.partition(";")[0] for stage in header.split(", ")]


# ---------------------------------------------------------------- errors


async def test_sql_can_define_the_whole_error(api: Service) -> None:
    """``RAISE SQLSTATE 'PGRST'`` sets status, headers and body."""
    response = await api.rest("GET", "rpc/expired")
    assert (response.status, response.headers["x-own"]) == (419, "gone")
    assert response.body == {
        "code": "419",
        "message": "Expired",
        "details": "Yesterday",
        "hint": "Begin again",
    }
    assert response.headers["proxy-status"] == "PostgREST; error=419"


async def test_malformed_custom_error_is_reported(api: Service) -> None:
    response = await api.rest("GET", "rpc/malformed")
    assert (response.status, response.body["code"]) == (500, "PGRST121")
    assert response.body["hint"].startswith("MESSAGE must be a JSON object")


@pytest.mark.parametrize(
    ("state", "status"),
    [("PT402", 402), ("PT418", 418), ("P0001", 400), ("23505", 409), ("42501", 401), ("28000", 403),
     ("22012", 400), ("25006", 405), ("53400", 500), ("P0002", 500)],
)  # fmt: skip
async def test_sqlstates_map_to_http_statuses(api: Service, state: str, status: int) -> None:
    response = await api.rest("GET", f"rpc/fail?state={state}")
    assert response.status == status
    assert response.body == {"code": state, "message": "told so", "details": "a detail", "hint": "a hint"}


async def test_missing_privilege_is_a_401_only_for_anonymous_callers(api: Service) -> None:
    """A caller with a token of the anonymous role is also anonymous."""
    reported = await api.rest("POST", "rpc/add", {"number": 3}, role="authenticated")
    assert (reported.status, reported.body["code"]) == (403, "42501")
    assert "www-authenticate" not in reported.headers
    for headers in ({}, bearer(role="anon")):
        anonymous = await api.rest("POST", "rpc/peek", {}, headers=headers)
        assert (anonymous.status, anonymous.body["code"]) == (401, "42501")
        assert anonymous.headers["www-authenticate"] == "Bearer"


async def test_role_that_cannot_be_assumed_is_rejected(api: Service) -> None:
    response = await api.rest("GET", "seen", headers=bearer(role="postgres"))
    assert (response.status, response.body["code"]) == (403, "42501")
    missing = await api.rest("GET", "seen", headers=bearer(role="no one's"))
    assert (missing.status, missing.body) == (
        401, {"code": "22023", "message": 'role "no one\'s" does not exist', "details": None, "hint": None},
    )  # fmt: skip
    assert missing.headers["www-authenticate"] == "Bearer"
    for role in ("none", "a\0b"):
        assert (await api.rest("GET", "seen", headers=bearer(role=role))).status in (401, 403)


# ---------------------------------------------------------------- streams


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/csv"])
async def test_streamed_rows_are_complete_and_in_order(api: Service, accept: str) -> None:
    response = await api.rest("GET", "number?select=id&order=id", headers={"accept": accept})
    assert response.status == 200
    # CSV is not streamed if there is a pre-request function, so the response has a Content-Range.
    assert response.headers.get("content-range") == ("0-19999/*" if accept == "text/csv" else None)
    lines = response.text.split()
    is_csv = accept == "text/csv"
    numbers = [int(line) for line in lines[1:]] if is_csv else [json.loads(line)["id"] for line in lines]
    assert numbers == list(range(1, 20001))
    assert (await api.rest("GET", "rpc/report")).body["role"] == "anon"


async def test_stream_applies_filter_order_and_limit(api: Service) -> None:
    query = "number?select=n:id&id=lt.100&order=id.desc&limit=3&offset=1"
    response = await api.rest("GET", query, headers={"accept": "application/x-ndjson"})
    assert [json.loads(line) for line in response.text.splitlines()] == [{"n": 98}, {"n": 97}, {"n": 96}]


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/csv"])
@pytest.mark.parametrize(("rows", "range_"), [(0, "*/*"), (1, "5-5/*"), (99, "5-103/*")])
async def test_short_stream_is_a_complete_response(api: Service, accept: str, rows: int, range_: str) -> None:
    """``Content-Range`` is present, and CSV has a header even without rows."""
    query = f"number?select=id&order=id&offset=5&id=lte.{rows + 5}"
    response = await api.rest("GET", query, headers={"accept": accept})
    assert (response.status, response.headers["content-range"]) == (200, range_)
    assert len(response.text.splitlines()) == rows + (accept == "text/csv")


async def test_head_of_a_stream_has_no_body(api: Service) -> None:
    response = await api.rest("HEAD", "number?id=lte.7", headers={"accept": "application/x-ndjson"})
    assert (response.status, response.text) == (200, "")
    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert response.headers["content-range"] == "0-6/*"


async def test_error_before_the_first_row_is_an_ordinary_response(api: Service) -> None:
    response = await api.rest("GET", "breaking?order=part", headers={"accept": "application/x-ndjson"})
    assert (response.status, response.body["code"]) == (400, "22012")
    after: Answer = await api.rest("GET", "rpc/report")
    assert after.status == 200
