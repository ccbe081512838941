"""Where values come from (ini file, environment, command line, secret files), and mistakes in them."""

from __future__ import annotations

import configparser
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from dataapi.service.configuration.keys import PROJECT, SERVICE, WEBHOOKS, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

DEFAULT_FILES = (Path("etc/dataapi.ini"), Path("/etc/dataapi/dataapi.ini"))
PREFIX = "DATAAPI_"

_OWN_VARIABLES = re.compile(r"PROJECT_([A-Z]{20})_(.+)", re.ASCII)


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
    """The configuration cannot be used.

    :ivar mistakes: everything that is wrong with it, in the order in which it was written.
    """

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


class _IniParser(configparser.ConfigParser):
    """The ini dialect: ``;`` begins a comment, keys keep their case, nothing is interpolated."""

    def __init__(self) -> None:
        super().__init__(
            interpolation=None,
            delimiters=("=",),
            comment_prefixes=(";", "#"),
            inline_comment_prefixes=(";",),
            empty_lines_in_values=False,
            default_section="",
        )

    def optionxform(self, optionstr: str) -> str:
        """Keep the key as it was written."""
        return optionstr


def read_text(path: Path, read_file: Callable[[Path], bytes]) -> str:
    """Return a file's text.

    :raises ValueError: with what is wrong, when it cannot be read or is not UTF-8.
    """
    try:
        return read_file(path).decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: byte {error.start}") from error


def from_ini(text: str, place: str) -> tuple[list[str], list[Entry], list[Mistake]]:
    """Return an ini file's sections, entries and mistakes.

    A line that cannot be read is named by its number alone, because it may hold a secret.
    """
    reader = _IniParser()
    mistakes: list[Mistake] = []
    try:
        reader.read_string(text)
    except configparser.DuplicateOptionError as error:
        twice = f"the key stands there twice, again on line {error.lineno}"
        return [], [], [Mistake(place, twice, error.section, error.option)]
    except configparser.DuplicateSectionError as error:
        twice = f"the section stands there twice, again on line {error.lineno}"
        return [], [], [Mistake(place, twice, error.section)]
    except configparser.MissingSectionHeaderError as error:
        return [], [], [Mistake(place, f"line {error.lineno}: expected a section such as [project] first")]
    except configparser.ParsingError as error:
        mistakes += [Mistake(place, f"line {line}: expected key = value") for line, _ in error.errors]
    entries = [
        Entry(place, section, key, value)
        for section in reader.sections()
        for key, value in reader.items(section)
        if value is not None
    ]
    return reader.sections(), entries, mistakes


def from_environment(environ: Mapping[str, str]) -> tuple[list[Entry], list[Mistake]]:
    """Return the entries of the ``DATAAPI_…`` variables and those that name no key."""
    entries: list[Entry] = []
    mistakes: list[Mistake] = []
    for name in sorted(name for name in environ if name.startswith(PREFIX)):
        section, key = _section_and_key(name.removeprefix(PREFIX))
        place = f"environment {name}"
        if key in (keys_of(section) or {}):
            entries.append(Entry(place, section, key, environ[name]))
        else:
            # Compared without the prefix, which all names share.
            known = [variable.removeprefix(PREFIX) for variable in _variables(section)]
            close = suggestion(name.removeprefix(PREFIX), known, shown_as=f"{PREFIX}{{}}")
            mistakes.append(Mistake(place, f"no such key{close}"))
    return entries, mistakes


def _section_and_key(words: str) -> tuple[str, str]:
    """Take ``PROJECT_DB_URI`` apart; a reference of 20 letters after ``PROJECT_`` names one of several."""
    own = _OWN_VARIABLES.fullmatch(words)
    if own is not None:
        return f"project:{own[1].lower()}", _key(own[2])
    section, _, rest = words.partition("_")
    return section.lower(), _key(rest)


def _key(words: str) -> str:
    """Return the key of upper-case words, nothing when they are not all upper case."""
    return words.lower().replace("_", "-") if words == words.upper() else ""


def _variables(section: str) -> list[str]:
    """Return every variable's name, with those of the own section of one of several projects."""
    sections = {"dataapi": SERVICE, "project": PROJECT, "webhooks": WEBHOOKS}
    if section.startswith("project:"):
        sections[section] = PROJECT
    return [variable_name(name, key) for name, keys in sections.items() for key in keys]


def variable_name(section: str, key: str) -> str:
    """Return the environment variable of a key."""
    return PREFIX + f"{section}_{key}".replace(":", "_").replace("-", "_").upper()
