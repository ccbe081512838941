"""Settings in the database, as in PostgREST: ``alter role authenticator set pgrst.db_schemas = 'api'``.

docs/guides/from-postgrest.md, Settings in the database, describes the precedence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dataapi.service.configuration.keys import PROJECT
from dataapi.service.configuration.load import key_mistakes
from dataapi.service.configuration.mistakes import ConfigurationError, Mistake
from dataapi.service.configuration.parsers import InvalidValue
from dataapi.settings import Project

PREFIX = "pgrst."

NAMES = {PREFIX + name.replace("-", "_"): name for name, key in PROJECT.items() if key.in_database}


@dataclass(frozen=True, slots=True)
class DatabaseSetting:
    """A setting in the database, and its origin, such as ``role authenticator``."""

    origin: str
    name: str
    value: str = field(repr=False)


def applied(project: Project, settings: Iterable[DatabaseSetting]) -> Project:
    """Return the project with the settings of its database. Later settings override earlier ones.

    :raises ConfigurationError: a setting is invalid.
    """
    effective = {setting.name: setting for setting in settings if setting.name in NAMES}
    mistakes: list[Mistake] = []
    values: dict[str, Any] = {}
    for setting in effective.values():
        try:
            values[NAMES[setting.name].replace("-", "_")] = _parsed(setting)
        except InvalidValue as error:
            displayed = None if PROJECT[NAMES[setting.name]].secret else setting.value
            location = f"database of project {project.ref}: {setting.origin}"
            mistakes.append(Mistake(location, str(error), key=setting.name, value=displayed))
    if mistakes:
        raise ConfigurationError(mistakes)
    completed = replace(project, **values)
    values = {
        one.name: value for one in fields(completed) if (value := getattr(completed, one.name)) is not None
    }
    location = f"project {completed.ref} with the settings of its database"
    mistakes = [
        Mistake(location, expected, key=key, lacks=lacks) for key, expected, lacks in key_mistakes(values)
    ]
    if mistakes:
        raise ConfigurationError(mistakes)
    return completed


def _parsed(setting: DatabaseSetting) -> Any:
    key, value = PROJECT[NAMES[setting.name]], setting.value.strip()
    if value.startswith("@/"):
        raise InvalidValue("expected the value itself: settings in the database cannot refer to files")
    if value or key.empty_means_empty:
        return key.parse(value)
    return key.default


def warnings(settings: Iterable[DatabaseSetting]) -> Iterator[str]:
    for one in settings:
        if one.name not in NAMES:
            yield f"unknown setting in the database: {one.name} of {one.origin}"
        elif deprecated := PROJECT[NAMES[one.name]].deprecated:
            yield f"{one.name} of {one.origin} is {deprecated}"
