"""A caller's transaction: the role, the request's settings, the pre-request function, then the statements."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

from dataapi.auth.caller import Caller, settings_for
from dataapi.catalog.model import Catalog, Function
from dataapi.database.message import Bound, Message, Statement
from dataapi.database.sql_text import ISOLATION_LEVELS, quote_identifier
from dataapi.http.errors import ApiError, DatabaseError, DatabaseUnavailable
from dataapi.http.messages import Request
from dataapi.settings import Project

Settings = tuple[tuple[str, str], ...]
"""Settings of a transaction, ``(name, value)``; the last one of a name wins."""

_ISOLATION = "default_transaction_isolation"
_EXPLAIN = "explain (format json) "
_NOTHING = Bound(Statement("select 1", ()))

RETRIES = 3
"""How often a transaction that lost to a concurrent one is run again."""


class UnknownRole(ApiError):
    """The caller's role is not in the catalog: the login role may not assume it, or it does not exist."""


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

    async def assume(self, role: str) -> None:
        """Assume a role and do nothing; raises PostgreSQL's ``ApiError`` if it refuses."""
        if "\0" not in role:
            await self._runner.run(Message(role, (), (_NOTHING,)))

    async def run_pre_request(self, catalog: Catalog, request: Request, caller: Caller) -> None:
        """Run the pre-request function, if there is one, for an answer that needs no other statement.

        :raises ApiError: the function refuses the request.
        """
        if self._before:
            await self.run(catalog, request, caller, (_NOTHING,), read_only=True)

    async def run(
        self,
        catalog: Catalog,
        request: Request,
        caller: Caller,
        statements: Sequence[Bound],
        *,
        read_only: bool,
        settings: Settings = (),
    ) -> list[tuple[Any, ...]]:
        """Run the statements as the caller and return the last one's rows.

        A transaction that lost to a concurrent one (a serialization failure or a deadlock) has
        changed nothing, so it is run again a few times.

        :param settings: more settings for this transaction besides the request's and the role's own, such as
            those of a called function (see ``hoisted``).
        :raises ApiError: the database refuses a statement, as the pool reports it.
        """
        message = self.message(catalog, request, caller, statements, read_only=read_only, settings=settings)
        for _ in range(RETRIES):
            try:
                return await self._runner.run(message)
            except DatabaseError as error:
                if not error.serializable_retry:
                    raise
        return await self._runner.run(message)

    def message(
        self,
        catalog: Catalog,
        request: Request,
        caller: Caller,
        statements: Sequence[Bound],
        *,
        read_only: bool,
        settings: Settings = (),
    ) -> Message:
        """Return the message that runs the statements as the caller; see ``run``."""
        extra = catalog.roles[caller.role].settings + settings
        return Message(
            caller.role,
            settings_for(request, caller) + extra,
            (*self._before, *statements),
            read_only,
            rollback=not read_only and self._end.rolls_back(request.headers.get("prefer", "")),
            isolation=isolation_of(extra),
        )

    async def explain(
        self, catalog: Catalog, request: Request, caller: Caller, statements: Sequence[Bound]
    ) -> list[dict[str, Any]]:
        """Return each ``statement`` and the ``plan`` that ``EXPLAIN (FORMAT JSON)`` gives for it.

        Neither the statements nor the pre-request function are run; the transaction is read-only.

        :raises ApiError: what the database refuses.
        """
        settings = settings_for(request, caller) + catalog.roles[caller.role].settings
        plans = []
        for bound in statements:
            message = Message(caller.role, settings, (explained(bound),), read_only=True)
            [[plan]] = await self._runner.run(message)
            plans.append({"statement": bound.statement.text, "plan": json.loads(plan)})
        return plans


def explained(bound: Bound) -> Bound:
    """Return the statement that shows the plan of another one as JSON without running it."""
    statement = Statement(f"{_EXPLAIN}{bound.statement.text}", bound.statement.types, prepared=False)
    return Bound(statement, bound.values)


def hoisted(function: Function, names: Collection[str]) -> Settings:
    """Return a function's settings that apply to the whole transaction in which it is called.

    :param names: which settings do (``db-hoisted-tx-settings``), in lower case.
    """
    return tuple(setting for setting in function.settings if setting[0].lower() in names)


def isolation_of(settings: Settings) -> str | None:
    """Return the isolation level among the settings; it must be set when the transaction begins."""
    level = None
    for name, value in settings:
        if name.lower() == _ISOLATION:
            level = value.upper()
    return level if level in ISOLATION_LEVELS else None


def strictest(levels: Iterable[str | None]) -> Settings:
    """Return the setting for the strictest of these isolation levels, or no setting without any."""
    known = [level for level in levels if level is not None]
    return ((_ISOLATION, max(known, key=ISOLATION_LEVELS.index)),) if known else ()


def catalog_for(catalog: Catalog | None, caller: Caller) -> Catalog:
    """Return the catalog if it serves the caller's role.

    :raises DatabaseUnavailable: no catalog was loaded yet (PGRST002).
    :raises UnknownRole: the login role may not assume the caller's role, or it does not exist (403, 42501).
    :raises ApiError: the caller's role is the login role or a superuser (403, 42501).
    """
    if catalog is None:
        raise DatabaseUnavailable(
            503,
            "PGRST002",
            "Could not query the database for the schema cache. Retrying.",
            headers=(("Retry-After", "1"),),
        )
    role, denied = catalog.roles.get(caller.role), f'permission denied to set role "{caller.role}"'
    if role is None:
        raise UnknownRole(403, "42501", denied)
    if role.excess is not None:
        raise ApiError(403, "42501", denied, hint=f"Requests never run as {role.excess}.")
    return catalog
