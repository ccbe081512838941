"""How much one request may ask for, so that none holds up others; pure.

What clients write by hand or by program is far below; each number is measured to cost the daemon a
few hundredths of a second at most, and PostgreSQL not much more before it looks at the first row.
"""

from __future__ import annotations

from dataapi.errors import ApiError

MOST_ITEMS = 1600
"""Items of ``select``: as many as a table may have columns."""
MOST_RESOURCES = 100
"""Resources embedded by one request."""
MOST_MEMBERS = 1600
"""Members of one object: PostgreSQL makes rows of little more."""
MOST_MEMBERS_IN_ALL = 5000
"""Members of the objects of all resources, those that stars stand for included."""
MOST_CONDITIONS = 1000
"""Filters of one request, those in logic trees included; a list of ``in`` counts as one."""
MOST_TERMS = 100
"""Terms of one ``order``."""
MOST_STEPS = 100
"""Steps of one path into a JSON value."""
MOST_NAMES = 1600
"""Names in ``columns`` and ``on_conflict``."""
MOST_PLACES = 2500
"""Resources and conditions where they stand in a statement: some are there more than once."""


def too_much(details: str) -> ApiError:
    """Return the error of a request that goes beyond a bound which no single parameter does."""
    return ApiError(400, "PGRST100", "The request asks for too much at once", details=details)
