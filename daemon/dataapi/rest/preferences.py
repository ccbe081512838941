"""The ``Prefer`` header: what a client would like of the answer and of the change; pure.

Names, values and rules are PostgREST's (reference/rest.md 1.2), on the ground of RFC 7240.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from dataapi.errors import ApiError


class Count(Enum):
    """How all matching rows are counted."""

    EXACT = "exact"
    PLANNED = "planned"
    ESTIMATED = "estimated"


class Return(Enum):
    """What the answer of a change shows."""

    MINIMAL = "minimal"
    HEADERS_ONLY = "headers-only"
    REPRESENTATION = "representation"


class Resolution(Enum):
    """What an insert does with rows that are there already."""

    MERGE = "merge-duplicates"
    IGNORE = "ignore-duplicates"


class Missing(Enum):
    """What stands for members that an inserted object lacks."""

    DEFAULT = "default"
    NULL = "null"


class End(Enum):
    """How the transaction ends, where ``db-tx-end`` lets the client say."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a client prefers, None where it says nothing."""

    count: Count | None = None
    returned: Return | None = None
    resolution: Resolution | None = None
    missing: Missing | None = None
    end: End | None = None
    strict: bool | None = None
    max_affected: int | None = None
    timezone: str | None = None


@lru_cache(maxsize=256)
def read(header: str | None) -> Preferences:
    """Return the preferences; the first of a kind counts, unknown ones are ignored unless handling is strict.

    :raises ApiError: PGRST122 (400) for unknown ones under ``handling=strict``.
    """
    found: dict[str, str] = {}
    unknown = []
    for part in header.split(",") if header else ():
        preference = part.strip()
        name, _, value = preference.partition("=")
        if _known(name, value):
            found.setdefault(name, value)
        elif preference:
            unknown.append(preference)
    if unknown and found.get("handling") == "strict":
        raise ApiError(
            400,
            "PGRST122",
            "Invalid preferences given with handling=strict",
            details=f"Invalid preferences: {', '.join(unknown)}",
        )
    return Preferences(
        Count(found["count"]) if "count" in found else None,
        Return(found["return"]) if "return" in found else None,
        Resolution(found["resolution"]) if "resolution" in found else None,
        Missing(found["missing"]) if "missing" in found else None,
        End(found["tx"]) if "tx" in found else None,
        found["handling"] == "strict" if "handling" in found else None,
        int(found["max-affected"]) if "max-affected" in found else None,
        found.get("timezone"),
    )


_VALUES = {
    "count": frozenset(count.value for count in Count),
    "return": frozenset(returned.value for returned in Return),
    "resolution": frozenset(resolution.value for resolution in Resolution),
    "missing": frozenset(missing.value for missing in Missing),
    "tx": frozenset(end.value for end in End),
    "handling": frozenset({"strict", "lenient"}),
}


def _known(name: str, value: str) -> bool:
    if name == "max-affected":
        return value.isascii() and value.isdigit() and len(value) <= 18
    return name == "timezone" or value in _VALUES.get(name, ())
