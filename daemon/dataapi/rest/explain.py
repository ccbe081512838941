"""EXPLAIN statements for ``Accept: application/vnd.pgrst.plan``."""

from __future__ import annotations

from dataapi.database.message import Bound, explained
from dataapi.rest.negotiation import Explain


def explain_statement(bound: Bound, explain: Explain) -> Bound:
    """Return the statement that explains another statement.

    With ``analyze``, PostgreSQL runs the statement, so a mutation takes effect unless it is rolled back.
    """
    return explained(bound, ", ".join([f"format {'json' if explain.as_json else 'text'}", *explain.options]))
