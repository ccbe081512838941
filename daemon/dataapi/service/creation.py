"""Creates the root service of ``twistd dataapi`` from its command line."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dataapi.service.configuration import load, load_service
from dataapi.service.database_settings import DatabaseSettings
from dataapi.service.root_service import Notifier, RequestServer, RootService
from dataapi.service.settings_sources import Configured, Reconfigure, SettingsSource
from dataapi.service.sockets import Descriptor
from dataapi.settings import EMBEDDED_URI, Settings
from dataapi.telemetry.logs import StandardHandler, line_observer, to_descriptor

Overrides = Sequence[tuple[str, str, str]]


def settings_source(
    config: str | None, overrides: Overrides, directory: Path | None, *, demo: bool, embedded: bool
) -> SettingsSource:
    """Return the source of settings that the options select.

    :raises ConfigurationError: the configuration is invalid.
    """
    if demo:
        return _demo(overrides, directory)
    read = partial(load, None if config is None else Path(config), os.environ, overrides=overrides)
    return _embedded(read, directory) if embedded else Configured(read(), read)


def _embedded(read: Callable[[], Settings], directory: Path | None) -> SettingsSource:
    from dataapi.database.embedded import EmbeddedServer, default_directory  # noqa: PLC0415 - an extra
    from dataapi.service.embedded_source import Embedded, open_schemas  # noqa: PLC0415

    settings = read()
    schemas = [
        name for project in settings.projects if project.db_uri == EMBEDDED_URI for name in project.db_schemas
    ]
    directory = directory or default_directory(os.environ)
    return Embedded(settings, read, EmbeddedServer(directory, provision=partial(open_schemas, schemas)))


def _demo(overrides: Overrides, directory: Path | None) -> SettingsSource:
    from dataapi.service.demo import Demo  # noqa: PLC0415 - as above

    defaults = Settings(projects=(), log_format="text", log_level="warn")
    settings = load_service(os.environ, overrides=overrides, defaults=defaults)
    return Demo(settings, directory, to_descriptor(1))


def make_service(
    reactor: Any,
    source: SettingsSource,
    writer: Callable[[str], object],
    *,
    journal: bool,
    observes: bool,
) -> RootService:
    """Create the root service without starting it.

    :param journal: whether the log is systemd's journal.
    :param observes: whether events of Twisted's logger are also written to the log.
    """
    observer = line_observer(source.settings, writer, journal=journal)
    logging.getLogger().addHandler(StandardHandler(observer))

    def build(settings: Settings, sockets: Sequence[Descriptor], reconfigure: Reconfigure) -> RequestServer:
        observer.configure(settings)
        if settings.workers == 1:
            from dataapi.service.assembly import assemble  # noqa: PLC0415 - the parent of workers has no pool

            return assemble(reactor, settings, sockets, observer, reconfigure)
        from dataapi.service.workers import Workers  # noqa: PLC0415 - as above

        return Workers(reactor, settings, sockets, observer.write, os.environ, reconfigure, journal=journal)

    notifier = Notifier.from_environment(os.environ)
    return RootService(
        reactor, DatabaseSettings(reactor, source), build, notifier, observer if observes else None
    )
