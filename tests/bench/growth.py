"""Measures and plots how the cost of a request grows with rows, tables, roles and connections.

Run as ``python tests/bench/growth.py [--seconds N] [--rounds N] [--output FOLDER]`` with the requirements of
``run.py`` and matplotlib (the extra ``bench``). It writes one SVG per plot to the folder, and the numbers to
``growth.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "daemon")]

from bench.cases import BY_KEY, SETUP, TRACKS, Case, page  # noqa: E402 - the path comes first
from bench.load import Load, Target, put_load, resident_memory  # noqa: E402
from bench.reflection import SCHEMA  # noqa: E402
from bench.table import HEADERS, token  # noqa: E402
from support.daemon import Daemon, wait_for  # noqa: E402
from support.postgres import Database, Server  # noqa: E402

CONNECTIONS = 16
ROWS = (1, 10, 100, 1000)
TABLES = (0, 300, 1000, 3000)
ROLES = (1, 4, 16, 64)
CLIENTS = (1, 4, 16, 64, 256)

Point = dict[str, float]
Plot = dict[int, Point]
"""Results by the number of rows, tables, roles or connections."""


@dataclass
class Bench:
    """A PostgreSQL server and the duration of measurements."""

    server: Server
    folder: Path
    seconds: int
    rounds: int

    def median(self, case: Case, target: Target, connections: int = CONNECTIONS) -> Load:
        """Return the results of the round with the median processor time."""
        runs = []
        for number in range(self.rounds):
            load, _ = put_load(
                case, target, self.folder, database=self.server.pid, first=number * 1000,
                seconds=self.seconds, connections=connections,
            )  # fmt: skip
            assert not load.failed, f"{load.failed} requests of {case.name} failed"
            runs.append(load)
        return sorted(runs, key=lambda load: load.server)[len(runs) // 2]

    def daemon(self, database: Database) -> Daemon:
        """Return a daemon in a new folder that has not been started."""
        return Daemon(Path(tempfile.mkdtemp(dir=self.folder)), database.uri)


def rows(bench: Bench, database: Database) -> Plot:
    """Measure pages with increasing numbers of rows."""
    plot: Plot = {}
    with bench.daemon(database) as daemon:
        daemon.wait_ready()
        target = Target(daemon.port, daemon.process.pid, HEADERS)
        for count in ROWS:
            rest = Case("REST", f"{TRACKS},milliseconds,unit_price&order=track_id&limit={count}")
            graphql, by_rest = bench.median(page(count), target), bench.median(rest, target)
            plot[count] = {
                "GraphQL, daemon": graphql.server,
                "GraphQL, PostgreSQL": graphql.database,
                "REST, daemon": by_rest.server,
                "REST, PostgreSQL": by_rest.database,
            }
    return plot


def tables(bench: Bench, _database: Database) -> tuple[Plot, Plot, Plot]:
    """Measure a small query, the first response, and memory with increasing numbers of other tables."""
    cost: Plot = {}
    first: Plot = {}
    memory: Plot = {}
    for count in TABLES:
        database = bench.server.create_chinook()
        database.execute(SETUP)
        if count:
            database.execute(SCHEMA.format(tables=count))
            database.execute("vacuum analyze")
        times = []
        for _ in range(bench.rounds):
            with bench.daemon(database) as daemon:
                times.append(seconds_to_response(daemon))
        with bench.daemon(database) as daemon:
            seconds_to_response(daemon)
            memory[count] = {"after the first answer": resident_memory(daemon.process.pid)}
            load = bench.median(BY_KEY, Target(daemon.port, daemon.process.pid, HEADERS))
        cost[count] = {"daemon": load.server, "PostgreSQL": load.database}
        first[count] = {"process start to first answer": statistics.median(times)}
        bench.server.drop_database(database)
    return cost, first, memory


def seconds_to_response(daemon: Daemon, case: Case = BY_KEY) -> float:
    """Return the seconds from the start of the daemon's process until it responds to a request."""
    began = time.perf_counter()
    if not daemon_responds(daemon, case):
        wait_for(lambda: daemon_responds(daemon, case), "the first answer")
    return time.perf_counter() - began


def daemon_responds(daemon: Daemon, case: Case = BY_KEY) -> bool:
    connection = HTTPConnection("127.0.0.1", daemon.port, timeout=10)
    path, body = case.numbered(1)
    try:
        connection.request("GET" if body is None else "POST", path, body, HEADERS)
        response = connection.getresponse()
        return response.status == 200 and b"errors" not in response.read()
    except OSError:
        return False
    finally:
        connection.close()


