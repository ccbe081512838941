"""A caller's transactions of several messages: streamed rows, and batches of requests."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, Protocol

from dataapi.auth.caller import Caller, settings_for
from dataapi.auth.transaction import Runner, Settings, Transactions
from dataapi.catalog.model import Catalog
from dataapi.database.message import Bound, Message
from dataapi.database.session import Continuation, OpenTransaction
from dataapi.http.messages import Request
from dataapi.settings import Project

Batches = AsyncGenerator[list[tuple[Any, ...]], None]

_WHOLE_RESULT = ("cursor_tuple_fraction", "1")
"""Makes PostgreSQL plan a cursor for all of its rows; by default it expects that a tenth is read."""


class MultiMessageRunner(Runner, Protocol):
    """What runs messages and transactions of several: the pool."""

    def stream(self, message: Message) -> Batches:
        """Run a read-only message and yield the last statement's rows in batches."""

    def open_transaction(self, message: Message) -> AbstractAsyncContextManager[OpenTransaction]:
        """Begin a transaction of several messages, which the block ends or which is undone."""


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
        :param settings: what holds for this request alone, besides what it says of itself.
        :param again: whether these are more statements of the same request.
        :raises ApiError: what the database refuses; the transaction must be left with it.
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
        self, catalog: Catalog, request: Request, caller: Caller, statement: Bound, settings: Settings = ()
    ) -> Batches:
        """Run a read-only statement as the caller and yield its rows in batches, on demand.

        :raises ApiError: the database refuses the statement, at the first batch or later.
        """
        settings = (*settings, _WHOLE_RESULT)
        message = self.message(catalog, request, caller, (statement,), read_only=True, settings=settings)
        return self._pool.stream(replace(message, caller=identity(request, caller)))

    @asynccontextmanager
    async def begin(
        self, catalog: Catalog, request: Request, caller: Caller, *, read_only: bool, settings: Settings = ()
    ) -> AsyncGenerator[MultiMessageTransaction, None]:
        """Begin a transaction for the statements of several requests: all of them take effect, or none.

        :param request: the batch; its preferences decide how the transaction ends.
        :param settings: those of all of them, for the isolation level that they ask for.
        :raises ApiError: what the database refuses, when it begins or ends.
        """
        message = self.message(catalog, request, caller, (), read_only=read_only, settings=settings)
        beginning = self.message(catalog, request, caller, (), read_only=read_only)
        beginning = replace(
            beginning, statements=(), isolation=message.isolation, caller=identity(request, caller)
        )
        async with self._pool.open_transaction(beginning) as transaction:
            role = catalog.roles[caller.role].settings
            yield MultiMessageTransaction(transaction, caller, role, self._before, reading=read_only)
            await transaction.end(rollback=message.rollback)


def identity(request: Request, caller: Caller) -> str:
    """Return what identifies a caller among those who share connections: the user, else the address."""
    user = json.loads(caller.claims).get("sub")
    return f"{caller.role} {user}" if user else f"{caller.role} at {_address(request)}"


def _address(request: Request) -> str:
    """Return the client's address: the one that a proxy names, if the proxy's own is not public."""
    named = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    try:
        is_proxy = bool(named) and not ip_address(request.peer).is_global
    except ValueError:  # no address: a unix socket
        is_proxy = bool(named)
    return named if is_proxy else request.peer
