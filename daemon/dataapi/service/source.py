"""Where the settings come from: a configuration, one with a database of our own, or the demo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from dataapi import demo
from dataapi.database.embedded import EmbeddedServer, EmbeddedServerError
from dataapi.service.listening import StartFailed
from dataapi.settings import Settings

EMBEDDED_URI = "postgresql:///embedded"
"""Stands for ``db-uri`` until the embedded server runs and says where it is."""


class Source(Protocol):
    """Gives the settings once whatever they name is there.

    :ivar settings: what is known before the start: where to listen and how to log.
    """

    @property
    def settings(self) -> Settings:
        """What is known before the start."""

    async def prepare(self) -> Settings:
        """Start what the settings need and return them complete; raises ``StartFailed``."""

    def announce(self) -> None:
        """Tell the operator what there is to know once requests are answered."""

    async def cleanup(self) -> None:
        """Stop what ``prepare`` started."""


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration that names databases which are there without us."""

    settings: Settings

    async def prepare(self) -> Settings:
        """Return the settings as they are."""
        return self.settings

    def announce(self) -> None:
        """Say nothing: the log does."""

    async def cleanup(self) -> None:
        """Stop nothing."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """A configuration whose project lives in a PostgreSQL of our own."""

    settings: Settings
    server: EmbeddedServer

    async def prepare(self) -> Settings:
        """Start the server and point the project at it."""
        try:
            uri = await self.server.start()
        except EmbeddedServerError as error:
            raise StartFailed(f"the embedded PostgreSQL cannot start: {error}") from error
        return replace(
            self.settings,
            projects=tuple(
                replace(project, db_uri=uri) if project.db_uri == EMBEDDED_URI else project
                for project in self.settings.projects
            ),
        )

    def announce(self) -> None:
        """Say nothing: the log does."""

    async def cleanup(self) -> None:
        """Stop the server."""
        await self.server.stop()


class Demo:
    """A sample database with fresh keys, in a PostgreSQL of our own.

    :param write: takes the text that tells how to try it.
    """

    def __init__(self, settings: Settings, directory: Path | None, write: Callable[[str], object]) -> None:
        self.settings = settings
        self._directory = directory
        self._write = write
        self._demo: demo.Demo | None = None

    async def prepare(self) -> Settings:
        """Start the server, make the sample and return the settings with its project."""
        try:
            self._demo = await demo.prepare(self._directory, self.settings)
        except EmbeddedServerError as error:
            raise StartFailed(f"the embedded PostgreSQL cannot start: {error}") from error
        return self._demo.settings

    def announce(self) -> None:
        """Print addresses, keys and a first query."""
        if self._demo is not None:
            self._write(self._demo.banner + "\n")

    async def cleanup(self) -> None:
        """Stop the server."""
        if self._demo is not None:
            await self._demo.server.stop()
