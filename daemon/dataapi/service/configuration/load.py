"""Loads the configuration: sources in, frozen settings out, or every mistake at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dataapi.auth.keys import is_url, parse_keys
from dataapi.service.configuration.keys import keys_of
from dataapi.service.configuration.parsers import InvalidValue
from dataapi.service.configuration.parsers import ref as parse_ref
from dataapi.service.configuration.sources import (
    DEFAULT_FILES,
    ConfigurationError,
    Entry,
    Mistake,
    from_environment,
    from_ini,
    read_text,
    suggestion,
    variable_name,
)
from dataapi.settings import Project, Settings, Webhooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

DEFAULT_REF = "abcdefghijklmnopqrst"
DEFAULT_ORGANIZATION = "default"
SECTIONS = ("dataapi", "project", "webhooks")

MADE = ("jwt-secret", "publishable-keys", "secret-keys", "encryption-key")
"""The keys whose values ``dataapi keys`` makes."""


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
    entries, unknown = from_environment(environ)
    reading.mistakes += unknown
    reading.take(entries)
    reading.take(Entry("command line", *override) for override in overrides)
    if not reading.usable:
        raise ConfigurationError(reading.mistakes)
    if file is None and not any(section.startswith("project") for section in reading.sections):
        raise ConfigurationError([*reading.mistakes, _nothing_found()])
    return _assemble(reading, file)


def load_service(
    environ: Mapping[str, str], *, overrides: Iterable[tuple[str, str, str]] = (), defaults: Settings
) -> Settings:
    """Return ``defaults`` with what environment and command line say of ``[dataapi]``, and nothing else.

    :raises ConfigurationError: with every mistake.
    """
    reading = _Reading(Path.read_bytes)
    entries, unknown = from_environment(environ)
    reading.mistakes += unknown
    reading.take(entry for entry in entries if entry.section == "dataapi")
    reading.take(Entry("command line", *override) for override in overrides if override[0] == "dataapi")
    values = reading.values("dataapi")
    if reading.mistakes:
        raise ConfigurationError(reading.mistakes)
    return replace(defaults, **values)


class _Wrong(Protocol):
    """Notes a mistake of one section."""

    def __call__(self, key: str, expected: str, lacks: tuple[str, ...] = ()) -> None: ...


def _nothing_found() -> Mistake:
    looked = " and ".join(str(candidate) for candidate in DEFAULT_FILES)
    variable = variable_name("project", "db-uri")
    expected = f"no file found, looked for {looked}; name one with --config, or set {variable}"
    return Mistake("configuration", "", "", None, expected, lacks=MADE)


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
                self.mistakes.append(Mistake(str(candidate), "", "", None, str(error)))
                self.usable = False
                return candidate
            self.place = str(candidate)
            names, entries, mistakes = from_ini(text, self.place)
            self.usable = not mistakes or bool(entries)
            self.mistakes += mistakes
            for name in names:
                self.sections[name] = {}
            self.take(entries)
            return candidate
        return None

    def take(self, entries: Iterable[Entry]) -> None:
        """Let these entries win over earlier ones."""
        for entry in entries:
            self.sections.setdefault(entry.section, {})[entry.key] = entry

    def values(self, section: str) -> dict[str, Any]:
        """Return the section's values by field name, without defaults and mistakes."""
        keys = keys_of(section)
        assert keys is not None
        values: dict[str, Any] = {}
        for name, entry in self.sections.get(section, {}).items():
            key = keys.get(name)
            if key is None:
                # The value is not shown: the key may be a misspelt secret.
                expected = f"no such key{suggestion(name, keys)}"
                self.mistakes.append(entry.mistake(expected, secret=True))
                continue
            try:
                value = self._resolve(entry)
                if value or key.empty_means_empty:
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
    names = list(reading.sections)
    for name in names:
        if keys_of(name) is None:
            expected = f"no such section{suggestion(name, SECTIONS)}"
            reading.mistakes.append(Mistake(reading.place, name, "", None, expected))
    service = reading.values("dataapi")
    sections = [name for name in names if name == "project" or name.startswith("project:")]
    if not sections:
        expected = "expected a section [project], or several [project:REF]"
        reading.mistakes.append(Mistake(reading.place, "", "", None, expected))
    if len(sections) > 1 and "project" in sections:
        expected = "expected either one [project] or several [project:REF], not both"
        reading.mistakes.append(Mistake(reading.place, "project", "", None, expected))
    projects = {section: _project(reading, section) for section in sections}
    _check_several(reading, projects)
    webhooks = reading.values("webhooks")
    if reading.mistakes:
        raise ConfigurationError(reading.mistakes)
    built = tuple(Project(**values) for values in projects.values())
    settings = Settings(projects=built, webhooks=Webhooks(**webhooks), file=file, **service)
    largest = max(project.max_body for project in built)
    if largest > settings.max_bodies:
        expected = f"expected at least {largest}, the max-body of a project"
        raise ConfigurationError([Mistake(reading.place, "dataapi", "max-bodies", None, expected)])
    return settings


