"""A caller's transaction: the role, the request's settings, the pre-request function, then the statements.

Most are one message; streamed rows and batches of requests take several.

Statements are sent again only after an attempt that changed nothing:

- at most ``RETRIES`` times where the transaction lost to a concurrent one (``retried``);
- each of these on every replica that may answer, then on the primary (``Replicas.run``), reads only;
- each of these once more on the same connection, if what it had prepared is gone or a predecessor left
  settings behind (``Session.run``).

That is eight times where there are no replicas.  A request whose error a newer catalog may cure is planned
again, and its new statements count from the start: once by ``Engine.execute``, up to twice by
``RestHandler.handle``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from dataapi.auth.caller import REST_PREFIX, Caller, Settings, identity, isolation_of
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

Batches = AsyncGenerator[list[tuple[Any, ...]], None]

_NOTHING = Bound(Statement("select 1", ()))
_WHOLE_RESULT = ("cursor_tuple_fraction", "1")
"""Makes PostgreSQL plan a cursor for all of its rows; by default it expects that a tenth is read."""

_Result = TypeVar("_Result")

_NO_ANSWER = (("response.headers", ""), ("response.status", ""))
"""SQL's choices for a REST answer: none yet, whatever was set on the connection's session."""

RETRIES = 3
"""How often a transaction that lost to a concurrent one is run again."""


def settings_for(request: Request, caller: Caller) -> Settings:
    """Return the transaction-local settings of a request, as PostgREST names them.

    All of them are always set: a setting that an earlier transaction of the connection made reads as an
    empty text afterwards, which is not JSON.  Runs for every statement, so it is written for speed.
    """
    path, headers = request.path, request.headers
    rest = path.startswith(REST_PREFIX)
    if rest:
        # Functions written for PostgREST expect paths without a gateway's prefix, such as /items or /rpc/f.
        path = path[len(REST_PREFIX) :] or "/"
    settings = (
        ("request.jwt.claims", caller.claims),
        ("request.method", request.method),
        ("request.path", path),
        ("request.headers", headers.json if isinstance(headers, Headers) else json_object(headers)),
        ("request.cookies", _cookies(headers["cookie"]) if "cookie" in headers else "{}"),
    )
    return settings + _NO_ANSWER if rest else settings


def _cookies(header: str) -> str:
    """Return the cookies as a JSON object; the first of a name wins, as RFC 6265 sorts them."""
    cookies: dict[str, str] = {}
    for pair in header.split(";"):
        name, equals, value = pair.strip().partition("=")
        if equals and name:
            cookies.setdefault(name, value.strip('"'))
    return json_object(cookies)


async def retried(attempt: Callable[[], Awaitable[_Result]]) -> _Result:
    """Run a transaction, and again a few times if it lost to a concurrent one and so has changed nothing.

    :raises ApiError: that of the last attempt.
    """
    for _ in range(RETRIES):
        try:
            return await attempt()
        except DatabaseError as error:
            if not error.serializable_retry:
                raise
    return await attempt()


class UnknownRole(ApiError):
    """The caller's role is not in the catalog: the login role may not assume it, or it does not exist."""


class Runner(Protocol):
    """Runs messages: the pool."""

    async def run(self, message: Message) -> list[tuple[Any, ...]]:
        """Run a message and return the last statement's rows."""


class MultiMessageRunner(Runner, Protocol):
    """Runs messages and transactions of several: the pool."""

    def stream(self, message: Message) -> Batches:
        """Run a read-only message and yield the last statement's rows in batches."""

    def open_transaction(self, message: Message) -> AbstractAsyncContextManager[OpenTransaction]:
        """Begin a transaction of several messages, which the block ends or which is undone."""


