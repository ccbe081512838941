"""Measures the cases with the daemon, the floor and the peers in turn, and prints the table."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import jwt
from bench.cases import CASES, SETUP, SUBJECT, Case
from bench.floor import floor_result, put_floor_load
from bench.load import Load, Target, put_load, resident_memory
from bench.peers import PEERS, NotInstalled, Peer
from support.daemon import JWT_SECRET, KEY, Daemon
from support.postgres import Database, Server

HEADERS = {"apikey": KEY, "Content-Type": "application/json", "Accept": "application/json"}
INSTALLED = Path(__file__).parents[2] / "build" / "bench"
"""Folder in which the peers are installed."""

WARM_UP = 3
"""Number of rounds of the first case that are not counted, because node compiles hot code in them."""

_HEAD = """\
| Case | dataapi | p50 ms | p99 ms | CPU us | Floor | CPU us | of it | Peer | p50 | p99 | CPU us | of it |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
"""
"""The columns are requests per second, latency and processor time. A case has at most one peer."""


@dataclass
class Contender:
    """A program that is measured.

    :ivar runs: results of all rounds of the current case.
    :ivar next: number of the last request of the current case.
    """

    name: str
    run: Callable[[Case, int], tuple[Load, int]]
    takes: Callable[[Case], bool]
    next: int = 0
    runs: list[Load] = field(default_factory=list)

    def median(self) -> Load | None:
        """Return the medians of all rounds, or None if there are none."""
        if not self.runs:
            return None

        def middle(name: str) -> Any:
            values = [getattr(run, name) for run in self.runs]
            return None if None in values else statistics.median(values)

        names = ("per_second", "p50", "p99", "server", "database")
        failed = sum(run.failed for run in self.runs)
        return Load(failed=failed, **{name: middle(name) for name in names})


def main(words: Sequence[str]) -> int:
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
            results = _measure(cases, server, database, Path(name), options)
    finally:
        server.remove()
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    return 1 if any(load and load["failed"] for result in results for load in result["loads"].values()) else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare the daemon with plain PostgreSQL, PostGraphile and FastAPI."
    )
    parser.add_argument("--seconds", type=int, default=3, help="seconds per round and contender (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds per contender (default: 3)")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of the daemon (default: 1)")
    parser.add_argument(
        "--connections", type=int, default=16, help="connections of wrk and pgbench (default: 16)"
    )
    parser.add_argument(
        "--case", action="append", help="measure only cases whose name contains this text (repeatable)"
    )
    parser.add_argument("--json", type=Path, help="file to which the results are written")
    parser.add_argument("--no-peer", action="store_true", help="do not measure PostGraphile and FastAPI")
    return parser.parse_args(words)


def token(role: str = "authenticated", subject: str = SUBJECT) -> str:
    """Return the ``Authorization`` header for a user."""
    return "Bearer " + jwt.encode({"role": role, "sub": subject}, JWT_SECRET, "HS256")


def _measure(
    cases: Sequence[Case], server: Server, database: Database, folder: Path, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Print a row for each case and return all results."""
    results = []
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(folder, database.uri, settings={"workers": str(options.workers)}))
        daemon.wait_ready()
        peers = [] if options.no_peer else _started_peers(stack, database)
        contenders = list(_contenders(daemon, peers, database, server.pid, folder, options))
        sys.stdout.write(_HEAD)
        for contender in contenders:
            first = next(case for case in CASES if contender.takes(case))
            for _ in range(WARM_UP):
                contender.run(first, 0)
        for case in cases:
            _check(case, daemon, peers, database)
            loads = _run(case, contenders, options.rounds)
            sys.stdout.write(_row(case, loads))
            sys.stdout.flush()
            figures = {name: load and asdict(load) for name, load in loads.items()}
            results.append({"case": case.name, "loads": figures})
        sys.stdout.write(f"\nMemory: dataapi {resident_memory(daemon.process.pid):.0f} MiB")
        for peer in peers:
            sys.stdout.write(f", {peer.name} {peer.version} {resident_memory(peer.pid):.0f} MiB")
        sys.stdout.write("\n")
    return results


def _started_peers(stack: ExitStack, database: Database) -> list[Peer]:
    """Start the peers and print the reason if a peer is skipped."""
    started = []
    for kind in PEERS:
        peer = kind(INSTALLED, database.uri)
        try:
            peer.install()
        except NotInstalled as reason:
            sys.stdout.write(f"{peer.name} is not measured: {reason}\n")
        else:
            started.append(stack.enter_context(peer))
    return started


