"""Compares versions of the daemon side by side: processor time of a request in each and in PostgreSQL.

Run as ``PYTHONPATH=daemon:tests python tests/bench/versions.py FOLDER [FOLDER ...]`` with ``wrk`` on the
machine.  Each folder is a checkout in which ``make develop`` was run.  All daemons serve one database; short
rounds go in turn, and the order changes from round to round, so that what else the machine does meets all of
them alike.  The table has the medians, and the median of the ratios to the first version, round by round, and
those between which the middle half lies.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.cases import CASES, SETUP, Case
from bench.load import Load, Target, put_load
from bench.table import HEADERS, token
from support import daemon as daemons
from support.daemon import Daemon
from support.postgres import Database, Server


@dataclass
class Version:
    """A version that runs.

    :ivar loads: its rounds of the current case.
    """

    name: str
    daemon: Daemon
    folder: Path
    loads: list[Load] = field(default_factory=list)


def main(words: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Compare versions of the daemon side by side.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a checkout")
    parser.add_argument("--case", action="append", help="only cases with this in their name (repeatable)")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args(words)
    server = Server()
    try:
        server.create()
        database = server.create_chinook()
        database.execute(SETUP)
        with ExitStack() as stack:
            versions = [_started(stack, folder.resolve(), database) for folder in options.folders]
            for case in CASES:
                if not options.case or any(text in case.name for text in options.case):
                    _compare(case, versions, server.pid, options)
    finally:
        server.remove()
    return 0


def _started(stack: ExitStack, checkout: Path, database: Database) -> Version:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    daemons.TWISTD = str(checkout / ".venv" / "bin" / "twistd")
    daemon = stack.enter_context(Daemon(folder, database.uri))
    daemon.wait_ready()
    return Version(checkout.name, daemon, folder)


def _compare(case: Case, versions: list[Version], postgres: int, options: argparse.Namespace) -> None:
    number = 0
    headers = {**HEADERS, "Authorization": token()} if case.signed_in else HEADERS
    for version in versions:
        version.loads.clear()
    for turn in range(options.rounds):
        shift = turn % len(versions)
        for version in versions[shift:] + versions[:shift]:
            target = Target(version.daemon.port, version.daemon.process.pid, headers)
            load, number = put_load(
                case, target, version.folder, database=postgres, first=number, seconds=options.seconds,
                connections=options.connections,
            )  # fmt: skip
            if load.failed:
                raise RuntimeError(f"{case.name}: {load.failed} requests to {version.name} failed")
            version.loads.append(load)
    sys.stdout.write(f"{case.name}\n")
    for version in versions:
        cells = [f"  {version.name:20}"]
        for name in ("server", "database"):
            mine = [getattr(load, name) for load in version.loads]
            theirs = [getattr(load, name) for load in versions[0].loads]
            low, middle, high = statistics.quantiles([a / b for a, b in zip(mine, theirs, strict=True)])
            cells.append(
                f"{name} {statistics.median(mine):6.0f} us, x {middle:.3f} ({low:.3f} to {high:.3f})"
            )
        cells.append(f"{statistics.median(load.per_second for load in version.loads):6.0f} /s")
        sys.stdout.write("   ".join(cells) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
