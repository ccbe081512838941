"""Where the configuration stands: a file, the environment and the command line, of which later ones win."""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dataapi.service.configuration import parsers, postgrest
from dataapi.service.configuration.keys import (
    APP_SETTINGS,
    PROJECT,
    SECTIONS,
    is_confidential,
    key_of,
    key_of_variable,
    keys_of,
    sections_of,
)
from dataapi.service.configuration.mistakes import MADE, Entry, Mistake, suggestion
from dataapi.service.configuration.parsers import InvalidValue

DEFAULT_FILES = (Path("dataapi.ini"), Path("/etc/dataapi/dataapi.ini"))
TEMPLATE = Path("etc/dataapi.ini")
"""Where a clone has the template of a configuration, which is none by itself."""
PREFIX = "DATAAPI_"

_OWN_VARIABLES = re.compile(r"PROJECT_([A-Z]{20})_(.+)", re.ASCII)

_SEPARATORS = str.maketrans(":-.", "___")
_NO_COMMENT = re.compile(r"\s#(\s|$)")
_VERBATIM = "; a value that needs it can stand in a file, as @/path"


class ConfigurationSources:
    """What was read so far: the entry that wins for each key, and the mistakes.

    :ivar place: the file that was read.
    :ivar usable: whether more can be said of it than that it cannot be read.
    :ivar sections: by section and key.
    :ivar secret_files: the files of the secrets among the values.
    """

    def __init__(self, read_file: Callable[[Path], bytes]) -> None:
        self._read_file = read_file
        self.place = "configuration"
        self.usable = True
        self.mistakes: list[Mistake] = []
        self.sections: dict[str, dict[str, Entry]] = {}
        self.secret_files: list[Path] = []

    def file(self, path: Path | None) -> Path | None:
        """Read the named file, else the first default one, and return which it was."""
        for candidate in DEFAULT_FILES if path is None else (path,):
            try:
                text = read_text(candidate, self._read_file)
            except ValueError as error:
                if path is None and isinstance(error.__cause__, FileNotFoundError):
                    continue
                self.mistakes.append(Mistake(str(candidate), str(error)))
                self.usable = False
                return candidate
            self.place = str(candidate)
            self._read_ini(text)
            self.usable = not self.mistakes or any(self.sections.values())
            return candidate
        return None

    def exists(self, path: Path) -> bool:
        """Whether a file can be read."""
        try:
            self._read_file(path)
        except OSError:
            return False
        return True

    def _read_ini(self, text: str) -> None:
        """Take the entries of an ini file, whose keys keep their case and ``;`` begins a comment.

        A line that cannot be read is named by its number alone, because it may hold a secret.
        """
        reader = configparser.ConfigParser(
            interpolation=None,
            delimiters=("=",),
            comment_prefixes=(";", "#"),
            inline_comment_prefixes=(";",),
            empty_lines_in_values=False,
            default_section="",
        )
        reader.optionxform = str  # type: ignore[assignment, method-assign]
        try:
            reader.read_string(text)
        except configparser.DuplicateOptionError as error:
            expected = f"the key stands there twice, again on line {error.lineno}"
            return self.wrong(error.section, error.option, expected)
        except configparser.DuplicateSectionError as error:
            expected = f"the section stands there twice, again on line {error.lineno}"
            return self.wrong(error.section, "", expected)
        except configparser.MissingSectionHeaderError as error:
            expected = f"line {error.lineno}: expected a section such as [project] first"
            if postgrest.is_configuration(text):
                expected = f"it is PostgREST's; dataapi migrate-config {self.place} translates it"
            return self.wrong("", "", expected)
        except configparser.ParsingError as error:
            for line, _ in error.errors:
                self.wrong("", "", f"line {line}: expected key = value")
        for section in reader.sections():
            self.sections[section] = {
                name: Entry(self.place, section, name, value)
                for name, value in reader.items(section)
                if value is not None
            }
        return None

    def wrong(
        self, section: str, key: str, expected: str, *, value: str | None = None, lacks: tuple[str, ...] = ()
    ) -> None:
        """Note a mistake of a section, or of one of its keys."""
        self.mistakes.append(Mistake(self.place, expected, section, key, value, lacks))

    def override(self, environ: Mapping[str, str], overrides: Iterable[tuple[str, str, str]]) -> None:
        """Let the environment win over the file, and the command line over both.

        ``PORT``, by which container platforms say where they send requests, counts where nothing else says
        where to listen.
        """
        if (port := environ.get("PORT")) and "listen" not in self.sections.get("dataapi", {}):
            self._take(Entry("environment PORT", "dataapi", "listen", f"tcp:{port}"))
        for variable in sorted(name for name in environ if name.startswith(PREFIX)):
            place, name = f"environment {variable}", variable.removeprefix(PREFIX)
            section, key = _section_and_key(name)
            if key_of(section, key) is not None:
                self._take(Entry(place, section, key, environ[variable]))
            else:
                # Compared without the prefix, which all names share.
                known = [each.removeprefix(PREFIX) for each in _variables(section)]
                right = [variable_name(each, key) for each in sections_of(key)]
                close = suggestion(name, known, shown_as=f"{PREFIX}{{}}")
                meant = f"; did you mean {' or '.join(right)}?" if right else close
                self.mistakes.append(Mistake(place, f"no such key{meant}"))
        for override in overrides:
            self._take(Entry("command line", *override))

    def _take(self, entry: Entry) -> None:
        self.sections.setdefault(entry.section, {})[entry.key] = entry

    def values(self, section: str) -> dict[str, Any]:
        """Return the section's values by field name, without defaults and mistakes."""
        keys = keys_of(section)
        assert keys is not None
        values: dict[str, Any] = {}
        for name, entry in self.sections.get(section, {}).items():
            key = key_of(section, name)
            if key is None:
                # The value is not shown: the key may be a misspelt secret.
                expected = f"no such key{_right_sections(name) or suggestion(name, keys)}"
                self.mistakes.append(entry.mistake(expected, secret=True))
                continue
            try:
                if entry.place == self.place:
                    _check_written(entry.value.strip())
                value = self._resolve(entry)
                if name.startswith(APP_SETTINGS):
                    setting = parsers.setting_name(name), key.parse(value)
                    values["app_settings"] = (*values.get("app_settings", ()), setting)
                elif value or key.empty_means_empty:
                    values[name.replace("-", "_")] = parsed = key.parse(value)
                    if is_confidential(name, parsed):
                        self.secret_files += self._files(entry)
            except InvalidValue as error:
                self.mistakes.append(_invalid(entry, error, secret=key.secret))
                values[name.replace("-", "_")] = None
        return values

    def _files(self, entry: Entry) -> Iterator[Path]:
        """Yield the file that holds an entry's value, if one does."""
        if entry.value.startswith("@/"):
            yield Path(entry.value[1:].strip())
        elif entry.place == self.place:
            yield Path(self.place)

    def _resolve(self, entry: Entry) -> str:
        """Return the entry's value, read from the file that ``@/path`` names."""
        if not entry.value.startswith("@/"):
            return entry.value.strip()
        [path] = self._files(entry)
        try:
            text = read_text(path, self._read_file)
        except ValueError as error:
            raise InvalidValue(f"the file {path} {error}") from error
        return text.removesuffix("\n").removesuffix("\r")


