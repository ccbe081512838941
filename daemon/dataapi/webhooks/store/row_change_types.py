"""Types of row changes that commands add while daemons run (docs/reference/webhooks.md, Row changes)."""

from __future__ import annotations

from dataapi.webhooks.store.statements import SqlRunner, statements

_SQL = statements("row_change_types.sql")


class RowChangeTypes:
    """The types in a database, besides those of catalogues and the configuration."""

    def __init__(self, database: SqlRunner) -> None:
        self._database = database

    async def list(self) -> tuple[str, ...]:
        """Return all of them, by name."""
        return tuple(name for (name,) in await self._database.fetch(_SQL["list"]))

    async def add(self, name: str) -> bool:
        """Add a type, which tables can be watched for at once; False if it is there."""
        return bool(await self._database.fetch(_SQL["add"], (name,)))

    async def remove(self, name: str) -> bool:
        """Remove a type that no watch uses; False if it is unknown."""
        return bool(await self._database.fetch(_SQL["remove"], (name,)))
