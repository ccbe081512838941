"""Compares versions of the daemon: latency of short requests with and without long documents.

Run as ``PYTHONPATH=daemon:tests python tests/bench/interference.py FOLDER [FOLDER ...]``. Each folder is a
checkout in which ``make develop`` was run. One client repeats a request with a cached plan. On two
connections, another process sends new documents that take as long to compile as the limits permit. Rounds
alternate. The table shows percentiles of the first client's latency in milliseconds, with and without
documents, and the documents per second.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.table import HEADERS
from support import daemon as daemons
from support.daemon import Daemon
from support.long_documents import TABLES, documents
from support.postgres import Server

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

CONNECTIONS = 2
TOKENS = 20_000
NAMES = ("root fields", "shared variables", "shared fragments", "conditions", "unknown")
"""Names of documents in ``support.long_documents``."""
KNOWN = "query($id: Int!) { personByPk(id: $id) { name person { email } } }"


def post(connection: http.client.HTTPConnection, query: str, variables: Any = None) -> bytes:
    """Send a document and return the body of the response."""
    body = json.dumps({"query": query, "variables": variables})
    connection.request("POST", "/graphql/v1", body, {**HEADERS, "Content-Type": "application/json"})
    return connection.getresponse().read()


def send_documents(port: int, completed: Synchronized[int], ends: Any) -> None:
    """Send new long documents until ``ends`` is set."""
    numbers = itertools.count()
    texts = [text for name, text in documents(TOKENS).items() if name in NAMES]

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while not ends.is_set():
            number = next(numbers)
            post(connection, f"{texts[number % len(texts)]} # {number}")
            with completed.get_lock():
                completed.value += 1

    threads = [threading.Thread(target=send) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def latencies(port: int, seconds: float) -> list[float]:
    """Send sequential requests for some seconds and return their latencies in milliseconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    milliseconds: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        post(connection, KNOWN, {"id": len(milliseconds)})
        milliseconds.append((time.perf_counter() - began) * 1000)
        time.sleep(0.002)
    return milliseconds


def measured(port: int, seconds: float) -> tuple[list[float], list[float], float]:
    """Return the latencies without and with documents, and the rate of documents per second."""
    post(http.client.HTTPConnection("127.0.0.1", port), KNOWN, {"id": 1})
    unloaded = latencies(port, seconds / 4)
    completed, ends = multiprocessing.Value("i", 0), multiprocessing.Event()
    process = multiprocessing.Process(target=send_documents, args=(port, completed, ends))
    process.start()
    try:
        time.sleep(0.5)
        return unloaded, latencies(port, seconds), completed.value / seconds
    finally:
        ends.set()
        process.join()


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure short requests while long documents are compiled.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="checkout to measure")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(words)
    server = Server()
    try:
        server.create()
        database = server.create_database(TABLES)
        with ExitStack() as stack:
            running = {}
            for checkout in options.folders:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                daemons.TWISTD = str(checkout.resolve() / ".venv" / "bin" / "twistd")
                running[checkout] = stack.enter_context(Daemon(folder, database.uri))
                running[checkout].wait_ready()
            for _ in range(options.rounds):
                for checkout, daemon in running.items():
                    report(checkout.name, *measured(daemon.port, options.seconds))
    finally:
        server.remove()
    return 0


def report(name: str, unloaded: list[float], loaded: list[float], rate: float) -> None:
    cells = []
    for milliseconds in (unloaded, loaded):
        cuts = statistics.quantiles(milliseconds, n=100)
        cells.append(f"p50 {cuts[49]:6.2f}  p99 {cuts[98]:6.2f}  max {max(milliseconds):6.1f} ms")
    sys.stdout.write(f"{name:20} unloaded {cells[0]}   loaded {cells[1]}   {rate:.1f} documents/s\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