def _contenders(
    daemon: Daemon,
    peers: Sequence[Peer],
    database: Database,
    postgres: int,
    folder: Path,
    options: argparse.Namespace,
) -> Iterator[Contender]:
    shared = {"database": postgres, "seconds": options.seconds, "connections": options.connections}

    def http(port: int, pid: int, adapted: Callable[[Case], Case | None]) -> Callable[..., tuple[Load, int]]:
        def run(case: Case, first: int) -> tuple[Load, int]:
            theirs = adapted(case)
            assert theirs is not None, "the case applies to the contender"
            return put_load(theirs, Target(port, pid, _headers(case)), folder, first=first, **shared)

        return run

    ours = http(daemon.port, daemon.process.pid, lambda case: case)
    yield Contender("dataapi", ours, lambda _case: True)
    yield Contender(
        "floor",
        lambda case, first: put_floor_load(case, database.admin_uri, folder, first=first, **shared),
        lambda case: bool(case.floor),
    )
    for peer in peers:
        theirs = http(peer.port, peer.pid, peer.adapted)
        yield Contender(peer.name, theirs, partial(_takes, peer))


def _takes(peer: Peer, case: Case) -> bool:
    return peer.adapted(case) is not None


def _headers(case: Case) -> dict[str, str]:
    return {**HEADERS, "Authorization": token()} if case.signed_in else HEADERS


def _run(case: Case, contenders: Sequence[Contender], rounds: int) -> dict[str, Load | None]:
    """Measure all contenders in turn. The order is reversed after each round."""
    for contender in contenders:
        contender.runs.clear()
    number = 0
    for turn in range(rounds):
        for contender in contenders if turn % 2 == 0 else reversed(contenders):
            if contender.takes(case):
                # Rows cannot be deleted twice.
                load, number = contender.run(case, number)
                contender.runs.append(load)
    return {contender.name: contender.median() for contender in contenders}


def _row(case: Case, loads: dict[str, Load | None]) -> str:
    ours = loads["dataapi"]
    assert ours is not None
    cells = [case.name, f"{ours.per_second:,.0f}", f"{ours.p50:.2f}", f"{ours.p99:.2f}", _processor(ours)]
    others = [load for name, load in loads.items() if name not in ("dataapi", "floor") and load]
    for other, has_latency in ((loads.get("floor"), False), (others[0] if others else None, True)):
        if other is None:
            cells += [""] * (5 if has_latency else 3)
            continue
        share = ours.per_second / other.per_second if other.per_second else math.inf
        latency = [f"{other.p50:.2f}", f"{other.p99:.2f}"] if has_latency else []
        cells += [f"{other.per_second:,.0f}", *latency, _processor(other), f"{share:.2f}"]
    failures = [
        f"{name}: {load.failed} requests failed\n" for name, load in loads.items() if load and load.failed
    ]
    return "| " + " | ".join(cells) + " |\n" + "".join(failures)


def _processor(load: Load) -> str:
    """Return the processor time of a request in the server and in PostgreSQL as text."""
    return f"{load.server:,.0f} + {load.database:,.0f}" if load.server else f"{load.database:,.0f}"


def _check(case: Case, daemon: Daemon, peers: Sequence[Peer], database: Database) -> None:
    """Fail if the contenders' responses to a case differ, because wrk only checks statuses."""
    ours = _result(case, daemon.port)
    if case.floor and not case.writes and ours != (floor := floor_result(case, database, 1)):
        raise RuntimeError(f"{case.name}: the response {_short(ours)} is not the floor's {_short(floor)}")
    for peer in peers:
        adapted = peer.adapted(case)
        if adapted is None:
            continue
        # Rows cannot be deleted twice.
        theirs = _result(adapted, peer.port, 2 if case.writes else 1)
        if not case.writes and list(_leaves(ours)) != list(_leaves(theirs)):
            raise RuntimeError(
                f"{case.name}: the response {_short(ours)} is not {peer.name}'s {_short(theirs)}"
            )


def _result(case: Case, port: int, number: int = 1) -> Any:
    """Return the parsed response to a request. Fail if the response is an error."""
    connection = HTTPConnection("127.0.0.1", port)
    path, body = case.numbered(number)
    connection.request("GET" if body is None else "POST", path, body, _headers(case))
    response = connection.getresponse()
    text = response.read()
    connection.close()
    result = json.loads(text) if text else None
    if response.status != case.status or (isinstance(result, dict) and result.get("errors")):
        raise RuntimeError(f"{case.name} returned {response.status}: {text[:500]!r}")
    if result in ([], {"data": None}):
        raise RuntimeError(f"{case.name} finds nothing")
    return result


def _leaves(value: Any) -> Iterator[str]:
    """Yield the scalars of a response as text, because the peers' names and number formats differ."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    else:
        yield str(value)


def _short(result: Any) -> str:
    return json.dumps(result)[:300]
