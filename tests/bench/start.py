"""Compares the processor time and wall time that versions of the daemon need to start.

Run as ``PYTHONPATH=daemon:tests python tests/bench/start.py FOLDER [FOLDER ...]``. Each folder is a checkout
in which ``make develop`` was run. All daemons serve one database. They start one after the other in varying
order, so that other load on the machine affects all of them equally. The table contains the medians, and the
median ratio to the first version per round.

- import: a process creates the service, and imports all modules that a daemon needs before its first request.
- REST, GraphQL: from the start of ``twistd`` to the first response. The request reads a row by primary key.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.cases import BY_KEY, CASES, SETUP, Case
from bench.growth import seconds_to_response
from bench.load import processor_time, resident_memory
from support import daemon as daemons
from support.daemon import Daemon, environment
from support.postgres import Server

REST = next(case for case in CASES if case.name == "REST by primary key")

IMPORT = """
import os, sys, twisted.scripts.twistd
from dataapi.tap import Options, makeService
options = Options()
options.parseOptions(["--config", sys.argv[1]])
makeService(options)
import dataapi.service.assembly, dataapi.web.app
os._exit(0)
"""


@dataclass(frozen=True)
class Start:
    """The measurement of one start.

    :ivar processor: processor time in milliseconds.
    :ivar wall: wall time in milliseconds.
    :ivar memory: resident memory in MiB.
    """

    processor: float
    wall: float
    memory: float


Starts = dict[Path, list[Start]]
"""The measurements of each checkout."""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare the start time of versions of the daemon.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="checkout to measure")
    parser.add_argument("--rounds", type=int, default=9, help="starts per version (default: 9)")
    options = parser.parse_args(words)
    checkouts = [folder.resolve() for folder in options.folders]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    server = Server()
    try:
        server.create()
        database = server.create_chinook()
        database.execute(SETUP)
        for name, case in (("import", None), ("REST", REST), ("GraphQL", BY_KEY)):
            starts: Starts = {checkout: [] for checkout in checkouts}
            for turn in range(-1, options.rounds):
                shift = turn % len(checkouts)
                for checkout in checkouts[shift:] + checkouts[:shift]:
                    with tempfile.TemporaryDirectory() as folder:
                        daemons.TWISTD = str(checkout / ".venv" / "bin" / "twistd")
                        daemon = Daemon(Path(folder), database.uri)
                        start = _imported(daemon) if case is None else _responded(daemon, case)
                    if turn >= 0:  # in the first round, Python compiles modules
                        starts[checkout].append(start)
            _report(name, starts)
    finally:
        server.remove()
    return 0


def _imported(daemon: Daemon) -> Start:
    python = str(Path(daemons.TWISTD).with_name("python"))
    began = time.perf_counter()
    command = [python, "-c", IMPORT, str(daemon.config)]
    process = subprocess.Popen(command, cwd=daemon.folder, env=environment())
    _, process.returncode, used = os.wait4(process.pid, 0)
    if process.returncode:
        raise RuntimeError(f"{python} cannot import the daemon")
    wall = time.perf_counter() - began
    return Start((used.ru_utime + used.ru_stime) * 1000, wall * 1000, used.ru_maxrss / 1024)


def _responded(daemon: Daemon, case: Case) -> Start:
    with daemon:
        wall = seconds_to_response(daemon, case)
        pid = daemon.process.pid
        return Start(processor_time(pid) * 1000, wall * 1000, resident_memory(pid))


def _report(name: str, starts: Starts) -> None:
    sys.stdout.write(f"{name}\n")
    first = next(iter(starts.values()))
    for checkout, rounds in starts.items():
        cells = [f"  {checkout.name:20}"]
        for field, unit in (("processor", "ms"), ("wall", "ms"), ("memory", "MiB")):
            mine = [getattr(start, field) for start in rounds]
            theirs = [getattr(start, field) for start in first]
            ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
            cells.append(f"{field} {statistics.median(mine):6.0f} {unit}, x {ratio:.2f}")
        sys.stdout.write("   ".join(cells) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
