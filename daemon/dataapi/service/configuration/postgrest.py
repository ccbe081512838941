"""Translates PostgREST's configuration, its file and its ``PGRST_*`` variables, to ours.

docs/guides/from-postgrest.md lists the same keys. A test compares them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dataapi.service.configuration.keys import APP_SETTINGS, PROJECT, key_of_variable

PREFIX = "PGRST_"

RENAMED = {
    "db-pool-timeout": "db-pool-max-idletime",
    "db-schema": "db-schemas",
    "max-rows": "db-max-rows",
    "pre-request": "db-pre-request",
    "role-claim-key": "jwt-role-claim-key",
    "root-spec": "db-root-spec",
    "secret-is-base64": "jwt-secret-is-base64",
}

SAME = (
    *("log-level", "server-reuseport", "db-uri", "db-pool", "db-pool-acquisition-timeout"),
    *("db-pool-max-idletime", "db-pool-max-lifetime", "db-config", "db-channel", "db-channel-enabled"),
    *("jwt-cache-max-entries", *(name for name, key in PROJECT.items() if key.in_database)),
)
"""Keys with the same names and values as ours. Some of our keys also accept ``auto``."""

LISTENING = (
    *("server-host", "server-port", "server-unix-socket", "server-unix-socket-mode"),
    *("admin-server-host", "admin-server-port", "admin-server-unix-socket", "admin-server-unix-socket-mode"),
)
"""Keys that are translated to ``listen`` and ``admin-listen``."""

WITHOUT = {
    "admin-server-config-enabled": "the configuration is not available over HTTP",
    "db-pool-automatic-recovery": "lost connections are always replaced",
    "db-use-legacy-gucs": "headers, cookies and claims are JSON settings, as in PostgREST since version 12",
    "internal-schema-cache-query-sleep": "it is for PostgREST's own tests",
    "internal-schema-cache-query-sleep-before-queries": "it is for PostgREST's own tests",
    "internal-schema-cache-sleep": "it is for PostgREST's own tests",
    "jwt-cache-max-lifetime": "jwt-cache-max-entries limits the cache; tokens are removed when they expire",
    "openapi-security-active": "the OpenAPI description always describes authentication",
    "raw-media-types": "functions and aggregates declare media types, as in PostgREST since version 12",
    "url-use-legacy-target-names": "filters can always name an embedded table, even if it has an alias",
}
"""Keys without a counterpart, each with the reason."""

LOG_QUERY = "log-query"

KNOWN = frozenset({*RENAMED, *SAME, *LISTENING, *WITHOUT, LOG_QUERY})

_SERVICE = ("log-level", "server-reuseport")
_AUTOMATIC = ("db-prepared-statements", "db-channel-enabled")
_SWITCHES = (
    "db-config",
    *("server-reuseport", "db-plan-enabled", "db-aggregates-enabled", "jwt-secret-is-base64"),
    "server-timing-enabled",
    *_AUTOMATIC,
)
_FILES = ("db-uri", "jwt-secret")
_POSTGREST_DEFAULTS = {"db-uri": "postgresql://", "db-anon-role": "", "db-config": "true"}
"""PostgREST's defaults that differ from ours."""

_TOKEN = re.compile(
    r"""
      (?P<blank>\s+|\#[^\r\n]*)
    | (?P<word>[A-Za-z][\w-]*(?:\.[A-Za-z][\w-]*)*)
    | (?P<text>"(?:[^"\\]|\\.)*")
    | (?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<sign>[={}])
    """,
    re.VERBOSE | re.DOTALL,
)
_REFERENCE = re.compile(r"\$(?:\(([^)]+)\)|(\$)?)")
_KEY_LINE = re.compile(rf"^\s*(?:{'|'.join(sorted(KNOWN))}|app\.settings\.\S+)\s*=\s*\"", re.MULTILINE)


class NotUnderstood(ValueError):
    """Raised when a file is not a valid PostgREST configuration. The message contains the position."""


@dataclass(frozen=True, slots=True)
class TranslatedConfiguration:
    """A translated configuration, and notes about keys that are not translated or have changed."""

    text: str
    notes: tuple[str, ...]


def is_configuration(text: str) -> bool:
    """Return whether a file without sections has a PostgREST key with a quoted value."""
    return _KEY_LINE.search(text) is not None


def migrate(text: str, environ: Mapping[str, str], folder: Path) -> TranslatedConfiguration:
    """Translate a PostgREST configuration. The variables ``PGRST_*`` override the file.

    The paths in ``@path`` values are relative to ``folder``, PostgREST's working directory.

    :raises NotUnderstood: PostgREST would reject the file.
    """
    return _Translation({**parse(text, environ), **_variables(environ)}, folder).translated()


