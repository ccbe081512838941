"""Mistakes in the configuration, with their locations and the expected values, reported together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

GENERATED = ("jwt-secret", "publishable-keys", "secret-keys", "encryption-key")
"""Keys whose values ``dataapi keys`` generates."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """An error in the configuration.

    :ivar origin: the file, ``environment NAME`` or ``command line``.
    :ivar section: name of the section without brackets, empty for the file as a whole.
    :ivar key: the key, empty for the section as a whole.
    :ivar value: the invalid value, or None if it is missing or secret.
    :ivar lacks: missing keys that ``dataapi keys`` can generate.
    """

    origin: str
    expected: str
    section: str = ""
    key: str = ""
    value: str | None = field(default=None, repr=False)
    lacks: tuple[str, ...] = ()

    def __str__(self) -> str:
        key = " ".join(part for part in (f"[{self.section}]" if self.section else "", self.key) if part)
        value = "" if self.value is None else f" = {self.value!r}"
        return f"{self.origin}: {key}{value}: {self.expected}" if key else f"{self.origin}: {self.expected}"


class ConfigurationError(Exception):
    """Raised when the configuration is invalid.

    :ivar mistakes: all errors in the configuration.
    """

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


def suggestion(name: str, known: Iterable[str], *, shown_as: str = "{}") -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {shown_as.format(close[0])}?" if close else ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and its origin."""

    origin: str
    section: str
    key: str
    value: str = field(repr=False)

    def mistake(self, expected: str, *, secret: bool) -> Mistake:
        return Mistake(self.origin, expected, self.section, self.key, None if secret else self.value)
