"""Measures the daemon's requests per second and their latency, beside what PostgreSQL alone does.

Run as ``python tests/bench/run.py [--seconds N] [--workers N] [--connections N] [--case TEXT]...`` with
the project and its extras ``embedded`` and ``test`` installed (``make develop`` does so, and is needed again
after files were added), and ``wrk`` and ``pgbench`` on the machine (Debian: ``wrk`` and ``postgresql``).
It starts a PostgreSQL of its own with the Chinook sample and a daemon by ``twistd``, and prints a row per
case of ``cases.py``; a new case is a new item there.

The columns: requests per second and milliseconds of half and of 99 % of the requests, by ``wrk`` with
one thread; the daemon's processor time per request in microseconds, which other work on the machine
touches least; and the floor: how often a second pgbench sends the very same message with as many
clients, which is PostgreSQL's part alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "daemon")]

from bench.table import main  # noqa: E402 - the path comes first

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
