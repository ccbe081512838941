"""A caller's transactions of several messages: rows that are streamed, and batches of requests."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, Protocol

from dataapi.access.caller import Caller
from dataapi.access.envelope import settings_for
from dataapi.access.transaction import Runner, Settings, Transactions
from dataapi.catalog.model import Catalog
from dataapi.database.conversation import Conversation, Step
from dataapi.database.message import Bound, Message
from dataapi.settings import Project
from dataapi.web.messages import Request

Batches = AsyncGenerator[list[tuple[Any, ...]], None]

_WHOLE_RESULT = ("cursor_tuple_fraction", "1")
"""Plans a cursor for all of its rows; PostgreSQL expects that a tenth of them is read."""


class LongRunner(Runner, Protocol):
    """What runs messages and transactions of several: the pool."""

    def stream(self, message: Message) -> Batches:
        """Run a message that only reads and give the last statement's rows in batches."""

    def converse(self, message: Message) -> AbstractAsyncContextManager[Conversation]:
        """Begin a transaction of several messages, which the block ends or which is undone."""


class Together:
    """A caller's transaction in which the statements of several requests run, one after the other.

    :param before: the call of the pre-request function, which each request has to pass by itself.
    """

    def __init__(
        self, talk: Conversation, caller: Caller, role: Settings, before: tuple[Bound, ...], *, reading: bool
    ) -> None:
        self._talk = talk
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
        :param settings: what holds for this request alone, beside what it says of itself.
        :param again: whether these are further statements of the same request.
        :raises ApiError: what the database refuses; the transaction is to be left with it.
        """
        aside = read_only and not self._reading
        step = Step(
            settings_for(request, self._caller) + self._role + settings,
            (*(() if again else self._before), *statements),
            read_only=aside,
            restored=tuple(self._made),
        )
        if not aside:
            self._made.update((name, None) for name, _ in settings)
        return await self._talk.go_on(step)


class LongTransactions(Transactions):
    """Transactions of one project, those of several messages too."""

    def __init__(self, project: Project, runner: LongRunner) -> None:
        super().__init__(project, runner)
        self._long = runner

    def stream(
        self, catalog: Catalog, request: Request, caller: Caller, statement: Bound, settings: Settings = ()
    ) -> Batches:
        """Run a statement that only reads as the caller and give its rows in batches, as they are asked for.

        :raises ApiError: what the database refuses, when the first batch is asked for or later.
        """
        settings = (*settings, _WHOLE_RESULT)
        message = self.message(catalog, request, caller, (statement,), read_only=True, settings=settings)
        return self._long.stream(replace(message, caller=identity(request, caller)))

    @asynccontextmanager
    async def together(
        self, catalog: Catalog, request: Request, caller: Caller, *, read_only: bool, settings: Settings = ()
    ) -> AsyncGenerator[Together, None]:
        """Give a transaction for the statements of several requests: all of what they do, or nothing.

        :param request: the one that brings the others; its preferences decide how the transaction ends.
        :param settings: those of all of them, for the isolation level that they ask for.
        :raises ApiError: what the database refuses, when it begins or ends.
        """
        message = self.message(catalog, request, caller, (), read_only=read_only, settings=settings)
        beginning = self.message(catalog, request, caller, (), read_only=read_only)
        beginning = replace(
            beginning, statements=(), isolation=message.isolation, caller=identity(request, caller)
        )
        async with self._long.converse(beginning) as talk:
            role = catalog.roles[caller.role].settings
            yield Together(talk, caller, role, self._before, reading=read_only)
            await talk.end(rollback=message.rollback)


def identity(request: Request, caller: Caller) -> str:
    """Return by what callers that share connections are told apart: users by token, others by address."""
    user = json.loads(caller.claims).get("sub")
    return f"{caller.role} {user}" if user else f"{caller.role} at {_address(request)}"


def _address(request: Request) -> str:
    """Return the client's address: that which a proxy of ours names, as its own is not public."""
    named = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    try:
        is_proxy = bool(named) and not ip_address(request.peer).is_global
    except ValueError:  # no address, as over a unix socket
        is_proxy = bool(named)
    return named if is_proxy else request.peer
