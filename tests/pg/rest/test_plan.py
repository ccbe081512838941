"""Plans of statements in place of their rows, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.sql_text import ERROR_MARKER
from dataapi.settings import TransactionEnd
from support import documents
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database, Server

PLAN = "application/vnd.pgrst.plan"
OBJECT = "application/vnd.pgrst.object+json"
FOR_JSON = '; for="application/json"'


@pytest.fixture(scope="module")
def database(server: Server) -> Database:
    """Give a database of tables and functions."""
    return server.create_database(documents.read("tests/pg/data/functions.sql"))


@pytest.fixture(scope="module")
def service(database: Database, reactor: Any) -> Iterator[Service]:
    """Serve it with plans enabled."""
    end = TransactionEnd.COMMIT_ALLOW_OVERRIDE
    with serving(reactor, database, db_plan_enabled=True, db_tx_end=end) as one:
        yield one


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (PLAN, f"{PLAN}+text{FOR_JSON}; charset=utf-8"),
        (f"{PLAN}+text; options=;", f"{PLAN}+text{FOR_JSON}; charset=utf-8"),
        (
            f'{PLAN}+text; for="text/csv"; options=verbose',
            f'{PLAN}+text; for="text/csv"; options=verbose; charset=utf-8',
        ),
    ],
)
async def test_the_plan_is_text_by_default(service: Service, accept: str, content_type: str) -> None:
    """As ``EXPLAIN`` writes it, line by line, for tables and functions."""
    for target in ("project?id=eq.1", "rpc/all_projects", "rpc/add_them?a=1&b=2"):
        answer = await service.rest("GET", target, headers={"accept": accept})
        assert (answer.status, answer.headers["content-type"]) == (200, content_type)
        assert answer.headers["vary"].startswith("Accept, Prefer, Range")
        first, *others = answer.text.splitlines()
        assert "(cost=" in first
        assert others
        assert "actual time" not in answer.text


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "project", None),
        ("POST", "rpc/all_projects", {}),
        ("PATCH", "visit?id=eq.1", {"place": "planned"}),
    ],
)
async def test_a_plan_begins_where_the_rows_are_gathered(
    service: Service, method: str, target: str, body: Any
) -> None:
    """As in PostgREST: nothing around it that looks at an answer, which is not made."""
    headers = {"accept": f"{PLAN}+json", "prefer": "return=representation"}
    answer = await service.rest(method, target, body, headers=headers)
    assert answer.body[0]["Plan"]["Node Type"] == "Aggregate", answer.text


async def test_a_plan_says_of_which_schema_it_is(reference: Service) -> None:
    for schema in ("public", "other"):
        headers = {"accept": PLAN, "accept-profile": schema}
        answer = await reference.rest("GET", "note" if schema == "other" else "film", headers=headers)
        assert (answer.status, answer.headers["content-profile"]) == (200, schema)


@pytest.mark.parametrize(
    ("options", "member"),
    [
        ("analyze", "Actual Rows"),
        ("verbose", "Output"),
        ("analyze|buffers", "Shared Hit Blocks"),
        ("wal|analyze", "WAL Records"),
    ],
)
async def test_options_choose_what_a_plan_shows(service: Service, options: str, member: str) -> None:
    """In JSON here; the answer names them in a fixed order."""
    accept = f"{PLAN}+json; options={options}"
    answer = await service.rest("GET", "project?id=eq.1", headers={"accept": accept})
    [plan] = answer.body
    assert member in plan["Plan"]
    named = "|".join(sorted(options.split("|")))
    assert answer.headers["content-type"] == f"{PLAN}+json{FOR_JSON}; options={named}; charset=utf-8"


async def test_settings_are_reported_on_request(service: Service) -> None:
    accept = f"{PLAN}+json; options=settings"
    answer = await service.rest("GET", "project", headers={"accept": accept})
    assert "search_path" in answer.body[0]["Settings"]


async def test_the_plan_is_of_the_very_statement(service: Service) -> None:
    answer = await service.rest("GET", "project?id=eq.1", headers={"accept": f"{PLAN}; options=verbose"})
    assert "Index Scan using project_pkey on public.project" in answer.text
    assert "string_agg" in answer.text
    for accept in (f'{PLAN}+json; for="{OBJECT}"', f'{PLAN}+json; for="application/vnd.pgrst.object"'):
        answer = await service.rest("GET", "project", headers={"accept": accept})
        assert answer.status == 200
        assert answer.headers["content-type"] == f'{PLAN}+json; for="{OBJECT}"; charset=utf-8'


async def test_changes_are_planned_and_not_made(service: Service) -> None:
    plan = {"accept": f"{PLAN}+json", "prefer": "return=representation"}
    for method, target, body, operation in (
        ("POST", "visit", {"place": "planned"}, "Insert"),
        ("PATCH", "visit?id=eq.1", {"place": "planned"}, "Update"),
        ("DELETE", "visit?id=eq.1", None, "Delete"),
    ):
        answer = await service.rest(method, target, body, headers=plan)
        assert (answer.status, operation in answer.text) == (200, True), answer.text
    answer = await service.rest("POST", "rpc/visit_place", {"place": "planned"}, headers=plan)
    assert answer.status == 200
    assert service.database.execute("select count(*) from visit") == [(0,)]
    undone = {"accept": f"{PLAN}; options=analyze", "prefer": "tx=rollback"}
    answer = await service.rest("POST", "visit", {"place": "undone"}, headers=undone)
    assert "actual time" in answer.text
    assert service.database.execute("select count(*) from visit") == [(0,)]
    made = {"accept": f"{PLAN}; options=analyze"}
    await service.rest("POST", "visit", {"place": "made"}, headers=made)
    assert service.database.execute("select place from visit") == [("made",)]


async def test_what_postgresql_refuses_to_explain_is_its_error(service: Service) -> None:
    """``wal`` without ``analyze``, and rights that the role lacks."""
    answer = await service.rest("GET", "project", headers={"accept": f"{PLAN}; options=wal"})
    assert (answer.status, answer.body["code"]) == (400, "22023")
    answer = await service.rest("GET", "rpc/not_for_anon", headers={"accept": PLAN})
    assert (answer.status, answer.body["code"]) == (401, "42501")


async def test_plans_do_not_show_the_marker_of_guards(service: Service) -> None:
    accept = f'{PLAN}+text; for="{OBJECT}"; options=verbose'
    headers = {"accept": accept, "prefer": "return=representation"}
    answer = await service.rest("DELETE", "visit?id=eq.1", headers=headers)
    assert answer.status == 200, answer.text
    assert "PGRST116" in answer.text
    assert ERROR_MARKER not in answer.text
