"""Loads the configuration: file, environment and command line in, frozen settings or every mistake out."""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dataapi.auth.keys import is_url, parse_keys
from dataapi.service.configuration import parsers, postgrest
from dataapi.service.configuration.endpoints import http_address
from dataapi.service.configuration.keys import (
    APP_SETTINGS,
    PROJECT,
    SERVICE,
    WEBHOOKS,
    key_of,
    key_of_variable,
    keys_of,
)
from dataapi.service.configuration.parsers import InvalidValue
from dataapi.service.configuration.parsers import ref as parse_ref
from dataapi.settings import Project, Settings, Webhooks

DEFAULT_FILES = (Path("etc/dataapi.ini"), Path("/etc/dataapi/dataapi.ini"))
PREFIX = "DATAAPI_"

_OWN_VARIABLES = re.compile(r"PROJECT_([A-Z]{20})_(.+)", re.ASCII)
DEFAULT_REF = "abcdefghijklmnopqrst"
DEFAULT_ORGANIZATION = "default"
SECTIONS = ("dataapi", "project", "webhooks")

_SEPARATORS = str.maketrans(":-.", "___")
_NO_COMMENT = re.compile(r"\s#(\s|$)")
_VERBATIM = "; a value that needs it can stand in a file, as @/path"

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


def load(
    path: Path | None,
    environ: Mapping[str, str],
    *,
    overrides: Iterable[tuple[str, str, str]] = (),
    read_file: Callable[[Path], bytes] = Path.read_bytes,
) -> Settings:
    """Return the configuration.

    :param path: the ini file; None takes the first of ``DEFAULT_FILES`` that exists, or none.
    :param environ: ``DATAAPI_<SECTION>_<KEY>`` wins over the file.
    :param overrides: ``(section, key, value)`` from the command line, which wins over both.
    :param read_file: reads the ini file and the files that values of the form ``@/path`` name.
    :raises ConfigurationError: with every mistake.
    """
    reading = _Reading(read_file)
    file = reading.file(path)
    reading.override(environ, overrides)
    if not reading.usable:
        raise ConfigurationError(reading.mistakes)
    if file is None and not any(section.startswith("project") for section in reading.sections):
        looked = " and ".join(map(str, DEFAULT_FILES))
        variable = variable_name("project", "db-uri")
        expected = f"no file found, looked for {looked}; name one with --config, or set {variable}"
        raise ConfigurationError([*reading.mistakes, Mistake("configuration", expected, lacks=MADE)])
    return _assemble(reading, file)


def load_service(
    environ: Mapping[str, str], *, overrides: Iterable[tuple[str, str, str]] = (), defaults: Settings
) -> Settings:
    """Return ``defaults`` with what environment and command line say of ``[dataapi]``, and nothing else.

    :raises ConfigurationError: with every mistake.
    """
    reading = _Reading(Path.read_bytes)
    reading.override(environ, overrides)
    values = reading.values("dataapi")
    if reading.mistakes:
        raise ConfigurationError(reading.mistakes)
    return replace(defaults, **values)


class _Reading:
    """What has been read so far: the entry that wins for each key, and the mistakes."""

    def __init__(self, read_file: Callable[[Path], bytes]) -> None:
        self._read_file = read_file
        self.place = "configuration"
        self.usable = True
        self.mistakes: list[Mistake] = []
        self.sections: dict[str, dict[str, Entry]] = {}

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
                close = suggestion(name, known, shown_as=f"{PREFIX}{{}}")
                self.mistakes.append(Mistake(place, f"no such key{close}"))
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
                expected = f"no such key{suggestion(name, keys)}"
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
                    values[name.replace("-", "_")] = key.parse(value)
            except InvalidValue as error:
                self.mistakes.append(_invalid(entry, error, secret=key.secret))
                values[name.replace("-", "_")] = None
        return values

    def _resolve(self, entry: Entry) -> str:
        """Return the entry's value, read from the file that ``@/path`` names."""
        if not entry.value.startswith("@/"):
            return entry.value.strip()
        path = Path(entry.value[1:].strip())
        try:
            text = read_text(path, self._read_file)
        except ValueError as error:
            raise InvalidValue(f"the file {path} {error}") from error
        return text.removesuffix("\n").removesuffix("\r")


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