class Transactions:
    """Runs statements for callers of one project, each time in one message."""

    def __init__(self, project: Project, runner: Runner) -> None:
        self._runner = runner
        self._replicated = project.db_read_uri is not None
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
        """Run the pre-request function, if any, for an answer without a statement; raises ``ApiError``."""
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
        by_replica: bool = False,
    ) -> list[tuple[Any, ...]]:
        """Run the statements as the caller and return the last one's rows.

        They may reach PostgreSQL several times: the module's docstring says how often.

        :param settings: more settings for this transaction besides the request's and the role's own, such as
            those of a called function (see ``hoisted``).
        :param by_replica: whether a replica may answer.
        :raises ApiError: the database refuses a statement, as the pool reports it.
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
            return await retried(partial(self._runner.run, message))
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
        """Return the message that runs the statements as the caller; see ``run``."""
        extra = catalog.roles[caller.role].settings + settings
        before = (*self._before, *dialect_of(catalog).after_pre_request) if self._before else ()
        message = Message(
            caller.role,
            settings_for(request, caller) + extra,
            (*before, *statements),
            read_only,
            rollback=not read_only and self._end.rolls_back(request.headers.get("prefer", "")),
            isolation=isolation_of(extra) if extra else None,
            context=request.context,
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
        more: Settings = (),
    ) -> list[dict[str, Any]]:
        """Return each ``statement`` and the ``plan`` that ``EXPLAIN (FORMAT JSON)`` gives for it.

        Neither the statements nor the pre-request function are run; the transaction is read-only.

        :param more: settings besides the request's and the role's own.
        :raises ApiError: the database refuses a statement.
        """
        settings = settings_for(request, caller) + catalog.roles[caller.role].settings + more
        plans = []
        for bound in statements:
            message = Message(caller.role, settings, (explained(bound),), context=request.context)
            [[plan]] = await self._runner.run(message)
            plans.append({"statement": bound.statement.text, "plan": json.loads(plan)})
        return plans


class MultiMessageTransaction:
    """A caller's transaction in which the statements of several requests run, one after the other.

    :param before: the call of the pre-request function, which runs once for each request.
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
        self._made: dict[str, None] = {}

    async def run(
        self,
        request: Request,
        statements: Sequence[Bound],
        *,
        read_only: bool,
        settings: Settings = (),
        again: bool = False,
    ) -> list[tuple[Any, ...]]:
        """Run a request's statements and return the last one's rows.

        :param read_only: whether they may not write, even where those of other requests may.
        :param settings: those of only this request, besides ``settings_for``.
        :param again: whether these are more statements of the same request.
        :raises ApiError: the database refuses a statement; the transaction must be left with it.
        """
        aside = read_only and not self._reading
        step = Continuation(
            settings_for(request, self._caller) + self._role + settings,
            (*(() if again else self._before), *statements),
            read_only=aside,
            restored=tuple(self._made),
        )
        if not aside:
            self._made.update((name, None) for name, _ in settings)
        return await self._transaction.continue_with(step)


class MultiMessageTransactions(Transactions):
    """A project's transactions, including those of several messages."""

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
    ) -> Batches:
        """Run a read-only statement as the caller; yield rows in batches on demand, or raise ``ApiError``."""
        settings = (*settings, _WHOLE_RESULT)
        message = self.message(
            catalog, request, caller, (statement,),
            read_only=True, settings=settings, by_replica=by_replica,
        )  # fmt: skip
        return self._pool.stream(message._replace(caller=identity(request, caller)))

    @asynccontextmanager
    async def begin(
        self, catalog: Catalog, request: Request, caller: Caller, *, read_only: bool, settings: Settings = ()
    ) -> AsyncGenerator[MultiMessageTransaction, None]:
        """Begin a transaction for the statements of several requests: all of them take effect, or none.

        :param request: the batch; its preferences decide how the transaction ends.
        :param settings: those of all of them, for the isolation level that they ask for.
        :raises ApiError: the database refuses its beginning or its end.
        """
        message = self.message(catalog, request, caller, (), read_only=read_only, settings=settings)
        role = catalog.roles[caller.role].settings
        own = settings_for(request, caller) + role
        before = message.statements  # each of the requests calls the pre-request function
        beginning = message._replace(settings=own, statements=(), caller=identity(request, caller))
        try:
            async with self._pool.open_transaction(beginning) as transaction:
                yield MultiMessageTransaction(transaction, caller, role, before, reading=read_only)
                await transaction.end(rollback=message.rollback)
                if message.positioned:
                    request.context.report(Commit(await transaction.position()))
        except DatabaseError as error:
            raise dialect_of(catalog).error(error, catalog) from error.__cause__


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
    role = catalog.roles.get(caller.role)
    if role is not None and role.forbidden_kind is None:
        return catalog
    denied = f'permission denied to set role "{caller.role}"'
    if role is None:
        raise UnknownRole(403, "42501", denied)
    raise ApiError(403, "42501", denied, hint=f"Requests never run as {role.forbidden_kind}.")