def roles(bench: Bench, database: Database) -> tuple[Plot, Plot]:
    """Measure a small query with tokens of increasing numbers of roles, in turn."""
    for number in range(max(ROLES)):
        database.execute(f"create role bench_{number} nologin; grant bench_{number} to authenticator")
        database.execute(f"grant select on all tables in schema public to bench_{number}")
    cost: Plot = {}
    memory: Plot = {}
    for count in ROLES:
        with bench.daemon(database) as daemon:
            daemon.wait_ready()
            tokens = [token(f"bench_{number}") for number in range(count)]
            load = bench.median(BY_KEY, Target(daemon.port, daemon.process.pid, HEADERS, tokens=tokens))
            memory[count] = {"daemon": resident_memory(daemon.process.pid)}
        cost[count] = {"daemon": load.server, "PostgreSQL": load.database}
    return cost, memory


def connections(bench: Bench, database: Database) -> tuple[Plot, Plot]:
    """Measure a small query over increasing numbers of concurrent connections."""
    rate: Plot = {}
    latency: Plot = {}
    cases = {"GraphQL": BY_KEY, "REST": Case("REST", f"{TRACKS}&track_id=eq.<N>", maximum=3503)}
    with bench.daemon(database) as daemon:
        daemon.wait_ready()
        target = Target(daemon.port, daemon.process.pid, HEADERS)
        for count in CLIENTS:
            loads = {name: bench.median(case, target, count) for name, case in cases.items()}
            rate[count] = {name: load.per_second for name, load in loads.items()}
            latency[count] = {
                f"{name}, {share}": getattr(load, field)
                for name, load in loads.items()
                for share, field in (("half", "p50"), ("99 %", "p99"))
            }
    return rate, latency


def draw(file: Path, plot: Mapping[int, Point], labels: tuple[str, str, str]) -> None:
    """Draw a plot. ``labels`` are its title, the growing quantity, and the unit."""
    from matplotlib import pyplot, rcParams  # noqa: PLC0415 - an extra

    rcParams["svg.fonttype"] = "none"
    rcParams["svg.hashsalt"] = "dataapi"
    title, grows, unit = labels
    figure, axes = pyplot.subplots(figsize=(6, 3.6))
    names = list(next(iter(plot.values())))
    for name in names:
        axes.plot(list(plot), [point[name] for point in plot.values()], marker="o", label=name)
    if 0 not in plot:
        axes.set_xscale("log")
    axes.set_xticks(list(plot), [f"{count:,}" for count in plot])
    axes.minorticks_off()
    values = [value for point in plot.values() for value in point.values()]
    if max(values) > 10 * min(values):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set(title=title, xlabel=grows, ylabel=unit)
    axes.grid(visible=True, alpha=0.3)
    if len(names) > 1:
        axes.legend()
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure how the cost of a request grows.")
    parser.add_argument("--seconds", type=int, default=3, help="seconds per round (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds per point (default: 3)")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "docs" / "performance", help="folder to which plots are written"
    )
    options = parser.parse_args(words)
    options.output.mkdir(parents=True, exist_ok=True)
    # One transaction creates thousands of tables.
    server = Server(settings={"max_locks_per_transaction": "256"})
    try:
        server.create()
        with tempfile.TemporaryDirectory() as name:
            bench = Bench(server, Path(name), options.seconds, options.rounds)
            database = server.create_chinook()
            database.execute(SETUP)
            plots = measure(bench, database, options.output)
    finally:
        server.remove()
    (options.output / "growth.json").write_text(json.dumps(plots, indent=1) + "\n", "utf-8")
    return 0


def measure(bench: Bench, database: Database, folder: Path) -> dict[str, Any]:
    """Measure and plot everything and return the results by plot."""
    drawn: dict[str, Any] = {}

    def show(name: str, plot: Plot, title: str, grows: str, unit: str) -> None:
        draw(folder / f"{name}.svg", plot, (title, grows, unit))
        drawn[name] = plot
        sys.stdout.write(f"{name}: {json.dumps(plot)}\n")
        sys.stdout.flush()

    time_of = "us of processor time"
    show("rows", rows(bench, database), "A page of rows", "rows", time_of)
    rate, latency = connections(bench, database)
    show("connections", rate, "By primary key: requests a second", "connections", "requests/s")
    show("latency", latency, "By primary key: latency", "connections", "ms")
    cost, memory = roles(bench, database)
    show("roles", cost, "By primary key, as many roles in turn", "roles", time_of)
    show("roles-memory", memory, "Memory with as many roles in use", "roles", "MiB")
    cost, first, memory = tables(bench, database)
    show("tables", cost, "By primary key, with other tables", "tables", time_of)
    show("first-answer", first, "From process start to the first answer", "tables", "s")
    show("memory", memory, "Memory after the first answer", "tables", "MiB")
    return drawn


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
