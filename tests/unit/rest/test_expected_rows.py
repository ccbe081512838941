"""How many rows the planner expects, read from a plan."""

from __future__ import annotations

from typing import Any

from dataapi.rest.explain import expected_rows


def shard(rows: int, cost: float) -> dict[str, Any]:
    return {"Remote Plan": [[{"Plan": {"Plan Rows": rows, "Total Cost": cost}}]]}


def test_a_plan_of_one_server_says_so() -> None:
    assert expected_rows([{"Plan": {"Node Type": "Seq Scan", "Plan Rows": 7, "Total Cost": 0.0}}]) == 7


def test_shards_are_added_up_but_for_empty_ones() -> None:
    """PostgreSQL expects a row of a table that has none."""
    tasks = [shard(20, 1.25), shard(1, 0.0), shard(30, 1.5), shard(1, 8.27)]
    plan = {"Plan Rows": 100_000, "Distributed Query": {"Job": {"Tasks": tasks}}}
    assert expected_rows([{"Plan": plan}]) == 51
