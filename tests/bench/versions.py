"""Compares versions of the daemon: processor time in the daemon and in PostgreSQL, throughput and latency.

Run as ``PYTHONPATH=daemon:tests python tests/bench/versions.py FOLDER [FOLDER ...]`` with ``wrk`` installed.
Each folder is a checkout in which ``make develop`` was run. All daemons serve one database. Short rounds
alternate in varying order, so that other load on the machine affects all of them equally. Two processes of
the same version differ by several percent, so each case uses several processes. The table contains the
medians, the
median ratio to the first version per round, and the quartiles of the ratios.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.cases import CASES, SETUP, Case
from bench.load import Load, Target, put_load
from bench.table import HEADERS, token
from support import daemon as daemons
from support.daemon import Daemon
from support.postgres import Database, Server


@dataclass(frozen=True)
class Version:
    """A running daemon of a version."""

    checkout: Path
    daemon: Daemon
    folder: Path


Loads = dict[Path, list[Load]]
"""The results of each checkout."""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare the performance of versions of the daemon.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="checkout to measure")
    parser.add_argument(
        "--case", action="append", help="measure only cases whose name contains this text (repeatable)"
    )
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--starts", type=int, default=4, help="processes per version (default: 4)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds per process (default: 3)")
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args(words)
    server = Server()
    try:
        server.create()
        database = server.create_chinook()
        database.execute(SETUP)
        for case in CASES:
            if not options.case or any(text in case.name for text in options.case):
                _report(case, _compare(case, database, server.pid, options))
    finally:
        server.remove()
    return 0


def _compare(case: Case, database: Database, postgres: int, options: argparse.Namespace) -> Loads:
    checkouts = [folder.resolve() for folder in options.folders]
    loads: Loads = {checkout: [] for checkout in checkouts}
    number = 0
    for start in range(options.starts):
        with ExitStack() as stack:
            versions = [_started(stack, checkout, database) for checkout in checkouts]
            for turn in range(-1, options.rounds):
                shift = (start + turn) % len(versions)
                for version in versions[shift:] + versions[:shift]:
                    load, number = _put(case, version, postgres, number, options)
                    if turn >= 0:  # the first round is a warm-up
                        loads[version.checkout].append(load)
    return loads


def _started(stack: ExitStack, checkout: Path, database: Database) -> Version:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    daemons.TWISTD = str(checkout / ".venv" / "bin" / "twistd")
    daemon = stack.enter_context(Daemon(folder, database.uri))
    daemon.wait_ready()
    return Version(checkout, daemon, folder)


def _put(
    case: Case, version: Version, postgres: int, number: int, options: argparse.Namespace
) -> tuple[Load, int]:
    headers = {**HEADERS, "Authorization": token()} if case.signed_in else HEADERS
    target = Target(version.daemon.port, version.daemon.process.pid, headers)
    load, number = put_load(
        case, target, version.folder, database=postgres, first=number, seconds=options.seconds,
        connections=options.connections,
    )  # fmt: skip
    if load.failed:
        raise RuntimeError(f"{case.name}: {load.failed} requests to {version.checkout.name} failed")
    return load, number


def _report(case: Case, loads: Loads) -> None:
    sys.stdout.write(f"{case.name}\n")
    first = next(iter(loads.values()))
    for checkout, rounds in loads.items():
        cells = [f"  {checkout.name:20}"]
        for name in ("server", "database"):
            mine = [getattr(load, name) for load in rounds]
            theirs = [getattr(load, name) for load in first]
            low, middle, high = statistics.quantiles([a / b for a, b in zip(mine, theirs, strict=True)])
            cells.append(
                f"{name} {statistics.median(mine):6.0f} us, x {middle:.3f} ({low:.3f} to {high:.3f})"
            )
        cells.append(f"{_median(rounds, 'per_second'):6.0f} /s")
        cells.append(f"p50 {_median(rounds, 'p50'):.2f} ms   p99 {_median(rounds, 'p99'):.2f} ms")
        sys.stdout.write("   ".join(cells) + "\n")
    sys.stdout.flush()


def _median(rounds: list[Load], name: str) -> float:
    return statistics.median([float(getattr(load, name)) for load in rounds])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
