"""Requests are answered on a Citus cluster as on one server, and those of one tenant by one shard."""

from __future__ import annotations

import pytest
from support.kinds import KINDS, REPRESENTATION, Both, Kind, send, told

FEWEST_EQUAL = 150
"""Of the kinds of requests; docs/guides/scaling.md, Citus, says what the others come to."""

PLAN = {"Accept": "application/vnd.pgrst.plan+json"}
"""Asks for the plan of a request; those of changes do not make them."""


async def test_a_cluster_answers_as_one_server_does(both: Both) -> None:
    different = []
    for kind in KINDS:
        expected = await send(both.plain, kind)
        found = await send(both.distributed, kind)
        if told(expected) != told(found):
            different.append(f"{kind}\n  one server: {told(expected)}\n  cluster:    {told(found)}")
    report = f"{len(KINDS) - len(different)} of {len(KINDS)} are equal"
    print(report)  # noqa: T201 - what is measured
    assert len(KINDS) - len(different) >= FEWEST_EQUAL, "\n".join([report, *different])


@pytest.mark.parametrize(
    "kind",
    [
        Kind("task?company_id=eq.3&id=eq.4", headers=PLAN),
        Kind("task?company_id=eq.3&select=id,project(title),employee(name)&order=id", headers=PLAN),
        Kind("company?id=eq.3&select=id,project!project_company_id_fkey(id,task(id,title))", headers=PLAN),
        Kind("employee?company_id=eq.3&select=id,project(id)", headers=PLAN),
        Kind("task?company_id=eq.3&select=id,...project(project:title)", headers=PLAN),
        Kind("task?company_id=eq.3&id=eq.4", "PATCH", {"title": "X"}, {**REPRESENTATION, **PLAN}),
        Kind("task?company_id=eq.3&id=eq.4", "DELETE", None, {**REPRESENTATION, **PLAN}),
    ],
    ids=lambda kind: f"{kind.method} {kind.target}",
)
async def test_what_is_asked_of_one_tenant_is_one_task(both: Both, kind: Kind) -> None:
    answer = await send(both.distributed, kind)
    assert answer.status == 200, answer.text
    assert tasks(answer.body) == [1]


def tasks(plan: object) -> list[int]:
    """Return the number of tasks of each part of a plan that is sent to shards."""
    if isinstance(plan, list):
        return [number for each in plan for number in tasks(each)]
    if not isinstance(plan, dict):
        return []
    own = [int(plan["Task Count"])] if "Task Count" in plan else []
    return own + [number for each in plan.values() for number in tasks(each)]
