"""A caller's transactions of several messages: rows that are streamed, and batches of requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from dataapi.access.caller import Caller
from dataapi.access.transaction import Runner, Settings, Transactions
from dataapi.catalog.model import Catalog
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
        return self._long.stream(
            self.message(catalog, request, caller, (statement,), read_only=True, settings=settings)
        )
