"""Calls of functions below ``/rpc/``, planned; pure."""

from __future__ import annotations

from dataapi.rest.context import Context, Planned
from dataapi.rest.unsupported import unsupported
from dataapi.web.messages import Reply


def plan(context: Context) -> Planned | Reply:
    """Plan a call."""
    raise unsupported(f"The function {context.target} cannot be called yet.")