def _right_sections(name: str) -> str:
    """Return ``; it belongs in …`` for a key that other sections have, else nothing."""
    sections = " or ".join(f"[{section}]" for section in sections_of(name))
    return f"; it belongs in {sections}" if sections else ""


def _check_written(value: str) -> None:
    """Check a value of an ini file for what other formats would not take for a part of it.

    :raises InvalidValue: naming it, and where such a value can stand.
    """
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        raise InvalidValue(f"expected no {value[0]} around the value, as it would be a part of it{_VERBATIM}")
    if _NO_COMMENT.search(value):
        raise InvalidValue(f"expected no # behind the value, where a comment begins with ;{_VERBATIM}")


def _invalid(entry: Entry, error: InvalidValue, *, secret: bool) -> Mistake:
    """Return the mistake of a value; of a missing file that ``dataapi keys`` can fill it says so."""
    mistake = entry.mistake(str(error), secret=secret or entry.value.startswith("@/"))
    unreadable = error.__cause__
    if entry.key in MADE and unreadable and isinstance(unreadable.__cause__, FileNotFoundError):
        expected = f"{mistake.expected} (dataapi keys makes what goes into it)"
        return replace(mistake, expected=expected, lacks=(entry.key,))
    return mistake


def read_text(path: Path, read_file: Callable[[Path], bytes]) -> str:
    """Return a file's text; raises ``ValueError`` that says why it cannot be read, or is not UTF-8."""
    try:
        return read_file(path).decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: byte {error.start}") from error


def _section_and_key(words: str) -> tuple[str, str]:
    """Take ``PROJECT_DB_URI`` apart; a reference of 20 letters after ``PROJECT_`` names one of several."""
    own = _OWN_VARIABLES.fullmatch(words)
    if own is not None:
        return f"project:{own[1].lower()}", _key(own[2])
    section, _, rest = words.partition("_")
    return section.lower(), _key(rest)


def _key(words: str) -> str:
    """Return the key of upper-case words, nothing when they are not all upper case."""
    return key_of_variable(words) if words == words.upper() else ""


def _variables(section: str) -> list[str]:
    """Return every variable's name, with those of the own section of one of several projects."""
    sections = dict(SECTIONS)
    if section.startswith("project:"):
        sections[section] = PROJECT
    return [variable_name(name, key) for name, keys in sections.items() for key in keys]


def variable_name(section: str, key: str) -> str:
    """Return the environment variable of a key."""
    return PREFIX + f"{section}_{key}".translate(_SEPARATORS).upper()
