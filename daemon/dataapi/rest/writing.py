"""Changes of tables (POST, PATCH, PUT, DELETE), planned; pure."""

from __future__ import annotations

from dataapi.errors import ApiError
from dataapi.rest.context import Context, Planned


def plan(context: Context) -> Planned:
    """Plan a change."""
    details = f"{context.request.method} on tables is not available yet."
    raise ApiError(
        405,
        "PGRST127",
        "Feature not implemented",
        details=details,
        headers=(("Allow", "OPTIONS, GET, HEAD"),),
    )
