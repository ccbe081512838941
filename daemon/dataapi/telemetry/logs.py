"""Logging: one JSON object or line of text per event, with the request ID and without secrets.

Modules log with ``twisted.logger.Logger(namespace="dataapi.…")``. Keyword arguments of the call become fields
of the record. Twisted's own messages below warnings are dropped unless ``log-level`` is ``debug``.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import socket
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent
from zope.interface import implementer

from dataapi.settings import Settings
from dataapi.telemetry.journal import SOCKET, as_entry, with_priority
from dataapi.telemetry.log_record import LogRecord

request_id: ContextVar[str] = ContextVar("request_id", default="")

trace_id: ContextVar[str] = ContextVar("trace_id", default="")

_HIDDEN = "***"
_SECRETS = (
    (re.compile(r"(\w+://[^:/@\s]*):[^@\s]*@"), rf"\1:{_HIDDEN}@"),
    (re.compile(r"(?i)(\b(?:basic|bearer)\s+)[\w.~+/=-]+"), rf"\1{_HIDDEN}"),
    (
        re.compile(r"""(?i)\b((?:pgpassword|password|api_?key|authorization|jwt[-_]secret)["']?\s*[:=]\s*)"""
                   r"""(?:"[^"]*"|'[^']*'|(?:(?:basic|bearer)\s+)?[^\s"'&,;}]+)"""),
        rf"\1{_HIDDEN}",
    ),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), _HIDDEN),
    (re.compile(r"\bsb_secret_\w+"), _HIDDEN),
)  # fmt: skip
_SHORTEST_SECRET = 6
"""Minimum length of redacted configuration values. The password ``app`` would blank half the log."""

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Invisible characters, and characters that control a terminal."""

_LEGACY = frozenset(
    ("message", "time", "isError", "system", "format", "failure", "why", "logLevel", "printed", "debug")
)
_PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces secrets in text: configured values, and anything that looks like a secret."""

    values: tuple[str, ...] = ()

    @classmethod
    def for_secrets(cls, secrets: Iterable[str | None]) -> Redactor:
        known = {secret for secret in secrets if secret and len(secret) >= _SHORTEST_SECRET}
        return cls(tuple(sorted(known, key=len, reverse=True)))

    def __call__(self, text: str) -> str:
        for value in self.values:
            text = text.replace(value, _HIDDEN)
        for pattern, replacement in _SECRETS:
            text = pattern.sub(replacement, text)
        return text


def record_of(event: LogEvent, current_request: str, redact: Callable[[str], str]) -> LogRecord:
    failure = event.get("log_failure")
    message = formatEvent(event)
    if failure is not None and not message:
        message = failure.getErrorMessage()
    fields = {
        name: value
        for name, value in event.items()
        if not name.startswith(("log_", "_")) and name != "request_id" and name not in _LEGACY
        # Omit a field that only repeats the message.
        if event.get("log_format") != f"{{{name}}}"
    }
    return LogRecord(
        time=event["log_time"],
        level=event["log_level"].name,
        logger=event.get("log_namespace", "dataapi"),
        message=redact(message),
        request_id=str(event.get("request_id", current_request)),
        fields={name: _plain(value, redact) for name, value in fields.items()},
        traceback=None if failure is None else redact(failure.getTraceback()),
    )


def _plain(value: object, redact: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item, redact) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, redact) for item in value]
    return redact(repr(value))


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_json(record: LogRecord) -> str:
    line: dict[str, Any] = {
        "ts": timestamp(record.time),
        "level": record.level,
        "logger": record.logger,
        "message": record.message,
    }
    if record.request_id:
        line["request_id"] = record.request_id
    for name, value in record.fields.items():
        line.setdefault(name, value)
    if record.traceback is not None:
        line["traceback"] = record.traceback
    # Unprintable characters occur only in strings, where JSON allows escapes.
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=repr)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def as_text(record: LogRecord) -> str:
    parts = [timestamp(record.time), record.level.upper(), record.logger, record.message]
    if record.request_id:
        parts.append(f"request_id={record.request_id}")
    parts += [f"{name}={json.dumps(value, default=repr)}" for name, value in record.fields.items()]
    lines = [" ".join(parts)]
    if record.traceback is not None:
        lines += [f"    {row}" for row in record.traceback.splitlines()]
    return "".join(f"{_visible(line)}\n" for line in lines)


