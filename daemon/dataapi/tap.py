"""The ``twistd dataapi`` command: parses its options, and creates the service without starting it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from twisted.application.service import IService
from twisted.python import usage
from twisted.python.logfile import LogFile

from dataapi.settings import EMBEDDED_URI
from dataapi.telemetry.journal import is_journal
from dataapi.telemetry.logs import to_descriptor
from dataapi.telemetry.version import installed_version

EXAMPLES = (
    "twistd --nodaemon --pidfile= dataapi --demo",
    "twistd --nodaemon --pidfile= dataapi --embedded ./data",
    "twistd --nodaemon --pidfile= dataapi --config /etc/dataapi/dataapi.ini --workers auto",
)


class Options(usage.Options):
    """The options of ``twistd dataapi``."""

    synopsis = "[options]"
    longdesc = (
        "Serves a PostgreSQL database as GraphQL and REST APIs. "
        "SIGHUP, SIGUSR1 and SIGUSR2 reload the configuration and the database's catalog. "
        "SIGTERM finishes the requests in flight and exits; a second SIGTERM exits immediately. "
        "--embedded accepts an optional folder."
    )
    optFlags = (  # noqa: N815 - usage.Options
        ["demo", None, "Run with an embedded PostgreSQL, a sample schema and new keys, and print them."],
    )
    optParameters = (  # noqa: N815 - usage.Options
        ["config", "c", None, "Configuration file (default: ./dataapi.ini or /etc/dataapi/dataapi.ini)."],
        [
            "workers",
            "w",
            None,
            "Number of processes that share the listening sockets, or auto: one per core.",
        ],
        [
            "embedded",
            None,
            None,
            "Run an embedded PostgreSQL with its data in this folder (default: dataapi/embedded in "
            "$XDG_STATE_HOME or ~/.local/state; /var/lib/dataapi/embedded for root).",
        ],
    )

    def __init__(self) -> None:
        super().__init__()
        self["listen"] = []

    def parseOptions(self, options: Sequence[str] | None = None) -> None:  # noqa: N802 - usage.Options
        """Parse the arguments after ``dataapi``.

        On an error, print only the error. twistd would print its whole help to standard output.
        """
        try:
            super().parseOptions(_with_embedded_value(sys.argv[1:] if options is None else options))
        except usage.UsageError as error:
            _exit_with_message(os.EX_USAGE, f"{error}; twistd dataapi --help shows the options")

    def parseArgs(self, *words: str) -> None:  # noqa: N802 - usage.Options
        if words:
            raise usage.UsageError(f"unexpected argument: {words[0]}")

    def getUsage(self, width: int | None = None) -> str:  # noqa: N802 - usage.Options
        return "\n  ".join([f"{super().getUsage(width).rstrip()}\n\nExamples:", *EXAMPLES]) + "\n"

    def opt_listen(self, endpoint: str) -> None:
        """Twisted endpoint to listen on instead of the configured ones (repeatable)."""
        self["listen"].append(endpoint)

    opt_l = opt_listen

    def opt_version(self) -> None:
        """Print the version of dataapi and exit."""
        sys.stdout.write(f"dataapi {installed_version()}\n")
        sys.exit(0)

    @property
    def overrides(self) -> list[tuple[str, str, str]]:
        overrides = []
        if self["listen"]:
            overrides.append(("dataapi", "listen", "\n".join(self["listen"])))
        if self["workers"] is not None:
            overrides.append(("dataapi", "workers", self["workers"]))
        if self["embedded"] is not None:
            overrides.append(("project", "db-uri", EMBEDDED_URI))
        return overrides

    @property
    def directory(self) -> Path | None:
        return Path(self["embedded"]) if self["embedded"] else None


def _with_embedded_value(words: Sequence[str]) -> list[str]:
    """Add an empty value to a bare ``--embedded``, because getopt has no optional values."""
    result: list[str] = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if word == "--embedded":
            word = "--embedded=" + (
                remaining.pop(0) if remaining and not remaining[0].startswith("-") else ""
            )
        result.append(word)
    return result


def makeService(options: Options) -> IService:  # noqa: N802 - the name twistd looks for
    """Create the root service. If the configuration is invalid, print all errors and exit with 78."""
    # Nearly everything that is imported now is long-lived. ``RootService`` enables garbage collection again.
    gc.disable()
    from twisted.internet import reactor  # noqa: PLC0415 - twistd may install another one before this runs

    from dataapi.service.configuration import ConfigurationError  # noqa: PLC0415
    from dataapi.service.creation import make_service, settings_source  # noqa: PLC0415

    embedded = options["embedded"] is not None
    try:
        source = settings_source(
            options["config"], options.overrides, options.directory, demo=options["demo"], embedded=embedded
        )
    except ConfigurationError as error:
        separator = "\n" if len(error.mistakes) > 1 else " "
        _exit_with_message(os.EX_CONFIG, f"invalid configuration:{separator}{error}")
    twistd: Mapping[str, Any] = options.parent or {}
    _check_pid_file(twistd.get("pidfile"))
    writer, journal = _log_writer(twistd)
    uses_twistd_log = bool(twistd.get("logger") or twistd.get("syslog"))
    return make_service(reactor, source, writer, journal=journal, observes=not uses_twistd_log)


def _log_writer(twistd: Mapping[str, Any]) -> tuple[Callable[[str], object], bool]:
    """Return a function that writes to twistd's log, and whether the log is systemd's journal.

    The log is standard output, or the file of ``--logfile``.
    """
    file = twistd.get("logfile")
    if twistd.get("nodaemon") and file in (None, "", "-"):
        return to_descriptor(1), is_journal(1, os.environ)
    if file == "-":
        _exit_with_message(os.EX_USAGE, "a daemon cannot log to standard output")
    try:
        log: Callable[[str], object] = LogFile.fromFullPath(file or "twistd.log").write
    except OSError as error:
        _exit_with_message(
            os.EX_CANTCREAT, f"the log file {file or 'twistd.log'} cannot be written: {error.strerror}"
        )
    return log, False


def _check_pid_file(file: str | None) -> None:
    """Exit if the PID file cannot be written, because twistd would print a traceback."""
    if file and not os.access(Path(file).absolute().parent, os.W_OK):
        _exit_with_message(
            os.EX_CANTCREAT,
            f"the PID file {file} cannot be written: choose another, or none with twistd --pidfile= dataapi",
        )


def _exit_with_message(status: int, message: str) -> NoReturn:
    sys.stderr.write(f"dataapi: {message}\n")
    sys.exit(status)
