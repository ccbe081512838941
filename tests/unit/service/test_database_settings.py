"""Settings in the database, with a database on paper: what wins, what is refused, and what an outage does."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from dataapi.database.script import ScriptError
from dataapi.service import database_settings
from dataapi.service.configuration import ConfigurationError
from dataapi.service.configuration.database import DatabaseSetting, applied, unknown_names
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


def stored(value: str, name: str = "pgrst.db_max_rows", place: str = "role authenticator") -> DatabaseSetting:
    """Return a setting."""
    return DatabaseSetting(place, name, value)


def test_every_key_is_postgrests_and_ours() -> None:
    in_database = {name for name, key in PROJECT_KEYS.items() if key.in_database}
    assert {"db-schemas", "jwt-secret", "openapi-mode"} <= in_database
    assert not {"db-uri", "db-pool", "db-config", "db-channel"} & in_database


def test_the_last_setting_wins_over_the_others_and_the_configuration() -> None:
    made = applied(PROJECT, [stored("7"), stored("api, v2", "pgrst.db_schemas"), stored("8")])
    assert (made.db_max_rows, made.db_schemas) == (8, ("api", "v2"))
    assert applied(PROJECT, [stored("")]).db_max_rows is None
    assert applied(PROJECT, []) == PROJECT


def test_unknown_names_are_named_and_have_no_effect() -> None:
    settings = [stored("postgresql:///other", "pgrst.db_uri"), stored("9", "pgrst.db_max_row"), stored("6")]
    assert applied(PROJECT, settings).db_uri == PROJECT.db_uri
    assert list(unknown_names(settings)) == [
        "pgrst.db_uri of role authenticator",
        "pgrst.db_max_row of role authenticator",
    ]


def test_mistakes_name_their_place_and_no_secret() -> None:
    with pytest.raises(ConfigurationError) as caught:
        applied(PROJECT, [stored("many"), stored("@/etc/secret", "pgrst.jwt_secret")])
    first, second = map(str, caught.value.mistakes)
    assert first.startswith(
        f"database of project {PROJECT.ref}: role authenticator: pgrst.db_max_rows = 'many'"
    )
    assert "cannot refer to files" in second
    assert "/etc/secret" not in second


def test_the_only_key_may_stand_in_the_database() -> None:
    project = Project("a" * 20, "acme", "postgresql:///paper", db_config=True)
    with pytest.raises(ConfigurationError, match="all requests would be rejected"):
        applied(project, [])
    assert applied(project, [stored("s" * 32, "pgrst.jwt_secret")]).jwt_secret == "s" * 32


@dataclass
class Paper:
    """A database on paper; None is one that is away."""

    holds: StoredSettings | None

    def read(self, _project: Project) -> StoredSettings:
        if self.holds is None:
            raise ScriptError("connection refused")
        return self.holds


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read without a thread."""

    def at_once(function: object) -> Deferred[object]:
        return execute(function)  # type: ignore[arg-type]

    monkeypatch.setattr(database_settings, "deferToThread", at_once)
    configured = Settings(projects=(PROJECT,))

    async def reread(_self: Configured) -> Settings:
        return configured

    monkeypatch.setattr(Configured, "reread", reread)


def source(paper: Paper) -> DatabaseSettings:
    """Return a source over the database."""
    settings = Settings(projects=(PROJECT,))
    return DatabaseSettings(Clock(), Configured(settings, lambda: settings), paper.read)


def test_an_outage_keeps_the_settings_that_were_read() -> None:
    paper = Paper((stored("7"),))
    made = source(paper)
    assert outcome(made.prepare()).projects[0].db_max_rows == 7
    paper.holds = None
    [project] = outcome(made.reread()).projects
    assert (project.db_max_rows, project.settings_error) == (7, None)


def test_a_project_waits_for_its_settings() -> None:
    paper = Paper(None)
    made = source(paper)
    [project] = outcome(made.prepare()).projects
    assert project.settings_error == "the settings in the database cannot be read: connection refused"
    paper.holds = (stored("api.check", "pgrst.db_pre_request"),)
    [project] = outcome(made.reread()).projects
    assert (project.db_pre_request, project.settings_error) == ("api.check", None)


def test_a_database_that_says_nothing_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[Deferred[StoredSettings]] = []

    def thread(_function: object) -> Deferred[StoredSettings]:
        threads.append(Deferred())
        return threads[-1]

    monkeypatch.setattr(database_settings, "deferToThread", thread)
    clock, settings = Clock(), Settings(projects=(PROJECT,))
    made = DatabaseSettings(clock, Configured(settings, lambda: settings))
    starting = Deferred.fromCoroutine(made.prepare())
    clock.advance(READ_WITHIN)
    [project] = outcome(starting).projects
    assert "no response within" in project.settings_error
    for _ in range(3):
        asking = Deferred.fromCoroutine(made.reread_database(PROJECT.ref))
        clock.advance(READ_WITHIN)
        assert "no response within" in outcome(asking).projects[0].settings_error
    asking = Deferred.fromCoroutine(made.reread_database(PROJECT.ref))
    threads[0].callback((stored("7"),))
    assert outcome(asking).projects[0].db_max_rows == 7
    assert len(threads) == 1


def test_a_mistake_concerns_its_project_alone() -> None:
    """It answers nothing, says why, and does so until the database says something better."""
    other = Project("b" * 20, "acme", "postgresql:///other", db_config=True, require_api_key=False)
    settings = Settings(projects=(PROJECT, other))
    papers = {PROJECT.ref: Paper((stored("many"),)), other.ref: Paper((stored("3"),))}
    made = DatabaseSettings(
        Clock(), Configured(settings, lambda: settings), lambda one: papers[one.ref].read(one)
    )
    wrong, right = outcome(made.prepare()).projects
    assert "are invalid" in wrong.settings_error
    assert "pgrst.db_max_rows" in wrong.settings_error
    assert (right.db_max_rows, right.settings_error) == (3, None)
    assert made.failures == {PROJECT.ref: wrong.settings_error}
    # Nobody asks the other one, which has changed meanwhile.
    papers[other.ref].holds = None
    papers[PROJECT.ref].holds = (stored("4"),)
    corrected, same = outcome(made.reread_database(PROJECT.ref)).projects
    assert (corrected.db_max_rows, corrected.settings_error) == (4, None)
    assert same == right
    assert made.failures == {}


def test_a_mistake_keeps_the_settings_that_were_read() -> None:
    paper = Paper((stored("7"),))
    made = source(paper)
    outcome(made.prepare())
    paper.holds = (stored("many"),)
    [project] = outcome(made.reread()).projects
    assert (project.db_max_rows, project.settings_error) == (7, None)
    assert "pgrst.db_max_rows" in made.failures[PROJECT.ref]
