"""Settings in a (fake) database: precedence, errors and outages."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from dataapi.database.script import ScriptError
from dataapi.service import database_settings
from dataapi.service.configuration import ConfigurationError
from dataapi.service.configuration.database import DatabaseSetting, applied, warnings
from dataapi.service.configuration.keys import PROJECT as PROJECT_KEYS
from dataapi.service.database_settings import READ_WITHIN, DatabaseSettings, StoredSettings
from dataapi.service.settings_sources import Configured
from dataapi.settings import Project, Settings
from support.deferreds import outcome
from twisted.internet.defer import Deferred, execute
from twisted.internet.task import Clock

PROJECT = Project(
    "a" * 20, "acme", "postgresql:///paper", db_config=True, db_max_rows=5, require_api_key=False
)


def stored(
    value: str, name: str = "pgrst.db_max_rows", origin: str = "role authenticator"
) -> DatabaseSetting:
    return DatabaseSetting(origin, name, value)


def test_only_settings_of_postgrest_can_be_stored() -> None:
    in_database = {name for name, key in PROJECT_KEYS.items() if key.in_database}
    assert {"db-schemas", "jwt-secret", "openapi-mode"} <= in_database
    assert not {"db-uri", "db-pool", "db-config", "db-channel"} & in_database


def test_last_stored_setting_overrides_others_and_the_configuration() -> None:
    project = applied(PROJECT, [stored("7"), stored("api, v2", "pgrst.db_schemas"), stored("8")])
    assert (project.db_max_rows, project.db_schemas) == (8, ("api", "v2"))
    assert applied(PROJECT, [stored("")]).db_max_rows is None
    assert applied(PROJECT, []) == PROJECT


def test_unknown_settings_are_reported_and_ignored() -> None:
    settings = [stored("postgresql:///other", "pgrst.db_uri"), stored("9", "pgrst.db_max_row"), stored("6")]
    assert applied(PROJECT, settings).db_uri == PROJECT.db_uri
    assert list(warnings(settings)) == [
        "unknown setting in the database: pgrst.db_uri of role authenticator",
        "unknown setting in the database: pgrst.db_max_row of role authenticator",
    ]


def test_errors_contain_the_setting_but_no_secret() -> None:
    with pytest.raises(ConfigurationError) as caught:
        applied(PROJECT, [stored("many"), stored("@/etc/secret", "pgrst.jwt_secret")])
    first, second = map(str, caught.value.mistakes)
    assert first.startswith(
        f"database of project {PROJECT.ref}: role authenticator: pgrst.db_max_rows = 'many'"
    )
    assert "cannot refer to files" in second
    assert "/etc/secret" not in second


def test_jwt_secret_may_be_stored_only_in_the_database() -> None:
    project = Project("a" * 20, "acme", "postgresql:///paper", db_config=True)
    with pytest.raises(ConfigurationError, match="all requests would be rejected"):
        applied(project, [])
    assert applied(project, [stored("s" * 32, "pgrst.jwt_secret")]).jwt_secret == "s" * 32


@dataclass
class FakeDatabase:
    """A fake database. It is unreachable if its settings are None."""

    settings: StoredSettings | None

    def read(self, _project: Project) -> StoredSettings:
        if self.settings is None:
            raise ScriptError("connection refused")
        return self.settings


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read settings without a thread."""

    def run_now(function: object) -> Deferred[object]:
        return execute(function)  # type: ignore[arg-type]

    monkeypatch.setattr(database_settings, "deferToThread", run_now)
    configured = Settings(projects=(PROJECT,))

    async def reread(_self: Configured) -> Settings:
        return configured

    monkeypatch.setattr(Configured, "reread", reread)


def make_source(database: FakeDatabase) -> DatabaseSettings:
    """Return a source that reads settings from the fake database."""
    settings = Settings(projects=(PROJECT,))
    return DatabaseSettings(Clock(), Configured(settings, lambda: settings), database.read)


def test_settings_survive_an_outage() -> None:
    database = FakeDatabase((stored("7"),))
    source = make_source(database)
    assert outcome(source.prepare()).projects[0].db_max_rows == 7
    database.settings = None
    [project] = outcome(source.reread()).projects
    assert (project.db_max_rows, project.settings_error) == (7, None)


def test_project_is_unavailable_until_its_settings_are_read() -> None:
    database = FakeDatabase(None)
    source = make_source(database)
    [project] = outcome(source.prepare()).projects
    assert project.settings_error == "the settings in the database cannot be read: connection refused"
    database.settings = (stored("api.check", "pgrst.db_pre_request"),)
    [project] = outcome(source.reread()).projects
    assert (project.db_pre_request, project.settings_error) == ("api.check", None)


def test_unresponsive_database_blocks_only_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[Deferred[StoredSettings]] = []

    def thread(_function: object) -> Deferred[StoredSettings]:
        threads.append(Deferred())
        return threads[-1]

    monkeypatch.setattr(database_settings, "deferToThread", thread)
    clock, settings = Clock(), Settings(projects=(PROJECT,))
    source = DatabaseSettings(clock, Configured(settings, lambda: settings))
    starting = Deferred.fromCoroutine(source.prepare())
    clock.advance(READ_WITHIN)
    [project] = outcome(starting).projects
    assert "no response within" in project.settings_error
    for _ in range(3):
        reading = Deferred.fromCoroutine(source.reread_database(PROJECT.ref))
        clock.advance(READ_WITHIN)
        assert "no response within" in outcome(reading).projects[0].settings_error
    reading = Deferred.fromCoroutine(source.reread_database(PROJECT.ref))
    threads[0].callback((stored("7"),))
    assert outcome(reading).projects[0].db_max_rows == 7
    assert len(threads) == 1


def test_invalid_setting_affects_only_its_project() -> None:
    other = Project("b" * 20, "acme", "postgresql:///other", db_config=True, require_api_key=False)
    settings = Settings(projects=(PROJECT, other))
    databases = {PROJECT.ref: FakeDatabase((stored("many"),)), other.ref: FakeDatabase((stored("3"),))}
    source = DatabaseSettings(
        Clock(), Configured(settings, lambda: settings), lambda project: databases[project.ref].read(project)
    )
    wrong, right = outcome(source.prepare()).projects
    assert "are invalid" in wrong.settings_error
    assert "pgrst.db_max_rows" in wrong.settings_error
    assert (right.db_max_rows, right.settings_error) == (3, None)
    assert source.failures == {PROJECT.ref: wrong.settings_error}
    # The database of the other project is not read again.
    databases[other.ref].settings = None
    databases[PROJECT.ref].settings = (stored("4"),)
    corrected, unchanged = outcome(source.reread_database(PROJECT.ref)).projects
    assert (corrected.db_max_rows, corrected.settings_error) == (4, None)
    assert unchanged == right
    assert source.failures == {}


def test_settings_survive_an_invalid_change() -> None:
    database = FakeDatabase((stored("7"),))
    source = make_source(database)
    outcome(source.prepare())
    database.settings = (stored("many"),)
    [project] = outcome(source.reread()).projects
    assert (project.db_max_rows, project.settings_error) == (7, None)
    assert "pgrst.db_max_rows" in source.failures[PROJECT.ref]
