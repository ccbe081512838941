"""Answers of PostgreSQL's planner: the plan of a statement in place of its rows."""

from __future__ import annotations

from dataapi.database.message import Bound, explained
from dataapi.rest.negotiation import Explain


def explaining(bound: Bound, explain: Explain) -> Bound:
    """Return the statement that explains another one, which runs only if it is analyzed.

    An analyzed change is made, as everything in a transaction is that is not undone at its end.
    """
    return explained(bound, ", ".join([f"format {'json' if explain.as_json else 'text'}", *explain.options]))
