"""The ``Prefer`` header, as far as it concerns reading; pure."""

from __future__ import annotations

from dataclasses import dataclass

from dataapi.errors import ApiError
from dataapi.rest.unsupported import unsupported

_WITHOUT_EFFECT = frozenset(
    {
        "return=minimal",
        "return=representation",
        "return=headers-only",
        "resolution=merge-duplicates",
        "resolution=ignore-duplicates",
        "missing=default",
        "missing=null",
        "tx=commit",
        "tx=rollback",
    }
)
"""What concerns writing alone."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a client prefers.

    :ivar counted: whether all matching rows are to be counted.
    :ivar applied: what ``Preference-Applied`` says.
    """

    counted: bool
    applied: str


def read(header: str | None) -> Preferences:
    """Return the preferences; unknown ones are ignored, as RFC 7240 says, unless handling is strict.

    :raises ApiError: PGRST122 (400) for unknown ones under ``handling=strict``, PGRST127 for known ones
        that are not available.
    """
    applied, unknown = [], []
    for part in header.split(",") if header else ():
        preference = part.strip()
        if preference in ("count=exact", "handling=strict", "handling=lenient"):
            applied.append(preference)
        elif preference in ("count=planned", "count=estimated") or preference.startswith("timezone="):
            raise unsupported(f'The preference "{preference}" is not available yet.')
        elif preference and preference not in _WITHOUT_EFFECT and not preference.startswith("max-affected="):
            unknown.append(preference)
    if unknown and "handling=strict" in applied:
        raise ApiError(
            400,
            "PGRST122",
            "Invalid preferences given with handling=strict",
            details=f"Invalid preferences: {', '.join(unknown)}",
        )
    return Preferences("count=exact" in applied, ", ".join(applied))