def _visible(text: str) -> str:
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


FORMATS: Mapping[str, Callable[[LogRecord], str]] = {"json": as_json, "text": as_text}


@implementer(ILogObserver)
class LineObserver:
    """The process's log observer: formats events and passes each line to ``write``.

    :param send: sends unformatted records, and returns False for records that ``write`` should get instead.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        line: Callable[[LogRecord], str],
        redact: Redactor,
        *,
        debug: bool = False,
        fields: Mapping[str, Any] | None = None,
        send: Callable[[LogRecord], bool] | None = None,
    ) -> None:
        self.write = write
        self._send = send
        self._line = line
        self._redact = redact
        self._debug = debug
        self._fields = fields or {}

    def __call__(self, event: LogEvent) -> None:
        level = event.get("log_level", LogLevel.info)
        namespace = event.get("log_namespace") or ""
        is_noise = level < LogLevel.info or namespace.startswith(("twisted", "log_legacy", "stdout"))
        if self._debug or level >= LogLevel.warn or not is_noise:
            if trace := trace_id.get():
                event = {**event, "trace_id": trace}
            self.put(record_of(event, request_id.get(), self._redact))

    def configure(self, settings: Settings) -> None:
        self._redact = Redactor.for_secrets(_secrets(settings))
        self._debug = settings.log_level == "debug"

    def put(self, record: LogRecord) -> None:
        """Write a record without redacting secrets."""
        if self._fields:
            record = replace(record, fields={**record.fields, **self._fields})
        if self._send is None or not self._send(record):
            self.write(self._line(record))


def line_observer(
    settings: Settings, write: Callable[[str], object], *, journal: bool = False, **fields: object
) -> LineObserver:
    """Return the log observer for a configuration, with ``fields`` in every record.

    :param journal: whether systemd's journal reads the lines.
    """
    form = FORMATS[settings.log_format]
    return LineObserver(
        write,
        with_priority(form) if journal else form,
        Redactor.for_secrets(_secrets(settings)),
        debug=settings.log_level == "debug",
        fields=fields,
        send=to_journal() if journal else None,
    )


def _secrets(settings: Settings) -> Iterable[str | None]:
    for project in settings.projects:
        yield project.jwt_secret
        yield from project.secret_keys
        yield _password(project.db_uri)
    if settings.webhooks is not None:
        yield _password(settings.webhooks.db_uri or "")


def _password(uri: str) -> str | None:
    try:
        return urlsplit(uri).password
    except ValueError:
        return None


def to_descriptor(descriptor: int) -> Callable[[str], None]:
    """Return a function that writes lines to a file descriptor, even if ``sys.stdout`` is replaced."""

    def write(line: str) -> None:
        data = line.encode("utf-8", "backslashreplace")
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                # Another process that shares the terminal or pipe has made it non-blocking.
                select.select([], [descriptor], [])

    return write


def to_journal(address: str = SOCKET) -> Callable[[LogRecord], bool]:

    def send(record: LogRecord) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            try:
                sender.sendto(as_entry(record), address)
            except OSError:
                return False
        return True

    return send


_LEVELS = ((logging.CRITICAL, LogLevel.critical), (logging.ERROR, LogLevel.error), (0, LogLevel.warn))


class StandardHandler(logging.Handler):
    """Forwards records of Python's ``logging`` to the log observer."""

    def __init__(self, observer: Callable[[LogEvent], None]) -> None:
        super().__init__(logging.WARNING)
        self._observer = observer

    def emit(self, record: logging.LogRecord) -> None:
        event: LogEvent = {
            "log_time": record.created,
            "log_level": next(level for number, level in _LEVELS if record.levelno >= number),
            "log_namespace": record.name,
            "log_format": record.getMessage().replace("{", "{{").replace("}", "}}"),
        }
        if record.exc_info:
            event["exception"] = logging.Formatter().formatException(record.exc_info)
        self._observer(event)
