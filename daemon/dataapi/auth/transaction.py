"""Transactions of callers: the role, the request's settings, the pre-request function, then the statements.

Most transactions are one message. Streams and batches use several.

Statements are repeated only after an attempt that changed nothing:

- after a serialization failure or a deadlock: up to ``RETRIES`` times, for a conditional write up to
  ``CONDITIONAL_RETRIES`` times (``with_retries``);
- reads only: on each replica that may serve them, then on the primary (``Replicas.run``);
- once on the same connection, if a prepared statement is gone or settings of a previous message remain
  (``Session.run``).

These retries multiply: statements are sent at most eight times, unless there are replicas or the request is
a conditional write. After an error that an outdated catalog may have caused, ``Engine.execute`` plans a
request again once, and ``RestHandler.handle`` up to twice. All retries may then happen again.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from dataapi.auth.caller import REST_PREFIX, Caller, Settings, identity, isolation_level
from dataapi.catalog.model import Catalog
from dataapi.database.message import Bound, Message, Statement, explained
from dataapi.database.open_transaction import Continuation, OpenTransaction
from dataapi.database.positions import required_position
from dataapi.database.sql_text import quote_identifier
from dataapi.http.errors import ApiError, DatabaseError, DatabaseUnavailable
from dataapi.http.headers import Headers, json_object
from dataapi.http.messages import Commit, Request
from dataapi.settings import Project
from dataapi.sql.dialect import dialect_of

RowBatches = AsyncGenerator[list[tuple[Any, ...]], None]

_EMPTY_STATEMENT = Bound(Statement("select 1", ()))
_PLAN_FOR_ALL_ROWS = ("cursor_tuple_fraction", "1")
"""Optimizes a cursor for reading all rows. By default, PostgreSQL expects a tenth of the rows to be read."""

_Result = TypeVar("_Result")

RETRIES = 3
"""Maximum number of retries after a serialization failure or a deadlock."""

_CLEARED_RESPONSE = (("response.headers", ""), ("response.status", ""))
"""Clears the response settings that an earlier transaction on the connection may have set."""


def settings_for(request: Request, caller: Caller) -> Settings:
    """Return the transaction settings of a request, with PostgREST's names.

    All of them are always set, because a setting of an earlier transaction becomes an empty string, and an
    empty string is not JSON. This function runs for every request, so it is optimized for speed.
    """
    path, headers = request.path, request.headers
    rest = path.startswith(REST_PREFIX)
    if rest:
        # Functions written for PostgREST expect paths without the prefix, such as /items or /rpc/f.
        path = path[len(REST_PREFIX) :] or "/"
    settings = (
        ("request.jwt.claims", caller.claims),
        ("request.method", request.method),
        ("request.path", path),
        ("request.headers", headers.json if isinstance(headers, Headers) else json_object(headers)),
        ("request.cookies", _cookies(headers["cookie"]) if "cookie" in headers else "{}"),
    )
    return settings + _CLEARED_RESPONSE if rest else settings


def _cookies(header: str) -> str:
    cookies: dict[str, str] = {}
    for pair in header.split(";"):
        name, equals, value = pair.strip().partition("=")
        if equals and name:
            # User agents send the most specific of several cookies with equal names first (RFC 6265).
            cookies.setdefault(name, value.strip('"'))
    return json_object(cookies)


async def with_retries(attempt: Callable[[], Awaitable[_Result]], retries: int = RETRIES) -> _Result:
    """Run a transaction, retrying after serialization failures and deadlocks.

    :raises ApiError: the error of the last attempt.
    """
    for _ in range(retries):
        try:
            return await attempt()
        except DatabaseError as error:
            if not error.serializable_retry:
                raise
    return await attempt()


class UnknownRole(ApiError):
    """Raised when the caller's role does not exist, or the login role is not allowed to assume it."""


class Runner(Protocol):
    """Runs the statements of a ``Message``. Implemented by the pool."""

    async def run(self, message: Message) -> list[tuple[Any, ...]]: ...