def _assemble(reading: _Reading, file: Path | None) -> Settings:
    """Build the values and check what concerns more than one key; raises ``ConfigurationError``."""
    for name in reading.sections:
        if keys_of(name) is None:
            reading.wrong(name, "", f"no such section{suggestion(name, SECTIONS)}")
    service = reading.values("dataapi")
    sections = [name for name in reading.sections if name == "project" or name.startswith("project:")]
    if not sections:
        reading.wrong("", "", "expected a section [project], or several [project:REF]")
    if len(sections) > 1 and "project" in sections:
        reading.wrong("project", "", "expected either one [project] or several [project:REF], not both")
    projects = {section: _project(reading, section) for section in sections}
    if len(projects) > 1:
        _check_hosts(reading, projects)
    webhooks = reading.values("webhooks")
    if reading.mistakes:
        raise ConfigurationError(reading.mistakes)
    built = tuple(Project(**values) for values in projects.values())
    settings = Settings(projects=built, webhooks=Webhooks(**webhooks), file=file, **service)
    _check_ports(reading, settings)
    largest = max(project.max_body for project in built)
    if largest > settings.max_bodies:
        reading.wrong("dataapi", "max-bodies", f"expected at least {largest}, the max-body of a project")
    if reading.mistakes:
        raise ConfigurationError(reading.mistakes)
    return settings


def _check_ports(reading: _Reading, settings: Settings) -> None:
    """Check that no two listeners have one address."""
    seen = set()
    for key, endpoints in (("listen", settings.listen), ("admin-listen", settings.admin_listen)):
        for endpoint in endpoints:
            address = (http_address(endpoint) or "").partition("://")[2]
            if address in seen:
                expected = "expected another port: a listener before it has this one"
                reading.wrong("dataapi", key, expected, value=endpoint)
            if address and not address.endswith(":0"):
                seen.add(address)


def _project(reading: _Reading, section: str) -> dict[str, Any]:
    values = reading.values(section)
    _, several, name = section.partition(":")
    if several:
        try:
            values.setdefault("ref", parse_ref(name))
        except InvalidValue as error:
            reading.wrong(section, "", f"{error} after [project:")
        else:
            if values["ref"] not in (name, None):
                expected = f"expected {name}, the reference in the section's name, or no such key"
                reading.wrong(section, "ref", expected)
    values.setdefault("ref", DEFAULT_REF)
    values.setdefault("organization", DEFAULT_ORGANIZATION)
    if "db_uri" not in values:
        expected = "expected a connection string such as postgresql://authenticator@127.0.0.1/app"
        reading.wrong(section, "db-uri", expected)
    if values.get("graphql_documents_only") and "graphql_documents" not in values:
        expected = "no document could run: expected graphql-documents, or no"
        reading.wrong(section, "graphql-documents-only", expected)
    _check_keys(reading, section, values)
    return values


def _check_keys(reading: _Reading, section: str, values: Mapping[str, Any]) -> None:
    """Check the keys, of which what ``db-config`` admits may yet come from the database."""
    if not values.get("db_config"):
        for key, expected, lacks in key_mistakes(values):
            reading.wrong(section, key, expected, lacks=lacks)


def key_mistakes(values: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield key, expectation and lacking keys where nobody is admitted, or a key stands for two roles.

    :param values: of a project, by field.
    """
    signing = values.get("jwt_secret")
    if signing and values.get("jwt_secret_is_base64") and not is_url(signing):
        try:
            parse_keys(signing, is_base64=True)
        except ValueError as error:
            expected = f"jwt-secret {error}; expected the base64 of 32 bytes or more, or no"
            yield "jwt-secret-is-base64", expected.replace("jwt-secret the secret", "jwt-secret"), ()
    publishable, secret = values.get("publishable_keys", ()), values.get("secret_keys", ())
    if set(publishable or ()) & set(secret or ()):
        yield "secret-keys", "expected other keys than in publishable-keys", ()
    admits = "jwt_secret" in values or publishable != () or secret != ()
    if values.get("require_api_key", True) and not admits:
        expected = (
            "no request could be admitted: expected jwt-secret, publishable-keys or secret-keys "
            "(dataapi keys makes them), or require-api-key = no"
        )
        yield "require-api-key", expected, MADE


def _check_hosts(reading: _Reading, projects: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that every host name selects one of several projects."""
    owners: dict[str, str] = {}
    for section, values in projects.items():
        hosts = values.get("hosts", ())
        if hosts == ():
            reading.wrong(section, "hosts", "expected host names, because there are several projects")
        for host in dict.fromkeys(hosts or ()):
            owner = owners.setdefault(host, section)
            if owner != section:
                expected = f"expected each host name in one project only; [{owner}] has it too"
                reading.wrong(section, "hosts", expected, value=host)


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
    sections = {"dataapi": SERVICE, "project": PROJECT, "webhooks": WEBHOOKS}
    if section.startswith("project:"):
        sections[section] = PROJECT
    return [variable_name(name, key) for name, keys in sections.items() for key in keys]


def variable_name(section: str, key: str) -> str:
    """Return the environment variable of a key."""
    return PREFIX + f"{section}_{key}".translate(_SEPARATORS).upper()
