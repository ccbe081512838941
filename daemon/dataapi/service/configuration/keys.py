"""The keys of each section, derived from the fields of the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from dataapi.auth.keys import can_sign
from dataapi.database.address import connection_parameters
from dataapi.service.configuration import endpoints, parsers
from dataapi.settings import IN_DATABASE, Deprecated, NotifyChannel, Project, Settings, TimeLimit, Webhooks

_NO_KEYS = ("projects", "webhooks", "notify", "section", "file", "settings_error", "tour")


@dataclass(frozen=True, slots=True)
class ConfigurationKey:
    """A key of a section.

    :ivar parse: returns the value or raises ``InvalidValue``.
    :ivar secret: whether messages must not contain the value.
    :ivar empty_means_empty: whether an empty value has a meaning of its own, such as an empty list or no
        role. Otherwise it selects the default.
    :ivar in_database: whether the key may be set in the database.
    """

    parse: Callable[[str], Any]
    default: Any
    secret: bool
    empty_means_empty: bool
    in_database: bool
    deprecated: Deprecated | None = None


APP_SETTINGS = "app.settings."
"""Prefix of settings that SQL can read. The operator chooses the name that follows."""


def _keys(section: type) -> dict[str, ConfigurationKey]:
    hints = get_type_hints(section, include_extras=True)
    return {
        "app.settings.*" if one.name == "app_settings" else one.name.replace("_", "-"): _key(
            hints[one.name], one.default, secret=not one.repr
        )
        for one in fields(section)
        if one.compare and one.name not in _NO_KEYS
    }


def _key(declared: Any, default: Any, *, secret: bool) -> ConfigurationKey:
    parse, markers = _parser(declared)
    empty = (
        type(default) in (tuple, frozenset) or declared == TimeLimit or (parse is str and default is not None)
    )
    deprecated = next((marker for marker in markers if isinstance(marker, Deprecated)), None)
    return ConfigurationKey(parse, default, secret, empty, IN_DATABASE in markers, deprecated)


def _parser(declared: Any) -> tuple[Callable[[str], Any], tuple[Any, ...]]:
    if get_origin(declared) is Annotated:
        inner, *markers = get_args(declared)
        named = [name for name in markers if isinstance(name, str)]
        if named:
            return vars(parsers).get(named[0]) or getattr(endpoints, f"parse_{named[0]}"), tuple(markers)
        return _parser(inner)[0], tuple(markers)
    if get_origin(declared) is Literal:
        return parsers.one_of(*get_args(declared)), ()
    alternatives = [one for one in get_args(declared) if one is not NoneType]
    if alternatives:
        return _parser(alternatives[0])
    return parsers.boolean if declared is bool else str, ()


SERVICE, PROJECT, WEBHOOKS, NOTIFY = map(_keys, (Settings, Project, Webhooks, NotifyChannel))

SECTIONS = {"dataapi": SERVICE, "project": PROJECT, "webhooks": WEBHOOKS, "notify": NOTIFY}

NAMED = ("project", "notify")
"""Sections that can occur several times, as ``[project:REF]`` or ``[notify:NAME]``."""


def is_confidential(name: str, value: Any) -> bool:
    match name:
        case "db-uri" | "db-read-uri":
            return "password" in connection_parameters(value, {})
        case "jwt-secret":
            return can_sign(value)
        case "secret-keys" | "encryption-key":
            return bool(value)
    return False


def sections_of(name: str) -> list[str]:
    return [section for section in SECTIONS if key_of(section, name) is not None]


def keys_of(section: str) -> dict[str, ConfigurationKey] | None:
    kind, separator, _ = section.partition(":")
    return SECTIONS.get(kind) if not separator or kind in NAMED else None


def key_of(section: str, name: str) -> ConfigurationKey | None:
    return (keys_of(section) or {}).get("app.settings.*" if name.startswith(APP_SETTINGS) else name)


def key_of_variable(words: str) -> str:
    """Return the key for the part of an environment variable's name after the section, such as ``DB_URI``."""
    setting = words.removeprefix("APP_SETTINGS_")
    return words.lower().replace("_", "-") if setting == words else APP_SETTINGS + setting.lower()