def parse(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a file, after replacing each ``$(NAME)`` with the value of a variable or key."""
    values: dict[str, str] = {}
    prefixes: list[str] = []
    tokens = _tokens(text)
    for line, kind, token in tokens:
        if token == "}" and prefixes:
            prefixes.pop()
        elif kind != "word":
            raise NotUnderstood(f"line {line}: expected key = value")
        else:
            key = ".".join([*prefixes, token])
            _, _, sign = next(tokens, (line, "", ""))
            if sign == "{":
                prefixes.append(token)
                continue
            _, *quoted = next(tokens, (line, "", "")) if sign == "=" else (line, "", "")
            values[key] = _value(line, key, *quoted, known={**environ, **values})
    if prefixes:
        raise NotUnderstood(f"{prefixes[-1]}: expected a closing }}")
    return values


def _tokens(text: str) -> Iterator[tuple[int, str, str]]:
    position = 0
    while position < len(text):
        line = text.count("\n", 0, position) + 1
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotUnderstood(f"line {line}: expected key = value (strings need double quotes)")
        position = match.end()
        if match.lastgroup != "blank":
            yield line, str(match.lastgroup), match[0]


def _value(line: int, key: str, kind: str, token: str, *, known: Mapping[str, str]) -> str:
    if kind == "number":
        return token
    if kind == "word" and token in ("true", "on", "false", "off"):
        return "true" if token in ("true", "on") else "false"
    if kind != "text":
        raise NotUnderstood(
            f"line {line}: {key}: expected a string in double quotes, a number, true or false"
        )

    def replacement(match: re.Match[str]) -> str:
        name, dollar = match[1], match[2]
        if name is None and dollar is None:
            raise NotUnderstood(f"line {line}: {key}: expected $$ for a single $")
        if name is not None and name not in known:
            raise NotUnderstood(f"line {line}: {key}: there is no variable {name}")
        return "$" if name is None else known[name]

    try:
        quoted = str(json.loads(token, strict=False))
    except ValueError:
        raise NotUnderstood(f'line {line}: {key}: expected n, t, r, u, " or \\ after a backslash') from None
    return _REFERENCE.sub(replacement, quoted)


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    values = {}
    for name in sorted(name for name in environ if name.startswith(PREFIX)):
        key = key_of_variable(name.removeprefix(PREFIX))
        values[key] = environ[name]
    return values


class _Translation:
    def __init__(self, values: Mapping[str, str], folder: Path) -> None:
        self._folder = folder
        self._notes: list[str] = []
        self._values = dict(values)
        for old, new in RENAMED.items():
            if old in values:
                self._notes.append(f"{old}: deprecated; replaced by {new}")
                if new not in values or old == "db-pool-timeout":
                    self._values[new] = values[old]

    def translated(self) -> TranslatedConfiguration:
        service = [
            ("listen", self._listen("server-", default_port="3000")),
            ("admin-listen", self._listen("admin-server-", default_port="")),
            *self._lines(_SERVICE),
        ]
        project = [
            *self._lines([key for key in SAME if key not in _SERVICE]),
            *self._log_query(),
            ("require-api-key", "no"),
            *self._lines([key for key in self._values if key.startswith(APP_SETTINGS)]),
        ]
        for key in self._values:
            if key in WITHOUT:
                self._notes.append(f"{key}: {WITHOUT[key]}")
            elif key not in KNOWN and not key.startswith(APP_SETTINGS):
                self._notes.append(f"{key}: PostgREST has no such key")
        text = "".join(
            f"{head}\n" + "".join(f"{key} = {value}".rstrip() + "\n" for key, value in lines)
            for head, lines in (("[dataapi]", service), ("\n[project]", project))
        )
        return TranslatedConfiguration(text, tuple(self._notes))

    def _lines(self, keys: list[str] | tuple[str, ...]) -> Iterator[tuple[str, str]]:
        values = {**_POSTGREST_DEFAULTS, **self._values}
        for key in keys:
            if key not in values:
                continue
            value = self._translated_value(key, values[key])
            if value is not None:
                yield key, value

    def _log_query(self) -> Iterator[tuple[str, str]]:
        # log-query = true (PostgREST 13: main-query) logs the SQL of requests that log-level selects.
        value = self._values.get(LOG_QUERY, "")
        if value == "main-query" or _switch(value):
            yield LOG_QUERY, "all" if self._values.get("log-level") in ("info", "debug") else "errors"

    def _translated_value(self, key: str, value: str) -> str | None:
        """Return a value in our syntax. None means the default, or a value that our file cannot contain."""
        if key in _SWITCHES:
            on = _switch(value)
            if on is None:
                self._notes.append(f"{key}: neither true nor false; PostgREST ignores such values")
                return None
            return ("auto" if key in _AUTOMATIC else "yes") if on else "no"
        if key in _FILES and value.startswith("@"):
            return f"@{self._folder / value[1:]}"
        if "\n" in value or value != value.strip() or re.search(r"(^|\s)[;#]|^@/|^([\"']).*\2$", value):
            self._notes.append(f"{key}: write the value to a file, and set {key} = @/path")
            return None
        return value

    def _listen(self, prefix: str, default_port: str) -> str:
        value = self._values.get
        if socket := value(f"{prefix}unix-socket"):
            mode = value(f"{prefix}unix-socket-mode") or "660"
            return f"unix:{_escaped(str(self._folder / socket))}:mode={mode}"
        port = value(f"{prefix}port") or default_port
        if not port:
            return ""
        host = value(f"{prefix}host") or value("server-host") or "!4"
        if host in ("*", "*4", "!4"):
            return f"tcp:{port}"
        if host in ("*6", "!6"):
            return f"tcp6:{port}"
        if ":" in host:
            return f"tcp6:{port}:interface={_escaped(host)}"
        if host == "localhost":
            host = "127.0.0.1"
        elif re.fullmatch(r"[0-9.]+", host) is None:
            self._notes.append(f"{prefix}host: replace the name {host} with its address")
        return f"tcp:{port}:interface={host}"


def _switch(value: str) -> bool | None:
    """Parse a boolean as PostgREST does: ``true`` or ``false``, ignoring all but letters, or a number."""
    letters = "".join(filter(str.isalpha, value)).lower()
    if letters in ("true", "false"):
        return letters == "true"
    return int(value) > 0 if re.fullmatch(r"-?[0-9]+", value) else None


def _escaped(argument: str) -> str:
    return re.sub(r"([\\:=])", r"\\\1", argument)
