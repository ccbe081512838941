"""Log records for systemd's journal.

Records are sent over the journal's native protocol. If that fails (the record is too large, or there is no
socket), the record becomes a line with a priority prefix (sd-daemon(3)) on the stream to the journal.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from dataapi.telemetry.log_record import LogRecord

PRIORITIES: Mapping[str, int] = MappingProxyType(
    {"critical": 2, "error": 3, "warn": 4, "info": 6, "debug": 7}
)


SOCKET = "/run/systemd/journal/socket"

IDENTIFIER = "dataapi"


def is_journal(descriptor: int, environ: Mapping[str, str]) -> bool:
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        status = os.fstat(descriptor)
        return (status.st_dev, status.st_ino) == (int(device), int(inode))
    except (OSError, ValueError):
        return False


def with_priority(form: Callable[[LogRecord], str]) -> Callable[[LogRecord], str]:

    def prefixed(record: LogRecord) -> str:
        prefix = f"<{PRIORITIES[record.level]}>"
        return "".join([prefix + line for line in form(record).splitlines(keepends=True)])

    return prefixed


def as_entry(record: LogRecord) -> bytes:
    """Return a record in the journal's native protocol. Our own fields start with ``DATAAPI_``."""
    message = record.message if record.traceback is None else f"{record.message}\n{record.traceback}"
    known = {"MESSAGE": message, "PRIORITY": str(PRIORITIES[record.level]), "SYSLOG_IDENTIFIER": IDENTIFIER}
    own = {"logger": record.logger, "request_id": record.request_id, **record.fields}
    fields = {_name(name): _text(value) for name, value in own.items() if value != ""}
    return b"".join(_field(name, value) for name, value in (known | fields).items())


def _name(name: str) -> str:
    return "DATAAPI_" + re.sub("[^A-Z0-9_]", "_", name.upper())[:56]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)


def _field(name: str, value: str) -> bytes:
    data = value.encode("utf-8", "backslashreplace")
    if b"\n" not in data:
        return b"%b=%b\n" % (name.encode(), data)
    return b"%b\n%b%b\n" % (name.encode(), len(data).to_bytes(8, "little"), data)
