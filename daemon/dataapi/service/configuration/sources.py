"""The sources of the configuration, in ascending precedence: file, environment, command line."""

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
    NAMED,
    SECTIONS,
    is_confidential,
    key_of,
    key_of_variable,
    keys_of,
    sections_of,
)
from dataapi.service.configuration.mistakes import GENERATED, Entry, Mistake, suggestion
from dataapi.service.configuration.parsers import InvalidValue

DEFAULT_FILES = (Path("dataapi.ini"), Path("/etc/dataapi/dataapi.ini"))
TEMPLATE = Path("etc/dataapi.ini")
"""The configuration template in a clone of the repository. It is never read as a configuration."""
PREFIX = "DATAAPI_"

_OWN_VARIABLES = re.compile(r"(PROJECT)_([A-Z]{20})_(.+)|(NOTIFY)_([A-Z0-9]+)_(.+)", re.ASCII)

_SEPARATORS = str.maketrans(":-.", "___")
_NO_COMMENT = re.compile(r"\s#(\s|$)")
_USE_FILE = "; if it belongs to the value, write the value to a file and use @/path"


class ConfigurationSources:
    """The configuration as read so far: the effective entry of each key, and all errors.

    :ivar usable: False if the file cannot be read at all, so that further checks are pointless.
    """

    def __init__(self, read_file: Callable[[Path], bytes]) -> None:
        self._read_file = read_file
        self.origin = "configuration"
        self.usable = True
        self.mistakes: list[Mistake] = []
        self.sections: dict[str, dict[str, Entry]] = {}
        self.secret_files: list[Path] = []
        self.deprecations: list[str] = []

    def file(self, path: Path | None) -> Path | None:
        """Read the given file, or the first default file that exists. Return its path."""
        for candidate in DEFAULT_FILES if path is None else (path,):
            try:
                text = read_text(candidate, self._read_file)
            except ValueError as error:
                if path is None and isinstance(error.__cause__, FileNotFoundError):
                    continue
                self.mistakes.append(Mistake(str(candidate), str(error)))
                self.usable = False
                return candidate
            self.origin = str(candidate)
            self._read_ini(text)
            self.usable = not self.mistakes or any(self.sections.values())
            return candidate
        return None

    def exists(self, path: Path) -> bool:
        try:
            self._read_file(path)
        except OSError:
            return False
        return True

    def _read_ini(self, text: str) -> None:
        """Read an ini file. Keys are case-sensitive, and ``;`` begins a comment.

        Errors name only the number of an invalid line, because it may contain a secret.
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
            expected = f"the key is repeated on line {error.lineno}"
            return self.wrong(error.section, error.option, expected)
        except configparser.DuplicateSectionError as error:
            expected = f"the section is repeated on line {error.lineno}"
            return self.wrong(error.section, "", expected)
        except configparser.MissingSectionHeaderError as error:
            expected = f"line {error.lineno}: expected a section such as [project] first"
            if postgrest.is_configuration(text):
                expected = f"this is a PostgREST file; translate it with dataapi migrate-config {self.origin}"
            return self.wrong("", "", expected)
        except configparser.ParsingError as error:
            for line, _ in error.errors:
                self.wrong("", "", f"line {line}: expected key = value")
        for section in reader.sections():
            self.sections[section] = {
                name: Entry(self.origin, section, name, value)
                for name, value in reader.items(section)
                if value is not None
            }
        return None

    def wrong(
        self, section: str, key: str, expected: str, *, value: str | None = None, lacks: tuple[str, ...] = ()
    ) -> None:
        self.mistakes.append(Mistake(self.origin, expected, section, key, value, lacks))

    def override(self, environ: Mapping[str, str], overrides: Iterable[tuple[str, str, str]]) -> None:
        """Override the file with the environment, and both with the command line.

        Container platforms set ``PORT`` to the port that receives requests. ``PORT`` applies if ``listen`` is
        not configured.
        """
        if (port := environ.get("PORT")) and "listen" not in self.sections.get("dataapi", {}):
            self._set(Entry("environment PORT", "dataapi", "listen", f"tcp:{port}"))
        for variable in sorted(name for name in environ if name.startswith(PREFIX)):
            origin, name = f"environment {variable}", variable.removeprefix(PREFIX)
            section, key = _section_and_key(name)
            if key_of(section, key) is not None:
                self._set(Entry(origin, section, key, environ[variable]))
            else:
                # Compare names without the prefix, because it would make all of them similar.
                known = [each.removeprefix(PREFIX) for each in _variables(section)]
                exact = [variable_name(each, key) for each in sections_of(key)]
                close = suggestion(name, known, shown_as=f"{PREFIX}{{}}")
                hint = f"; did you mean {' or '.join(exact)}?" if exact else close
                self.mistakes.append(Mistake(origin, f"no such key{hint}"))
        for override in overrides:
            self._set(Entry("command line", *override))

    def _set(self, entry: Entry) -> None:
        self.sections.setdefault(entry.section, {})[entry.key] = entry

    def values(self, section: str) -> dict[str, Any]:
        """Return the valid values of a section by field name, without defaults."""
        keys = keys_of(section)
        assert keys is not None
        values: dict[str, Any] = {}
        for name, entry in self.sections.get(section, {}).items():
            key = key_of(section, name)
            if key is None:
                # Hide the value: the key may be a misspelled name of a secret.
                expected = f"no such key{_right_sections(name) or suggestion(name, keys)}"
                self.mistakes.append(entry.mistake(expected, secret=True))
                continue
            if key.deprecated:
                self.deprecations.append(str(entry.mistake(str(key.deprecated), secret=True)))
            try:
                if entry.origin == self.origin:
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
        if entry.value.startswith("@/"):
            yield Path(entry.value[1:].strip())
        elif entry.origin == self.origin:
            yield Path(self.origin)

    def _resolve(self, entry: Entry) -> str:
        if not entry.value.startswith("@/"):
            return entry.value.strip()
        [path] = self._files(entry)
        try:
            text = read_text(path, self._read_file)
        except ValueError as error:
            raise InvalidValue(f"the file {path} {error}") from error
        return text.removesuffix("\n").removesuffix("\r")


def _right_sections(name: str) -> str:
    sections = " or ".join(f"[{section}]" for section in sections_of(name))
    return f"; it belongs in {sections}" if sections else ""


def _check_written(value: str) -> None:
    """Reject quotes around a value and ``#`` after it, because INI files do not strip them.

    :raises InvalidValue: with a message that suggests a file if the characters belong to the value.
    """
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        raise InvalidValue(
            f"expected no {value[0]} around the value: it would be part of the value{_USE_FILE}"
        )
    if _NO_COMMENT.search(value):
        raise InvalidValue(f"expected no # after the value: a comment begins with ;{_USE_FILE}")


def _invalid(entry: Entry, error: InvalidValue, *, secret: bool) -> Mistake:
    """Return the error for an invalid value. Mention ``dataapi keys`` if it can generate a missing file."""
    mistake = entry.mistake(str(error), secret=secret or entry.value.startswith("@/"))
    unreadable = error.__cause__
    if entry.key in GENERATED and unreadable and isinstance(unreadable.__cause__, FileNotFoundError):
        expected = f"{mistake.expected} (to generate it, run dataapi keys)"
        return replace(mistake, expected=expected, lacks=(entry.key,))
    return mistake


def read_text(path: Path, read_file: Callable[[Path], bytes]) -> str:
    """Return the text of a UTF-8 file. Raises ``ValueError`` with the reason."""
    try:
        return read_file(path).decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: byte {error.start}") from error


def _section_and_key(words: str) -> tuple[str, str]:
    """Return the section and the key for a name such as ``PROJECT_DB_URI``.

    With several projects or channels, ``PROJECT_`` or ``NOTIFY_`` is followed by a reference or a name.
    """
    match = _OWN_VARIABLES.fullmatch(words)
    if match is not None:
        kind, name, rest = filter(None, match.groups())
        key = _key(rest)
        # NOTIFY_DB_URI and NOTIFY_EVENT_TYPE match the pattern, but contain no section name.
        if kind == "PROJECT" or key_of("notify", key) is not None:
            return f"{kind}:{name}".lower(), key
    section, _, rest = words.partition("_")
    return section.lower(), _key(rest)


def _key(words: str) -> str:
    return key_of_variable(words) if words == words.upper() else ""


def _variables(section: str) -> list[str]:
    sections = dict(SECTIONS)
    kind, separator, _ = section.partition(":")
    if separator and kind in NAMED:
        sections[section] = SECTIONS[kind]
    return [variable_name(name, key) for name, keys in sections.items() for key in keys]


def variable_name(section: str, key: str) -> str:
    return PREFIX + f"{section}_{key}".translate(_SEPARATORS).upper()
