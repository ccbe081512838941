"""Interface of settings sources, and the source that loads a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from twisted.internet.threads import deferToThread

from dataapi.settings import Settings

Reconfigure: TypeAlias = Callable[[str | None], None]
"""Requests a reload of the settings in the database of the project with this reference, or of the
configuration if the reference is None.
"""


class SettingsSource(Protocol):
    """Provides the settings, and starts the services that they require."""

    @property
    def settings(self) -> Settings: ...

    async def prepare(self) -> Settings:
        """Start required services, and return the complete settings. Raises ``StartFailed``."""

    async def reread(self) -> Settings | None:
        """Read the settings again, or return None if they cannot change. Raises ``ConfigurationError``."""

    async def reread_database(self, ref: str) -> Settings | None:
        """Read the settings in one project's database again. Return None if databases contain no settings."""

    @property
    def failures(self) -> Mapping[str, str]:
        """Errors from the last read of the settings in databases, by project reference."""

    def announce(self) -> None: ...

    async def cleanup(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Configured:
    """Settings from the configuration alone. ``load`` reads the configuration again, and blocks."""

    settings: Settings
    load: Callable[[], Settings]

    async def prepare(self) -> Settings:
        return self.settings

    async def reread(self) -> Settings | None:
        return await deferToThread(self.load)

    async def reread_database(self, _ref: str) -> Settings | None:
        return None

    @property
    def failures(self) -> Mapping[str, str]:
        return {}

    def announce(self) -> None: ...

    async def cleanup(self) -> None: ...
