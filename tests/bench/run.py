"""Measures the daemon beside PostgreSQL alone and beside PostGraphile, in turn.

Run as ``python tests/bench/run.py [--seconds N] [--rounds N] [--workers N] [--connections N]
[--case TEXT]... [--json FILE] [--no-peer]`` with the project and its extras ``embedded`` and ``test``
installed (``make develop`` does so, and is needed again after files were added), and ``wrk`` and
``pgbench`` on the machine (Debian: ``wrk`` and ``postgresql``).  PostGraphile is installed from the npm
registry into ``build/``, or left out with the reason.  It starts a PostgreSQL of its own with the Chinook
sample, and prints a row per case of ``cases.py``; a new case is a new item there.

Before a case is measured, its answers must be equal.  Then each contender runs for some seconds, in turn,
and the table has the medians of all rounds: requests per second, milliseconds of half and of 99 % of the
requests, and the microseconds of processor time that a request takes in the server and in PostgreSQL, which
other work on the machine touches least.  The floor is the leanest SQL that makes the same answer, as a
prepared statement of pgbench: without HTTP, roles and settings.  ``of it`` is how many times theirs our
requests per second are.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "daemon")]

from bench.table import main  # noqa: E402 - the path comes first

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