class MultiMessageRunner(Runner, Protocol):
    """Runs statements, streams rows and opens transactions. Implemented by the pool."""

    def stream(self, message: Message) -> RowBatches:
        """Run a read-only message and yield the rows of its last statement in batches."""

    def open_transaction(self, message: Message) -> AbstractAsyncContextManager[OpenTransaction]:
        """Begin a transaction. It is rolled back unless the ``async with`` block calls its method ``end``."""


class Transactions:
    """Runs statements for the callers of a project, one message per transaction."""

    def __init__(self, project: Project, runner: Runner) -> None:
        self._runner = runner
        self._replicated = project.db_read_uri is not None
        self._end = project.db_tx_end
        self._before: tuple[Bound, ...] = ()
        if project.db_pre_request:
            name = ".".join(quote_identifier(part) for part in project.db_pre_request.split("."))
            self._before = (Bound(Statement(f"select {name}()", (), shareable=False)),)

    async def assume(self, role: str) -> None:
        """Check that the login role may assume a role. Raises ``ApiError`` otherwise."""
        if "\0" not in role:
            await self._runner.run(Message(role, (), (_EMPTY_STATEMENT,)))

    async def run_pre_request(self, catalog: Catalog, request: Request, caller: Caller) -> None:
        if self._before:
            await self.run(catalog, request, caller, (_EMPTY_STATEMENT,), read_only=True)

    async def run(
        self,
        catalog: Catalog,
        request: Request,
        caller: Caller,
        statements: Sequence[Bound],
        *,
        read_only: bool,
        settings: Settings = (),
        by_replica: bool = False,
    ) -> list[tuple[Any, ...]]:
        """Run the statements as the caller and return the rows of the last statement.

        The module's docstring describes retries.

        :param settings: transaction settings in addition to the request's and the role's.
        :raises ApiError: PostgreSQL reported an error.
        """
        message = self.message(
            catalog,
            request,
            caller,
            statements,
            read_only=read_only,
            settings=settings,
            by_replica=by_replica,
        )
        try:
            return await with_retries(partial(self._runner.run, message))
        except DatabaseError as error:
            raise dialect_of(catalog).error(error, catalog) from error.__cause__

    def message(
        self,
        catalog: Catalog,
        request: Request,
        caller: Caller,
        statements: Sequence[Bound],
        *,
        read_only: bool,
        settings: Settings = (),
        by_replica: bool = False,
    ) -> Message:
        read_only = read_only or request.context.read_only
        extra = catalog.roles[caller.role].settings + settings
        before = (*self._before, *dialect_of(catalog).after_pre_request) if self._before else ()
        message = Message(
            caller.role,
            settings_for(request, caller) + extra,
            (*before, *statements),
            read_only,
            rollback=not read_only and self._end.rolls_back(request.headers.get("prefer", "")),
            isolation=isolation_level(extra) if extra else None,
            context=request.context,
            shareable=not (
                catalog.timeout_matters
                or (catalog.defers_triggers and not read_only)
                or request.context.background
            ),
        )
        if self._replicated:
            if by_replica:
                required = required_position(request.headers)
                if required is not None:
                    return message._replace(by_replica=True, required_position=required)
            if not (message.read_only or message.rollback):
                return message._replace(positioned=True)
        return message

    async def explain(
        self,
        catalog: Catalog,
        request: Request,
        caller: Caller,
        statements: Sequence[Bound],
        extra_settings: Settings = (),
    ) -> list[dict[str, Any]]:
        """Return the text and the plan of each statement, as ``statement`` and ``plan``.

        Neither the statements nor the pre-request function is executed.

        :raises ApiError: PostgreSQL reported an error.
        """
        settings = settings_for(request, caller) + catalog.roles[caller.role].settings + extra_settings
        plans = []
        for bound in statements:
            message = Message(caller.role, settings, (explained(bound),), context=request.context)
            [[plan]] = await self._runner.run(message)
            plans.append({"statement": bound.statement.text, "plan": json.loads(plan)})
        return plans


