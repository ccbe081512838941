"""Settings in the database, ``alter role authenticator set pgrst.db_schemas = 'api'``, as PostgREST has them.

docs/guides/from-postgrest.md, Settings in the database, says what goes before what.
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
"""Each key by the name of its setting."""


@dataclass(frozen=True, slots=True)
class DatabaseSetting:
    """A setting as it stands in the database.

    :ivar place: whose it is, such as ``role authenticator``.
    """

    place: str
    name: str
    value: str = field(repr=False)


def applied(project: Project, settings: Iterable[DatabaseSetting]) -> Project:
    """Return the project with settings of its database, of which later ones win over earlier ones.

    :raises ConfigurationError: with every mistake.
    """
    winning = {setting.name: setting for setting in settings if setting.name in NAMES}
    mistakes: list[Mistake] = []
    values: dict[str, Any] = {}
    for setting in winning.values():
        try:
            values[NAMES[setting.name].replace("-", "_")] = _parsed(setting)
        except InvalidValue as error:
            shown = None if PROJECT[NAMES[setting.name]].secret else setting.value
            place = f"database of project {project.ref}: {setting.place}"
            mistakes.append(Mistake(place, str(error), key=setting.name, value=shown))
    if mistakes:
        raise ConfigurationError(mistakes)
    made = replace(project, **values)
    present = {one.name: value for one in fields(made) if (value := getattr(made, one.name)) is not None}
    place = f"project {made.ref} with the settings of its database"
    mistakes = [
        Mistake(place, expected, key=key, lacks=lacks) for key, expected, lacks in key_mistakes(present)
    ]
    if mistakes:
        raise ConfigurationError(mistakes)
    return made


def _parsed(setting: DatabaseSetting) -> Any:
    key, value = PROJECT[NAMES[setting.name]], setting.value.strip()
    if value.startswith("@/"):
        raise InvalidValue("expected the value itself, as settings in the database name no files")
    if value or key.empty_means_empty:
        return key.parse(value)
    return key.default


def unknown_names(settings: Iterable[DatabaseSetting]) -> Iterator[str]:
    """Yield the names of settings that mean nothing here, each with its place."""
    return (f"{one.name} of {one.place}" for one in settings if one.name not in NAMES)
