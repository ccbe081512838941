"""Deprecated configuration keys still work, and are reported."""

from __future__ import annotations

import runpy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import pytest
from dataapi.service.configuration import keys, load
from dataapi.service.configuration.database import DatabaseSetting, warnings
from dataapi.service.inspection import Severity, inspect_service
from dataapi.settings import Deprecated, InDatabase, Settings
from support import documents

SINCE = Deprecated("0.2.0", "new-key")
WARNING = "deprecated since 0.2.0; use new-key"
CONFIGURATION = """
[project]
db-uri = postgresql://authenticator@127.0.0.1/app
require-api-key = no
db-anon-role = old
db-plan-enabled = yes
"""
REPORTED = f"dataapi.ini: [project] db-anon-role: {WARNING}"


@dataclass(frozen=True)
class MadeUp:
    """A configuration section with deprecated keys."""

    #: First key.
    first: InDatabase[Annotated[str, Deprecated("0.2.0")]] = ""
    second: Annotated[Annotated[int, "count"] | None, SINCE] = None
    third: bool = False


@pytest.fixture
def _deprecated(monkeypatch: pytest.MonkeyPatch) -> None:
    key = replace(keys.PROJECT["db-anon-role"], deprecated=SINCE)
    monkeypatch.setitem(keys.PROJECT, "db-anon-role", key)


def loaded() -> Settings:
    return load(Path("dataapi.ini"), {}, read_file=lambda _: CONFIGURATION.encode())


def test_field_declares_the_version_and_the_replacement() -> None:
    made = keys._keys(MadeUp)
    assert [key.deprecated for key in made.values()] == [Deprecated("0.2.0"), SINCE, None]
    assert str(Deprecated("0.2.0")) == "deprecated since 0.2.0; remove it"
    assert made["first"].in_database
    assert made["second"].parse("3") == 3


@pytest.mark.usefixtures("_deprecated")
def test_deprecated_key_works_and_check_config_warns() -> None:
    settings = loaded()
    assert settings.projects[0].db_anon_role == "old"
    found = [one.text for one in inspect_service(settings) if one.severity is Severity.WARNING]
    assert found == [REPORTED]


def test_other_keys_are_not_reported() -> None:
    assert loaded().deprecations == ()


@pytest.mark.usefixtures("_deprecated")
def test_deprecated_setting_in_the_database_is_reported() -> None:
    stored = [
        DatabaseSetting("role authenticator", name, "x")
        for name in ("pgrst.db_anon_role", "pgrst.db_plan_enabled")
    ]
    assert list(warnings(stored)) == [f"pgrst.db_anon_role of role authenticator is {WARNING}"]


def test_reference_shows_deprecated_keys() -> None:
    described = runpy.run_path(str(documents.ROOT / "docs" / "generate.py"))["described_keys"]
    [one] = described(MadeUp, keys._keys(MadeUp))
    assert one.comment == f"First key. first is {Deprecated('0.2.0')}. second is {SINCE}."
