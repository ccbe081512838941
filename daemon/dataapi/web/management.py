"""The area of webhooks' management, ``/v2/``; its paths are those of the table of operations."""

from __future__ import annotations

from typing import Any

from klein import Klein

from dataapi.web.areas import MANAGEMENT, PUBLISHING, Area
from dataapi.web.backend import Backend, Management
from dataapi.web.messages import Reply, Request
from dataapi.web.routing import route
from dataapi.webhooks.management.operations import by_path


def declare(app: Klein, management: Management) -> None:
    """Declare the routes of every operation, publishing (``/v1/webhooks/events``) among them."""
    for path in by_path():
        area = MANAGEMENT if path.startswith(MANAGEMENT.prefix) else PUBLISHING
        _declare(app, path, area, management)


def _declare(app: Klein, path: str, area: Area, management: Management) -> None:
    async def operate(_backend: Backend | None, request: Request, **places: Any) -> Reply:
        return await management.answer(request, path, places)

    operate.__name__ = path  # Klein knows routes by their handlers' names
    route(app, path.replace("{", "<").replace("}", ">"), area)(operate)
