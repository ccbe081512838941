"""Answers of PostgreSQL's planner: the plan of a statement in place of its rows, and their likely number."""

from __future__ import annotations

from typing import Any

from dataapi.database.message import Bound, explained
from dataapi.rest.negotiation import Explain

ALL_SHARDS = (("citus.explain_all_tasks", "on"),)
"""Makes Citus show the plan of every shard, not of one only."""


def expected_rows(plans: Any) -> int:
    """Return how many rows the planner expects, of all shards together where it asks some.

    :param plans: what ``EXPLAIN (FORMAT JSON)`` gives.
    """
    plan = plans[0]["Plan"]
    if "Distributed Query" not in plan:
        return int(plan["Plan Rows"])
    tasks = plan["Distributed Query"]["Job"]["Tasks"]
    shards = [remote[0]["Plan"] for task in tasks for remote in task["Remote Plan"]]
    # PostgreSQL never expects less than one row, not even of a shard that is empty.
    return sum(int(shard["Plan Rows"]) for shard in shards if shard["Total Cost"] > 0)


def explaining(bound: Bound, explain: Explain) -> Bound:
    """Return the statement that explains another one, which runs only if it is analyzed.

    An analyzed change is made, as everything in a transaction is that is not undone at its end.
    """
    return explained(bound, ", ".join([f"format {'json' if explain.as_json else 'text'}", *explain.options]))
