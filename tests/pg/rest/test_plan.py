"""Execution plans instead of rows, over HTTP."""

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
    return server.create_database(documents.read("tests/pg/data/functions.sql"))


@pytest.fixture(scope="module")
def service(database: Database, reactor: Any) -> Iterator[Service]:
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
async def test_plan_is_text_by_default(service: Service, accept: str, content_type: str) -> None:
    """The text is that of ``EXPLAIN``, for tables and for functions."""
    for target in ("project?id=eq.1", "rpc/all_projects", "rpc/add_them?a=1&b=2"):
        response = await service.rest("GET", target, headers={"accept": accept})
        assert (response.status, response.headers["content-type"]) == (200, content_type)
        assert response.headers["vary"].startswith("Accept, Prefer, Range")
        first, *others = response.text.splitlines()
        assert "(cost=" in first
        assert others
        assert "actual time" not in response.text


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "project", None),
        ("POST", "rpc/all_projects", {}),
        ("PATCH", "visit?id=eq.1", {"place": "planned"}),
    ],
)
async def test_plan_starts_at_the_aggregation_of_rows(
    service: Service, method: str, target: str, body: Any
) -> None:
    """The plan omits the steps that inspect the response, as in PostgREST."""
    headers = {"accept": f"{PLAN}+json", "prefer": "return=representation"}
    response = await service.rest(method, target, body, headers=headers)
    assert response.body[0]["Plan"]["Node Type"] == "Aggregate", response.text


async def test_plan_response_has_a_content_profile(reference: Service) -> None:
    for schema in ("public", "other"):
        headers = {"accept": PLAN, "accept-profile": schema}
        response = await reference.rest("GET", "note" if schema == "other" else "film", headers=headers)
        assert (response.status, response.headers["content-profile"]) == (200, schema)


@pytest.mark.parametrize(
    ("options", "member"),
    [
        ("analyze", "Actual Rows"),
        ("verbose", "Output"),
        ("analyze|buffers", "Shared Hit Blocks"),
        ("wal|analyze", "WAL Records"),
    ],
)
async def test_options_select_the_details_of_a_plan(service: Service, options: str, member: str) -> None:
    """The response lists the options in a fixed order."""
    accept = f"{PLAN}+json; options={options}"
    response = await service.rest("GET", "project?id=eq.1", headers={"accept": accept})
    [plan] = response.body
    assert member in plan["Plan"]
    named = "|".join(sorted(options.split("|")))
    assert response.headers["content-type"] == f"{PLAN}+json{FOR_JSON}; options={named}; charset=utf-8"


async def test_plan_includes_settings_on_request(service: Service) -> None:
    accept = f"{PLAN}+json; options=settings"
    response = await service.rest("GET", "project", headers={"accept": accept})
    assert "search_path" in response.body[0]["Settings"]


async def test_plan_describes_the_actual_statement(service: Service) -> None:
    response = await service.rest("GET", "project?id=eq.1", headers={"accept": f"{PLAN}; options=verbose"})
    assert "Index Scan using project_pkey on public.project" in response.text
    assert "string_agg" in response.text
    for accept in (f'{PLAN}+json; for="{OBJECT}"', f'{PLAN}+json; for="application/vnd.pgrst.object"'):
        response = await service.rest("GET", "project", headers={"accept": accept})
        assert response.status == 200
        assert response.headers["content-type"] == f'{PLAN}+json; for="{OBJECT}"; charset=utf-8'


async def test_planned_changes_are_not_executed(service: Service) -> None:
    plan = {"accept": f"{PLAN}+json", "prefer": "return=representation"}
    for method, target, body, operation in (
        ("POST", "visit", {"place": "planned"}, "Insert"),
        ("PATCH", "visit?id=eq.1", {"place": "planned"}, "Update"),
        ("DELETE", "visit?id=eq.1", None, "Delete"),
    ):
        response = await service.rest(method, target, body, headers=plan)
        assert (response.status, operation in response.text) == (200, True), response.text
    response = await service.rest("POST", "rpc/visit_place", {"place": "planned"}, headers=plan)
    assert response.status == 200
    assert service.database.execute("select count(*) from visit") == [(0,)]
    undone = {"accept": f"{PLAN}; options=analyze", "prefer": "tx=rollback"}
    response = await service.rest("POST", "visit", {"place": "undone"}, headers=undone)
    assert "actual time" in response.text
    assert service.database.execute("select count(*) from visit") == [(0,)]
    made = {"accept": f"{PLAN}; options=analyze"}
    await service.rest("POST", "visit", {"place": "made"}, headers=made)
    assert service.database.execute("select place from visit") == [("made",)]


async def test_explain_errors_are_reported(service: Service) -> None:
    response = await service.rest("GET", "project", headers={"accept": f"{PLAN}; options=wal"})
    assert (response.status, response.body["code"]) == (400, "22023")
    response = await service.rest("GET", "rpc/not_for_anon", headers={"accept": PLAN})
    assert (response.status, response.body["code"]) == (401, "42501")


async def test_plans_do_not_reveal_the_guard_marker(service: Service) -> None:
    accept = f'{PLAN}+text; for="{OBJECT}"; options=verbose'
    headers = {"accept": accept, "prefer": "return=representation"}
    response = await service.rest("DELETE", "visit?id=eq.1", headers=headers)
    assert response.status == 200, response.text
    assert "PGRST116" in response.text
    assert ERROR_MARKER not in response.text
