"""What commands and the daemon exit with, in the terms of ``sysexits.h``, and the failure that carries it."""

from __future__ import annotations

import os

DECLINED = 1
INTERRUPTED = 130
"""What shells say of a program that Ctrl-C has ended."""

STATUSES = {
    os.EX_OK: "All is well.",
    DECLINED: "You answered no, or asked the daemon twice to stop.",
    os.EX_USAGE: "The command line is not understood, or lacks something.",
    os.EX_DATAERR: "What it names does not exist, or exists already, or is not as expected.",
    os.EX_NOINPUT: "A file to be read is missing or cannot be read.",
    os.EX_UNAVAILABLE: (
        "The database does not answer or refuses the login, or the daemon does not answer or cannot listen."
    ),
    os.EX_SOFTWARE: "An error in the program, with a traceback.",
    os.EX_CANTCREAT: "A file cannot be written, or is there already.",
    os.EX_IOERR: "The output cannot be written.",
    os.EX_TEMPFAIL: "The daemon is not ready or cannot reload, or PostgreSQL is busy: try again.",
    os.EX_NOPERM: "PostgreSQL denies a privilege, or the system a port.",
    os.EX_CONFIG: "The configuration has mistakes, or lacks something.",
    INTERRUPTED: "Interrupted by Ctrl-C.",
}
"""Every status with what it means."""

_UNAVAILABLE = ("08", "57")
_BUSY = ("40", "53", "55")
_INSUFFICIENT_PRIVILEGE = "42501"


class Failed(Exception):
    """A command failed with a status; the text says why, in one sentence or a line for each reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def of_sqlstate(sqlstate: str | None) -> int:
    """Return the status for an error of PostgreSQL; without an SQLSTATE it could not be reached."""
    if sqlstate is None or sqlstate.startswith(_UNAVAILABLE):
        return os.EX_UNAVAILABLE
    if sqlstate.startswith(_BUSY):
        return os.EX_TEMPFAIL
    return os.EX_NOPERM if sqlstate == _INSUFFICIENT_PRIVILEGE else os.EX_DATAERR
