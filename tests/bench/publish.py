"""Rate at which a daemon accepts events over HTTP and delivers them.

Run as ``PYTHONPATH=daemon:tests python tests/bench/publish.py [--seconds N] [--connections N]`` with ``wrk``
installed. It starts a PostgreSQL server, a daemon, and a receiver in another process, and publishes events of
a
project with one endpoint for all events.

- accepted: requests per second that published one event and returned 201, and their processor time in the
  daemon and PostgreSQL, including concurrent deliveries.
- end to end: deliveries per second, from the first request until the last delivery.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench.cases import NUMBER, Case
from bench.load import Target, put_load
from bench.webhooks import Receiver
from support.daemon import wait_for
from support.installation import Installation
from support.management import event
from support.postgres import Server
from support.recorder import Recorder


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the publishing of events over HTTP.")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    server, receiver = Server(), Receiver()
    try:
        server.create()
        installation = Installation(folder, server.create_database(), Recorder())
        installation.settings = {"timeout": "20"}
        installation.endpoints([receiver.url])
        daemon = installation.daemon()
        headers = {"Authorization": f"Bearer {installation.token}", "Content-Type": "application/json"}
        body = json.dumps(event(f"key {NUMBER}"))
        case = Case("publish", "/v1/webhooks/events", body, maximum=10**9, status=201)
        began = time.time()
        load, _ = put_load(
            case, Target(daemon.port, daemon.process.pid, headers), folder,
            database=server.pid, first=0, seconds=options.seconds, connections=options.connections,
        )  # fmt: skip
        wait_for(lambda: installation.due == 0, "the last delivery")
        times = receiver.seen()
        installation.end()
    finally:
        receiver.end()
        server.remove()
        shutil.rmtree(folder)
    sys.stdout.write(
        f"accepted    {load.per_second:6.0f} /s, {load.server:.0f} + {load.database:.0f} us each,"
        f" p50 {load.p50:.2f} ms, p99 {load.p99:.2f} ms, {load.failed} failed\n"
        f"end to end  {len(times) / (max(times) - began):6.0f} /s\n"
    )


if __name__ == "__main__":
    main()