def _project(reading: _Reading, section: str) -> dict[str, Any]:
    values = reading.values(section)
    _, several, name = section.partition(":")

    def wrong(key: str, expected: str, lacks: tuple[str, ...] = ()) -> None:
        reading.mistakes.append(Mistake(reading.place, section, key, None, expected, lacks))

    if several:
        try:
            values.setdefault("ref", parse_ref(name))
        except InvalidValue as error:
            wrong("", f"{error} after [project:")
        else:
            if values["ref"] not in (name, None):
                wrong("ref", f"expected {name}, the reference in the section's name, or no such key")
    values.setdefault("ref", DEFAULT_REF)
    values.setdefault("organization", DEFAULT_ORGANIZATION)
    if "db_uri" not in values:
        wrong("db-uri", "expected a connection string such as postgresql://authenticator@127.0.0.1/app")
    if values.get("graphql_documents_only") and "graphql_documents" not in values:
        wrong("graphql-documents-only", "no document could run: expected graphql-documents, or no")
    _check_keys(values, wrong)
    return values


def _check_keys(values: Mapping[str, Any], wrong: _Wrong) -> None:
    """Check that requests can be authenticated, and that no API key stands for two roles."""
    signing = values.get("jwt_secret")
    if signing and values.get("jwt_secret_is_base64") and not is_url(signing):
        try:
            parse_keys(signing, is_base64=True)
        except ValueError as error:
            expected = f"jwt-secret {error}; expected the base64 of 32 bytes or more, or no"
            wrong("jwt-secret-is-base64", expected.replace("jwt-secret the secret", "jwt-secret"))
    publishable, secret = values.get("publishable_keys", ()), values.get("secret_keys", ())
    if set(publishable or ()) & set(secret or ()):
        wrong("secret-keys", "expected other keys than in publishable-keys")
    admits = "jwt_secret" in values or publishable != () or secret != ()
    if values.get("require_api_key", True) and not admits:
        wrong(
            "require-api-key",
            "no request could be admitted: expected jwt-secret, publishable-keys or secret-keys "
            "(dataapi keys makes them), or require-api-key = no",
            lacks=MADE,
        )


def _check_several(reading: _Reading, projects: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that every host name selects one project."""
    if len(projects) < 2:
        return
    owners: dict[str, str] = {}
    for section, values in projects.items():
        hosts = values.get("hosts", ())
        if hosts == ():
            expected = "expected host names, because there are several projects"
            reading.mistakes.append(Mistake(reading.place, section, "hosts", None, expected))
        for host in dict.fromkeys(hosts or ()):
            owner = owners.setdefault(host, section)
            if owner != section:
                expected = f"expected each host name in one project only; [{owner}] has it too"
                reading.mistakes.append(Mistake(reading.place, section, "hosts", host, expected))
