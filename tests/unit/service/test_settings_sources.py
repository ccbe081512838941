"""Where settings come from, with servers on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from dataapi.database.embedded import EmbeddedServer, EmbeddedServerError
from dataapi.service import demo
from dataapi.service.demo import Demo
from dataapi.service.settings_sources import EMBEDDED_URI, Configured, Embedded
from dataapi.service.sockets import StartFailed
from dataapi.settings import Project, Settings
from support.deferreds import outcome


class Server:
    """An embedded server on paper."""

    def __init__(self, error: str | None = None) -> None:
        self.error = error
        self.stops = 0

    async def start(self) -> str:
        """Start, or not."""
        if self.error:
            raise EmbeddedServerError(self.error)
        return "postgresql:///paper"

    async def stop(self) -> None:
        """Note it."""
        self.stops += 1


def project(ref: str, uri: str) -> Project:
    """Return a project."""
    return Project(ref * 20, "acme", uri)


def test_a_configuration_is_taken_as_it_is() -> None:
    settings = Settings(projects=())
    assert outcome(Configured(settings, lambda: settings).prepare()) is settings


def test_the_embedded_server_takes_the_place_of_the_address() -> None:
    server = Server()
    settings = Settings(projects=(project("a", EMBEDDED_URI), project("b", "postgresql://else")))
    source = Embedded(settings, lambda: settings, cast(EmbeddedServer, server))
    prepared = outcome(source.prepare())
    assert [one.db_uri for one in prepared.projects] == ["postgresql:///paper", "postgresql://else"]
    outcome(source.cleanup())
    assert server.stops == 1


def test_a_server_that_does_not_start_fails_the_start() -> None:
    settings = Settings(projects=())
    source = Embedded(settings, lambda: settings, cast(EmbeddedServer, Server("no initdb")))
    error = outcome(source.prepare())
    assert isinstance(error, StartFailed)
    assert str(error) == "the embedded PostgreSQL cannot start: no initdb"


def test_the_demo_prints_how_to_try_it_once_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()

    async def prepare(_directory: object, service: Settings) -> demo.PreparedDemo:
        settings = replace(service, projects=(project("a", "x"),))
        return demo.PreparedDemo(settings, "try it", cast(Any, server))

    monkeypatch.setattr(demo, "prepare_demo", prepare)
    printed: list[str] = []
    source = Demo(Settings(projects=(), listen=("tcp:9",), workers=2), None, printed.append)
    source.announce()
    outcome(source.cleanup())
    prepared = outcome(source.prepare())
    assert (prepared.listen, prepared.workers, len(prepared.projects)) == (("tcp:9",), 2, 1)
    assert printed == []
    source.announce()
    assert printed == ["try it\n"]
    outcome(source.cleanup())
    assert server.stops == 1
