"""Runs the cases and prints the table."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

from bench.cases import CASES, SETUP, Case
from bench.floor import messages_per_second
from bench.load import Load, put_load
from support.daemon import KEY, Daemon
from support.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.postgres import Database

HEADERS = {"apikey": KEY, "Content-Type": "application/json", "Accept": "application/json"}
_ROW = "{:36}{:>12}{:>10}{:>10}{:>14}{:>12}{:>8}\n"


def main(words: Sequence[str]) -> int:
    """Measure and print; return the exit status."""
    options = _options(words)
    missing = [program for program in ("wrk", "pgbench") if shutil.which(program) is None]
    if missing:
        sys.stderr.write(f"nothing is measured: {' and '.join(missing)} must be installed first\n")
        return 0
    cases = [case for case in CASES if not options.case or any(text in case.name for text in options.case)]
    server = Server()
    try:
        server.create()
        database = server.create_chinook()
        database.execute(SETUP)
        with tempfile.TemporaryDirectory() as name:
            failed = _measure(cases, database, Path(name), options)
    finally:
        server.remove()
    return 1 if failed else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the daemon beside PostgreSQL alone.")
    parser.add_argument("--seconds", type=int, default=5, help="how long each case and each floor runs")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of the daemon")
    parser.add_argument("--connections", type=int, default=16, help="of wrk, and clients of pgbench")
    parser.add_argument("--case", action="append", help="only cases with this in their name (repeatable)")
    return parser.parse_args(words)


def _measure(cases: Sequence[Case], database: Database, folder: Path, options: argparse.Namespace) -> bool:
    """Print a row for each case; return whether any request failed."""
    failed = False
    settings = {"workers": str(options.workers)}
    sys.stdout.write(_ROW.format("", "requests/s", "p50 ms", "p99 ms", "CPU us/request", "floor/s", "of it"))
    with Daemon(folder, database.uri, settings=settings) as daemon:
        daemon.wait_ready()
        for case in cases:
            _check(case, daemon.port)
            load = put_load(
                case, daemon.port, HEADERS, folder,
                pid=daemon.process.pid, seconds=options.seconds, connections=options.connections,
            )  # fmt: skip
            floor = messages_per_second(
                case, database, HEADERS, folder, seconds=options.seconds, clients=options.connections
            )
            _print(case, load, floor)
            failed |= load.failed > 0
    return failed


def _print(case: Case, load: Load, floor: float) -> None:
    sys.stdout.write(
        _ROW.format(
            case.name,
            f"{load.per_second:,.0f}",
            f"{load.p50:.2f}",
            f"{load.p99:.2f}",
            f"{load.cpu:,.0f}",
            f"{floor:,.0f}",
            f"{load.per_second / floor:.0%}",
        )
    )
    if load.failed:
        sys.stdout.write(f"  {load.failed} requests failed\n")
    sys.stdout.flush()


def _check(case: Case, port: int) -> None:
    """Fail for a case whose answer is not what it should measure: wrk sees statuses alone."""
    connection = HTTPConnection("127.0.0.1", port)
    path, body = case.numbered(1)
    connection.request("GET" if body is None else "POST", path, body, HEADERS)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    if response.status != case.status or b'"errors"' in answer or len(answer) < case.least:
        raise RuntimeError(f"{case.name} is answered with {response.status}: {answer[:500]!r}")
