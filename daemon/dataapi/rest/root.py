"""The root of the REST API: what it has, described."""

from __future__ import annotations

from dataapi.rest.context import Context
from dataapi.rest.unsupported import unsupported
from dataapi.web.messages import Reply


async def answer(context: Context) -> Reply:
    """Describe what the role may use."""
    raise unsupported(f"The description of schema {context.schema} is not available yet.")
