"""Sources of settings, with a fake embedded server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from dataapi.database.embedded import EmbeddedServer, EmbeddedServerError
from dataapi.service import demo
from dataapi.service.demo import Demo
from dataapi.service.embedded_source import Embedded
from dataapi.service.settings_sources import Configured
from dataapi.service.sockets import StartFailed
from dataapi.settings import EMBEDDED_URI, Project, Settings
from support.deferreds import outcome


class FakeServer:
    """A fake embedded server."""

    def __init__(self, error: str | None = None) -> None:
        self.error = error
        self.stops = 0

    async def start(self) -> str:
        if self.error:
            raise EmbeddedServerError(self.error)
        return "postgresql:///paper"

    async def stop(self) -> None:
        self.stops += 1


def project(ref: str, uri: str) -> Project:
    return Project(ref * 20, "acme", uri)


def test_configured_settings_are_unchanged() -> None:
    settings = Settings(projects=())
    assert outcome(Configured(settings, lambda: settings).prepare()) is settings


def test_embedded_uri_is_replaced_by_the_servers_address() -> None:
    server = FakeServer()
    settings = Settings(projects=(project("a", EMBEDDED_URI), project("b", "postgresql://else")))
    source = Embedded(settings, lambda: settings, cast(EmbeddedServer, server))
    prepared = outcome(source.prepare())
    assert [each.db_uri for each in prepared.projects] == ["postgresql:///paper", "postgresql://else"]
    outcome(source.cleanup())
    assert server.stops == 1


def test_failed_embedded_server_fails_the_start() -> None:
    settings = Settings(projects=())
    source = Embedded(settings, lambda: settings, cast(EmbeddedServer, FakeServer("no initdb")))
    error = outcome(source.prepare())
    assert isinstance(error, StartFailed)
    assert str(error) == "the embedded PostgreSQL cannot start: no initdb"


def test_demo_prints_instructions_once_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer()

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
