"""A caller's transaction: the role, the request's settings, the pre-request function, then the statements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from dataapi.access.caller import Caller
from dataapi.access.envelope import settings_for
from dataapi.catalog.model import Catalog
from dataapi.database.message import Bound, Message, Statement
from dataapi.database.quoting import quote_identifier
from dataapi.errors import ApiError, DatabaseError, DatabaseUnavailable
from dataapi.settings import Project
from dataapi.web.messages import Request

_EXPLAIN = "explain (format json) "

RETRIES = 3
"""How often a transaction is run again that lost to a concurrent one."""


class Runner(Protocol):
    """What runs a message: the pool."""

    async def run(self, message: Message) -> list[tuple[Any, ...]]:
        """Run a message and return the last statement's rows."""


class Transactions:
    """Runs statements for callers of one project, each time in one message."""

    def __init__(self, project: Project, runner: Runner) -> None:
        self._runner = runner
        self._end = project.db_tx_end
        self._before: tuple[Bound, ...] = ()
        if project.db_pre_request:
            name = ".".join(quote_identifier(part) for part in project.db_pre_request.split("."))
            self._before = (Bound(Statement(f"select {name}()", ())),)

    async def run(
        self,
        catalog: Catalog,
        request: Request,
        caller: Caller,
        statements: Sequence[Bound],
        *,
        read_only: bool,
    ) -> list[tuple[Any, ...]]:
        """Run the statements as the caller and return the last one's rows.

        A transaction that lost to a concurrent one (a serialization failure or a deadlock) has
        changed nothing, so it is run again a few times.

        :raises ApiError: what the database refuses, as the pool says it.
        """
        settings = _settings(catalog, request, caller)
        rollback = not read_only and self._end.rolls_back(request.headers.get("prefer", ""))
        message = Message(caller.role, settings, (*self._before, *statements), read_only, rollback)
        for _ in range(RETRIES):
            try:
                return await self._runner.run(message)
            except DatabaseError as error:
                if not error.serializable_retry:
                    raise
        return await self._runner.run(message)

    async def explain(
        self, catalog: Catalog, request: Request, caller: Caller, statements: Sequence[Bound]
    ) -> list[dict[str, Any]]:
        """Return each ``statement`` and the ``plan`` that ``EXPLAIN (FORMAT JSON)`` gives for it.

        Nothing is run: neither the statements, for which a transaction that refuses to write
        vouches, nor the pre-request function.

        :raises ApiError: what the database refuses.
        """
        settings = _settings(catalog, request, caller)
        plans = []
        for bound in statements:
            statement = Statement(f"{_EXPLAIN}{bound.statement.text}", bound.statement.types, prepared=False)
            message = Message(caller.role, settings, (Bound(statement, bound.values),), read_only=True)
            [[plan]] = await self._runner.run(message)
            plans.append({"statement": bound.statement.text, "plan": json.loads(plan)})
        return plans


def _settings(catalog: Catalog, request: Request, caller: Caller) -> tuple[tuple[str, str], ...]:
    return settings_for(request, caller) + catalog.roles[caller.role].settings


def catalog_for(catalog: Catalog | None, caller: Caller) -> Catalog:
    """Return the catalog when it serves the caller's role.

    :raises DatabaseUnavailable: no catalog was loaded yet (PGRST002).
    :raises ApiError: the login role may not assume the caller's role, or it does not exist (403, 42501).
    """
    if catalog is None:
        raise DatabaseUnavailable(
            503,
            "PGRST002",
            "Could not query the database for the schema cache. Retrying.",
            headers=(("Retry-After", "1"),),
        )
    if caller.role not in catalog.roles:
        raise ApiError(403, "42501", f'permission denied to set role "{caller.role}"')
    return catalog
