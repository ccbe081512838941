"""What is wrong with a configuration, said so that it can be put right."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Rejected(ValueError):
    """A value is not acceptable; the text says what is expected in its place."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake.

    :ivar place: the file, ``environment NAME`` or ``command line``.
    :ivar section: the section's name without brackets; empty for the file as a whole.
    :ivar key: the key; empty for the section as a whole.
    :ivar value: the bad value as it was written, None where there is none or it must not be shown.
    :ivar expected: what is expected instead.
    :ivar lacks: the keys that are not there yet and that ``dataapi keys`` makes; empty for other mistakes.
    """

    place: str
    section: str
    key: str
    value: str | None = field(repr=False)
    expected: str
    lacks: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the mistake as one line of text."""
        where = " ".join(part for part in (f"[{self.section}]" if self.section else "", self.key) if part)
        shown = "" if self.value is None else f" = {self.value!r}"
        return f"{self.place}: {where}{shown}: {self.expected}" if where else f"{self.place}: {self.expected}"


class ConfigurationError(Exception):
    """The configuration cannot be used.

    :ivar mistakes: everything that is wrong with it, in the order in which it was written.
    """

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


def suggestion(name: str, known: Iterable[str], *, shown_as: str = "{}") -> str:
    """Return ``; did you mean …?`` when ``name`` is close to a known one, shown by a format, else nothing."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {shown_as.format(close[0])}?" if close else ""