class MultiMessageTransaction:
    """A caller's transaction that runs the statements of several requests.

    :param before: call of the pre-request function, run once per request.
    """

    def __init__(
        self,
        transaction: OpenTransaction,
        caller: Caller,
        role: Settings,
        before: tuple[Bound, ...],
        *,
        reading: bool,
    ) -> None:
        self._transaction = transaction
        self._before = before
        self._caller = caller
        self._role = role
        self._reading = reading
        self._changed_settings: dict[str, None] = {}

    async def run(
        self,
        request: Request,
        statements: Sequence[Bound],
        *,
        read_only: bool,
        settings: Settings = (),
        continued: bool = False,
    ) -> list[tuple[Any, ...]]:
        """Run a request's statements and return the rows of the last statement.

        :param read_only: whether the statements must not write, even if the transaction may.
        :param settings: settings of this request only.
        :param continued: whether the request has already run statements in this transaction.
        :raises ApiError: PostgreSQL reported an error. The transaction can only be rolled back.
        """
        own_access_mode = read_only and not self._reading
        own = settings_for(request, self._caller)
        if continued:
            # Do not clear the response headers that the pre-request function may have set.
            own = tuple([each for each in own if each not in _CLEARED_RESPONSE])
        step = Continuation(
            own + self._role + settings,
            (*(() if continued else self._before), *statements),
            read_only=own_access_mode,
            restored=tuple(self._changed_settings),
        )
        if not own_access_mode:
            self._changed_settings.update((name, None) for name, _ in settings)
        return await self._transaction.continue_with(step)


class MultiMessageTransactions(Transactions):
    """A project's transactions, including transactions of several messages."""

    def __init__(self, project: Project, runner: MultiMessageRunner) -> None:
        super().__init__(project, runner)
        self._pool = runner

    def stream(
        self,
        catalog: Catalog,
        request: Request,
        caller: Caller,
        statement: Bound,
        settings: Settings = (),
        *,
        by_replica: bool = False,
    ) -> RowBatches:
        settings = (*settings, _PLAN_FOR_ALL_ROWS)
        message = self.message(
            catalog, request, caller, (statement,),
            read_only=True, settings=settings, by_replica=by_replica,
        )  # fmt: skip
        return self._pool.stream(message._replace(caller=identity(request, caller)))

    @asynccontextmanager
    async def begin(
        self, catalog: Catalog, request: Request, caller: Caller, *, read_only: bool, settings: Settings = ()
    ) -> AsyncGenerator[MultiMessageTransaction, None]:
        """Begin a transaction for the statements of several requests.

        :param request: the batch request. Its preferences determine whether to commit or roll back.
        :param settings: settings of the whole transaction, which determine its isolation level.
        :raises ApiError: PostgreSQL reported an error.
        """
        message = self.message(catalog, request, caller, (), read_only=read_only, settings=settings)
        role = catalog.roles[caller.role].settings
        own = settings_for(request, caller) + role
        before = message.statements  # every request calls the pre-request function
        beginning = message._replace(settings=own, statements=(), caller=identity(request, caller))
        try:
            async with self._pool.open_transaction(beginning) as transaction:
                reading = message.read_only
                yield MultiMessageTransaction(transaction, caller, role, before, reading=reading)
                await transaction.end(rollback=message.rollback)
                if message.positioned:
                    request.context.report(Commit(await transaction.position()))
        except DatabaseError as error:
            raise dialect_of(catalog).error(error, catalog) from error.__cause__


def catalog_for(catalog: Catalog | None, caller: Caller) -> Catalog:
    """Return the catalog if it contains the caller's role.

    :raises DatabaseUnavailable: no catalog has been loaded yet (PGRST002).
    :raises UnknownRole: the role does not exist, or the login role is not allowed to assume it (403, 42501).
    :raises ApiError: the role is the login role or a superuser (403, 42501).
    """
    if catalog is None:
        raise DatabaseUnavailable(
            503,
            "PGRST002",
            "Could not query the database for the schema cache. Retrying.",
            headers=(("Retry-After", "1"),),
        )
    role = catalog.roles.get(caller.role)
    if role is not None and role.forbidden_kind is None:
        return catalog
    denied = f'permission denied to set role "{caller.role}"'
    if role is None:
        raise UnknownRole(403, "42501", denied)
    raise ApiError(403, "42501", denied, hint=f"Requests never run as {role.forbidden_kind}.")
