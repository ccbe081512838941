"""Priorities of log lines for systemd's journal (sd-daemon(3)), where the journal is what reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataapi.telemetry.logs import LogRecord

PRIORITIES: Mapping[str, int] = MappingProxyType(
    {"critical": 2, "error": 3, "warn": 4, "info": 6, "debug": 7}
)
"""syslog's priorities of the levels."""


def is_journal(descriptor: int, environ: Mapping[str, str]) -> bool:
    """Whether a descriptor is the stream to the journal that ``JOURNAL_STREAM`` names (systemd.exec(5))."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(descriptor)
        return (found.st_dev, found.st_ino) == (int(device), int(inode))
    except (OSError, ValueError):
        return False


def with_priority(form: Callable[[LogRecord], str]) -> Callable[[LogRecord], str]:
    """Return a format whose every line begins with the priority of its record, such as ``<6>``."""

    def prefixed(record: LogRecord) -> str:
        prefix = f"<{PRIORITIES[record.level]}>"
        return "".join([prefix + line for line in form(record).splitlines(keepends=True)])

    return prefixed
