"""Mistakes in the configuration: where each one stands, and what is expected instead; all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

MADE = ("jwt-secret", "publishable-keys", "secret-keys", "encryption-key")
"""The keys whose values ``dataapi keys`` makes."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake.

    :ivar place: the file, ``environment NAME`` or ``command line``.
    :ivar expected: what is expected instead.
    :ivar section: the section's name without brackets; empty for the file as a whole.
    :ivar key: the key; empty for the section as a whole.
    :ivar value: the bad value as it was written, None if it is absent or secret.
    :ivar lacks: the missing keys that ``dataapi keys`` makes; empty for other mistakes.
    """

    place: str
    expected: str
    section: str = ""
    key: str = ""
    value: str | None = field(default=None, repr=False)
    lacks: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the mistake as one line of text."""
        where = " ".join(part for part in (f"[{self.section}]" if self.section else "", self.key) if part)
        value = "" if self.value is None else f" = {self.value!r}"
        return f"{self.place}: {where}{value}: {self.expected}" if where else f"{self.place}: {self.expected}"


class ConfigurationError(Exception):
    """The configuration cannot be used, for its ``mistakes`` in the order in which it was written."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


def suggestion(name: str, known: Iterable[str], *, shown_as: str = "{}") -> str:
    """Return ``; did you mean …?`` when ``name`` is close to a known name, else nothing."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {shown_as.format(close[0])}?" if close else ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value as it was written, and where."""

    place: str
    section: str
    key: str
    value: str = field(repr=False)

    def mistake(self, expected: str, *, secret: bool) -> Mistake:
        """Return the mistake of this value."""
        return Mistake(self.place, expected, self.section, self.key, None if secret else self.value)
