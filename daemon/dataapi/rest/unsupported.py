"""The one error for what the dialect has and this service does not, so that nothing is ignored in silence."""

from __future__ import annotations

from dataapi.errors import ApiError


def unsupported(details: str) -> ApiError:
    """Return PostgREST's ``Feature not implemented`` with what was asked for."""
    return ApiError(400, "PGRST127", "Feature not implemented", details=details)
