"""Exit statuses of the commands and the daemon, as in ``sysexits.h``, and an exception that has one."""

from __future__ import annotations

import os

DECLINED = FINDINGS = 1
INTERRUPTED = 130
"""Exit status that shells report after Ctrl-C."""

STATUSES = {
    os.EX_OK: "Success.",
    DECLINED: (
        "dataapi advise reports findings, a confirmation was declined, or the daemon received a second stop"
        " signal."
    ),
    os.EX_USAGE: "The command line is invalid or incomplete.",
    os.EX_DATAERR: (
        "A named object does not exist, already exists, or is invalid, or a checked file is out of date."
    ),
    os.EX_NOINPUT: "An input file is missing or cannot be read.",
    os.EX_UNAVAILABLE: (
        "The database does not respond or rejects the login, or the daemon does not respond or cannot listen."
    ),
    os.EX_SOFTWARE: "Internal error, with a traceback.",
    os.EX_CANTCREAT: "A file cannot be written or already exists.",
    os.EX_IOERR: "The output cannot be written.",
    os.EX_TEMPFAIL: "The daemon is not ready or cannot reload, or PostgreSQL is busy: try again later.",
    os.EX_NOPERM: "PostgreSQL denies a privilege, or the system denies a port.",
    os.EX_CONFIG: "The configuration is invalid or incomplete.",
    INTERRUPTED: "Interrupted by Ctrl-C.",
}

_UNAVAILABLE = ("08", "57")
_BUSY = ("40", "53", "55")
_INSUFFICIENT_PRIVILEGE = "42501"


class Failed(Exception):
    """Raised when a command fails. The message is a sentence, or several reasons, one per line."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def status_of_sqlstate(sqlstate: str | None) -> int:
    """Return the exit status for an SQLSTATE. None means that PostgreSQL could not be reached."""
    if sqlstate is None or sqlstate.startswith(_UNAVAILABLE):
        return os.EX_UNAVAILABLE
    if sqlstate.startswith(_BUSY):
        return os.EX_TEMPFAIL
    return os.EX_NOPERM if sqlstate == _INSUFFICIENT_PRIVILEGE else os.EX_DATAERR
