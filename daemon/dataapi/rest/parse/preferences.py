"""Parses the ``Prefer`` header (docs/reference/rest.md, Preferences)."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from dataapi.http.errors import ApiError


class Count(Enum):
    """How to count all matching rows."""

    EXACT = "exact"
    PLANNED = "planned"
    ESTIMATED = "estimated"


class Return(Enum):
    """The content of the response to a write: ``return`` in ``Prefer``."""

    MINIMAL = "minimal"
    HEADERS_ONLY = "headers-only"
    REPRESENTATION = "representation"


class Resolution(Enum):
    """How a write handles existing rows."""

    MERGE = "merge-duplicates"
    """Inserts update existing rows."""
    IGNORE = "ignore-duplicates"
    """Inserts leave existing rows unchanged."""
    MATCH = "match"
    """Each object in the body updates the row that its key identifies."""


class Missing(Enum):
    """The value for a member that is missing from an object."""

    DEFAULT = "default"
    NULL = "null"


class Consistency(Enum):
    """The servers that may run a read, if there are replicas."""

    PRIMARY = "primary"


class End(Enum):
    """How to end the transaction, if ``db-tx-end`` lets the client choose."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


class Preferences(NamedTuple):
    """A client's preferences. Absent preferences are None.

    :ivar timezone: name of a time zone or an offset from UTC, as sent.
    :ivar unknown: unknown preferences to reject with ``handling=strict``. Otherwise empty.
    """

    count: Count | None = None  # type: ignore[assignment]  # hides the unused tuple.count
    returned: Return | None = None
    resolution: Resolution | None = None
    missing: Missing | None = None
    end: End | None = None
    strict: bool | None = None
    max_affected: int | None = None
    timezone: str | None = None
    consistency: Consistency | None = None
    unknown: tuple[str, ...] = ()

    @property
    def maximum(self) -> int | None:
        """Maximum number of affected rows. ``max-affected`` requires ``handling=strict``."""
        return self.max_affected if self.strict else None

    @property
    def counts(self) -> bool:
        return self.count in (Count.EXACT, Count.ESTIMATED)

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        return () if self.timezone is None else (("timezone", _zone(self.timezone)),)


class Action(Enum):
    """The action of a request. Each enum value is the set of preferences that apply to the action."""

    READ = frozenset({"count", "tx", "handling", "timezone", "consistency"})
    STREAM = READ - {"count"}
    """A streamed read. The number of rows is not known when the headers are sent."""
    CALL = READ | {"max-affected"}
    PUT = READ | {"return"}
    DELETE = PUT | {"max-affected"}
    UPDATE = DELETE | {"missing"}
    MATCHED_UPDATE = UPDATE | {"resolution"}
    """An update with one object per row."""
    INSERT = PUT | {"missing"}
    RESOLVED_INSERT = INSERT | {"resolution"}
    """An insert with ``on_conflict`` columns or a primary key."""


NO_PREFERENCES = Preferences()


def applied(preferences: Preferences, action: Action) -> str:
    values = {
        "resolution": preferences.resolution,
        "missing": preferences.missing,
        "return": preferences.returned,
        "count": preferences.count,
        "tx": preferences.end,
        "handling": None if preferences.strict is None else _HANDLING[preferences.strict],
        "timezone": preferences.timezone,
        "max-affected": preferences.maximum,
        "consistency": preferences.consistency,
    }
    applicable = [
        (kind, value) for kind, value in values.items() if value is not None and kind in action.value
    ]
    return ", ".join([f"{kind}={getattr(value, 'value', value)}" for kind, value in applicable])


def read_preferences(
    header: str | None, timezones: frozenset[str] = frozenset(), *, overrides_end: bool = False
) -> Preferences:
    """Parse the header. If a preference is repeated, the first value is used.

    ``overrides_end`` is true if the client may choose how the transaction ends.
    """
    return _read(header, timezones, overrides_end) if header else NO_PREFERENCES


@lru_cache(maxsize=256)
def _read(header: str, timezones: frozenset[str], overrides_end: bool) -> Preferences:
    values: dict[str, Any] = {}
    unknown = []
    for part in header.split(","):
        preference = part.strip()
        name, _, text = preference.partition("=")
        value = _value(name, text, timezones)
        if value is not None:
            values.setdefault(_FIELDS.get(name, name), value)
        elif preference and name != "max-affected":
            unknown.append(preference)
    if not overrides_end:
        values.pop("end", None)
    return Preferences(**values, unknown=tuple(unknown) if values.get("strict") else ())


def not_followed(*preferences: str) -> ApiError:
    return ApiError(
        400,
        "PGRST122",
        "Invalid preferences given with handling=strict",
        details=f"Invalid preferences: {', '.join(preferences)}",
    )


_HANDLING = {True: "strict", False: "lenient"}
_FIELDS = {"return": "returned", "tx": "end", "handling": "strict", "max-affected": "max_affected"}
"""Fields of ``Preferences``, by preference name, if the names differ."""
_CHOICES = {"count": Count, "return": Return, "resolution": Resolution, "missing": Missing, "tx": End,
            "consistency": Consistency}  # fmt: skip
_VALUES: dict[str, dict[str, Any]] = {
    "handling": {name: strict for strict, name in _HANDLING.items()},
    **{name: {each.value: each for each in choices} for name, choices in _CHOICES.items()},
}
_OFFSET = re.compile(r"([+-]?)(0?[0-9]|1[0-5])(?::([0-5][0-9]))?", re.ASCII)


def _value(name: str, text: str, timezones: frozenset[str]) -> Any:
    if name == "max-affected":
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
    if name == "timezone":
        return text if text in timezones or _OFFSET.fullmatch(text) else None
    return _VALUES.get(name, {}).get(text)


def _zone(timezone: str) -> str:
    """Return the value of the setting ``timezone``. POSIX offsets are positive west of UTC."""
    match = _OFFSET.fullmatch(timezone)
    if match is None:
        return timezone
    sign, hours, minutes = match[1] or "+", int(match[2]), match[3] or "00"
    return f"<{sign}{hours:02}:{minutes}>{'-' if sign == '+' else '+'}{hours:02}:{minutes}"
