"""Event types for row changes, added by commands at run time (docs/reference/webhooks.md, Row changes)."""

from __future__ import annotations

from dataapi.webhooks.store.statements import SqlRunner, load_statements

_SQL = load_statements("row_change_types.sql")


class RowChangeTypes:
    """Stores event types for row changes. Catalogues and the configuration contain further types."""

    def __init__(self, database: SqlRunner) -> None:
        self._database = database

    async def list(self) -> tuple[str, ...]:
        return tuple(name for (name,) in await self._database.fetch(_SQL["list"]))

    async def add(self, name: str) -> bool:
        return bool(await self._database.fetch(_SQL["add"], (name,)))

    async def remove(self, name: str) -> bool:
        """Remove a type that no watch uses. Return False if there is no such type."""
        return bool(await self._database.fetch(_SQL["remove"], (name,)))
