"""A Citus cluster returns the same results as one server, and uses one shard for single-tenant requests."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.kinds import KINDS, MERGED, REFUSED, REPRESENTATION, TASK, Both, Kind, comparable, send

PLAN = {"Accept": "application/vnd.pgrst.plan+json"}
"""Requests the plan; plans of writes do not execute them."""


@pytest.mark.parametrize("both", [None, 1000], indirect=True, ids=["without db-max-rows", "with db-max-rows"])
async def test_cluster_returns_the_results_of_one_server(both: Both) -> None:
    different = []
    for kind in KINDS:
        expected = await send(both.plain, kind)
        found = await send(both.distributed, kind)
        if comparable(expected) != comparable(found):
            different.append(
                f"{kind}\n  one server: {comparable(expected)}\n  cluster:    {comparable(found)}"
            )
    assert not different, "\n".join(different)


async def test_requests_unsupported_by_citus_are_rejected(both: Both) -> None:
    for kind in REFUSED:
        found = await send(both.distributed, kind)
        assert "0A000" in found.text, (kind, found.text)
        assert "0A000" not in (await send(both.plain, kind)).text


_ONE_TASK = [
    Kind("task?company_id=eq.3&id=eq.4"),
    Kind("task?company_id=eq.3&id=lt.9&order=id&limit=5&offset=1"),
    Kind("task?company_id=eq.3&select=done,hours.sum()"),
    Kind("task?company_id=eq.3&select=id,project(title),employee(name)&order=id"),
    Kind("company?id=eq.3&select=id,project!project_company_id_fkey(id,task(id,title))"),
    Kind("employee?company_id=eq.3&select=id,project(id)"),
    Kind("task?company_id=eq.3&select=id,...project(project:title)"),
    Kind("task?company_id=eq.3&id=eq.4", "PATCH", {"title": "X"}, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4&select=id,project(title)", "PATCH", {"title": "X"}, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4", "DELETE", None, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4&select=id,project(title)", "DELETE", None, REPRESENTATION),
    Kind("task", "POST", TASK, REPRESENTATION),
    Kind("project", "POST", {"company_id": 3, "id": 100, "title": "P", "tags": ["x"]}, REPRESENTATION),
    Kind("employee", "POST", {"company_id": 3, "id": 2, "name": "Merged"}, MERGED),
    Kind("employee?company_id=eq.3&id=eq.2", "PUT", {"company_id": 3, "id": 2, "name": "M"}, REPRESENTATION),
]


@pytest.mark.parametrize("kind", _ONE_TASK, ids=lambda kind: f"{kind.method} {kind.target}")
async def test_single_tenant_request_is_one_task(both: Both, kind: Kind) -> None:
    response = await send(both.distributed, replace(kind, headers={**kind.headers, **PLAN}))
    assert response.status == 200, response.text
    assert tasks(response.body) == [1]


_KEY = "filter: {companyId: {eq: 3}, id: {eq: 4}}"


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        (f"{{ taskCollection({_KEY}) {{ edges {{ node {{ title }} }} }} }}", 1),
        ("{ taskByPk(companyId: 3, id: 4) { title project { title } } }", 1),
        ("{ companyByPk(id: 3) { employeeCollection(first: 2) { edges { node { name } } } } }", 1),
        ("{ taskCollection(filter: {companyId: {eq: 3}}) { totalCount edges { node { title } } } }", 1),
        (f"mutation {{ updateTaskCollection({_KEY}, set: {{done: true}}) {{ records {{ title }} }} }}", 1),
        (
            f"mutation {{ updateTaskCollection({_KEY}, set: {{id: 4}})"
            " { records { project { id } } } }",
            2,
        ),
        (f"mutation {{ deleteFromTaskCollection({_KEY}) {{ records {{ title project {{ title }} }} }} }}", 1),
        (
            'mutation { insertIntoTaskCollection(objects: [{companyId: 3, id: 9, projectId: 1, title: "T"}])'
            " { records { title } } }",
            1,
        ),
    ],
)
async def test_single_tenant_graphql_statements_are_one_task_each(
    both: Both, text: str, statements: int
) -> None:
    body = json.dumps({"query": text, "extensions": {"explain": True}}).encode()
    rolled_back = {"Prefer": "tx=rollback"}  # leaves the rows unchanged for other tests
    response = await both.distributed.send(body, role="service_role", headers=rolled_back)
    explained = response.body["extensions"]["explain"]
    sent = [found for statement in explained if (found := tasks(statement["plan"]))]
    assert sent == [[1]] * statements, explained
    others = [statement for statement in explained if not tasks(statement["plan"])]
    assert all("dataapi.changed_rows" in each["statement"] for each in others)


def tasks(plan: object) -> list[int]:
    """Return the number of tasks of each distributed part of a plan."""
    if isinstance(plan, list):
        return [number for each in plan for number in tasks(each)]
    if not isinstance(plan, dict):
        return []
    own = [int(plan["Task Count"])] if "Task Count" in plan else []
    return own + [number for each in plan.values() for number in tasks(each)]
