"""Publishing an event in a transaction of its own; other programs call ``webhooks.publish`` inside theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from uuid import UUID

from dataapi.errors import DatabaseError
from dataapi.webhooks.migrate import Fetches
from dataapi.webhooks.model import NewEvent
from dataapi.webhooks.store.statements import statements

_SQL = statements("publishing.sql")


class Problem(StrEnum):
    """Why an event is not published; the values are the SQLSTATEs of ``webhooks.publish``."""

    MALFORMED = "22023"
    NO_ORGANIZATION = "WH001"
    NO_PROJECT = "WH002"
    OTHER_ORGANIZATION = "WH003"
    NOT_ALLOWED = "WH004"
    RESERVED_NAME = "WH005"


class CannotPublish(Exception):
    """An event was not published; the text says why.

    :ivar problem: what is wrong with it.
    """

    def __init__(self, problem: Problem, text: str) -> None:
        super().__init__(text)
        self.problem = problem


class Publisher:
    """Raises events in a database."""

    def __init__(self, database: Fetches) -> None:
        self._database = database

    async def publish(self, event: NewEvent) -> UUID:
        """Raise an event for every endpoint that it matches, and return what it is known by.

        The same idempotency key within 24 hours raises nothing and returns the first identifier.

        :raises CannotPublish: the event, its organization or its project is refused.
        """
        values = (
            event.type,
            event.scope.organization,
            event.scope.project,
            json.dumps(dict(event.payload)),
            event.idempotency_key,
            event.timestamp,
        )
        try:
            [(identifier,)] = await self._database.fetch(_SQL["publish"], values)
        except DatabaseError as error:
            if error.code in set(Problem):
                raise CannotPublish(Problem(error.code), error.message) from error
            raise
        return UUID(identifier)

    async def sync_event_types(self, versions: Mapping[str, Iterable[str]]) -> None:
        """Say which older types go out beside a published type, and forget what was said before.

        :param versions: the older types by the newer type that their payloads are rendered from.
        """
        pairs = sorted({(newer, older) for newer, all_older in versions.items() for older in all_older})
        values = ([newer for newer, _ in pairs], [older for _, older in pairs])
        await self._database.fetch(_SQL["replace_versions"], values)
