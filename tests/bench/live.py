"""Cost of live queries: memory, processor time, latency of changes, and their effect on other requests.

Run as ``PYTHONPATH=daemon:tests python tests/bench/live.py [SUBSCRIBERS] [COHORTS]``. It starts a PostgreSQL
server, a daemon with one worker, and clients in other processes.

- memory: memory of the daemon per subscriber.
- idle: processor time of the daemon and of PostgreSQL while nothing changes, including heartbeats.
- change: seconds from the commit of a change until each subscriber receives it. The change affects every
  cohort.
- unread: memory while clients do not read a large changing result, and while clients that read share such a
  result.
- fairness: seconds until one caller receives a change while another has 60 slow subscriptions.
- polls: PostgreSQL's processor time per poll of a cohort, compared with the same request without a
  subscription.
- requests: milliseconds of sequential requests by key, without subscribers, and while all cohorts change
  twice a second: medians and 99th percentiles of alternating rounds.
"""

from __future__ import annotations

import json
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.load import processor_time
from support.daemon import KEY, Daemon, wait_for
from support.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database

SCHEMA = """
create table item (id int primary key, changed float8 not null, name text not null);
insert into item select i, 0, 'item ' || i from generate_series(1, 1000) i;
grant select on item to anon;
"""
PROJECT = {"live-subscriptions-per-caller": "100000"}
SETTINGS = {"max-subscriptions": "100000"}
CHANGES = 10
IDLE = 30.0
ROUNDS = 3
REQUESTS = 1500
PEERS = 4
"""Number of client processes."""


def request_of(cohort: int) -> bytes:
    """Return the request that subscribers of a cohort send."""
    return (
        f"GET /rest/v1/item?select=changed,name&id=eq.{cohort} HTTP/1.1\r\nHost: x\r\napikey: {KEY}\r\n"
        "Accept: text/event-stream\r\n\r\n"
    ).encode()


def be_clients(port: int, count: int, cohorts: int) -> None:
    """Subscribe. For each line of input, print the arrival times of the next change.

    The first line of output is printed after all subscribers have received their first result.
    """
    selector = selectors.DefaultSelector()
    for number in range(count):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(request_of(number % cohorts + 1))
        data = b""
        while b"\n\n" not in data.partition(b"\r\n\r\n")[2]:
            data += client.recv(65536)
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ)
    print("subscribed", flush=True)  # noqa: T201
    for _ in sys.stdin:
        heard: dict[object, float] = {}
        while len(heard) < count:
            for key, _events in selector.select():
                data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                if b"snapshot" in data:
                    heard[key.fileobj] = time.time()
        print(json.dumps(sorted(heard.values())), flush=True)  # noqa: T201


class Clients:
    """Subscribers that run in other processes."""

    def __init__(self, daemon: Daemon, count: int, cohorts: int) -> None:
        each = -(-count // PEERS)
        numbers = [str(daemon.port), str(each), str(cohorts)]
        command = [sys.executable, __file__, "clients", *numbers]
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(PEERS)
        ]
        for process in self.processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "subscribed\n"

    def expect(self) -> None:
        """Make the subscribers record the arrival of the next change."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    def heard(self) -> list[float]:
        """Return the arrival times of the change at all subscribers."""
        times: list[float] = []
        for process in self.processes:
            assert process.stdout is not None
            times += json.loads(process.stdout.readline())
        return sorted(times)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@contextmanager
def served(database: Database) -> Iterator[Daemon]:
    with (
        TemporaryDirectory() as folder,
        Daemon(Path(folder), database.uri, settings=SETTINGS, project=PROJECT) as daemon,
    ):
        daemon.wait_ready()
        yield daemon


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def change(database: Database) -> float:
    """Change the result of every cohort and return the time of the commit."""
    database.execute("update item set changed = changed + 1")
    return time.time()


def percentile(values: list[float], share: float) -> float:
    """Return the percentile of the values that ``share`` defines as a fraction."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def subscribers(server: Server, count: int, cohorts: int) -> None:
    """Print the memory of subscribers, processor time while idle, and the latency of changes."""
    database = server.create_database(SCHEMA)
    with served(database) as daemon:
        for _ in range(200):  # exclude memory that the first requests allocate
            plain(daemon, 1)
        before = resident(daemon.process.pid)
        clients = Clients(daemon, count, cohorts)
        grown = resident(daemon.process.pid) - before
        print(f"{count} subscribers of {cohorts} cohorts: {grown / count / 1024:.1f} KiB each")  # noqa: T201
        time.sleep(3)
        used = processor_time(daemon.process.pid), processor_time(server.pid)
        began = time.time()
        time.sleep(IDLE)
        elapsed = time.time() - began
        daemons = (processor_time(daemon.process.pid) - used[0]) / elapsed
        servers = (processor_time(server.pid) - used[1]) / elapsed
        print(f"idle: {daemons:.2%} of a core by the daemon, {servers:.2%} by PostgreSQL")  # noqa: T201
        waits: list[float] = []
        for _ in range(CHANGES):
            clients.expect()
            committed = change(database)
            waits += [heard - committed for heard in clients.heard()]
            time.sleep(0.37)
        print(  # noqa: T201
            f"change: median {statistics.median(waits):.2f} s, p99 {percentile(waits, 0.99):.2f} s, "
            f"last {max(waits):.2f} s"
        )
        clients.end()


def opened(daemon: Daemon, target: str, headers: str = "") -> socket.socket:
    """Subscribe and read the response head. The subscription may be rejected."""
    client = socket.create_connection(("127.0.0.1", daemon.port))
    client.sendall(
        f"GET /rest/v1/{target} HTTP/1.1\r\nHost: x\r\napikey: {KEY}\r\n{headers}"
        "Accept: text/event-stream\r\n\r\n".encode()
    )
    client.recv(1024)
    return client


def unread(server: Server, size: int, count: int, *, read: bool) -> None:
    """Print the memory that a large changing result needs and the number of remaining streams."""
    database = server.create_database(SCHEMA)
    database.execute("update item set name = repeat('x', %s) where id = 1", (size,))
    with served(database) as daemon:
        plain(daemon, 2)
        before = most = resident(daemon.process.pid)
        clients = [opened(daemon, "item?select=changed,name&id=eq.1") for _ in range(count)]
        ended = threading.Event()
        readers = [threading.Thread(target=drained, args=(one, ended)) for one in clients if read]
        for reader in readers:
            reader.start()
        for _ in range(CHANGES):
            change(database)
            time.sleep(1.5)
            most = max(most, resident(daemon.process.pid))
        left = daemon.metric('dataapi_live_subscribers{project="abcdefghijklmnopqrst"}')
        ended.set()
        for client in clients:
            client.close()
        for reader in readers:
            reader.join()
    kind = "that read" if read else "that do not read"
    print(  # noqa: T201
        f"{count} clients {kind} {size / 1e6:.0f} MB, {CHANGES} changes: "
        f"{(most - before) / 2**20:.0f} MiB more at most, {left:.0f} streams left"
    )


def drained(client: socket.socket, ended: threading.Event) -> None:
    """Read from a socket until the stream or the measurement ends."""
    client.settimeout(0.5)
    while not ended.is_set():
        try:
            if not client.recv(1 << 20):
                return
        except TimeoutError:
            continue
        except OSError:
            return


def fairness(server: Server) -> None:
    """Print the latency of one caller's change while another caller has slow subscriptions."""
    database = server.create_database(SCHEMA)
    database.execute("""
        create table pause (seconds float8);
        insert into pause values (0);
        create view paused as select seconds, pg_sleep(seconds) is null as over from pause;
        grant select on paused to anon;
    """)
    with served(database) as daemon:
        for slow in (0, 60):
            database.execute("update pause set seconds = 0")
            others = [opened(daemon, f"paused?limit={number}") for number in range(1, slow + 1)]
            # The header from a trusted proxy makes this another caller.
            one = opened(daemon, "item?select=changed&id=eq.1", "X-Forwarded-For: 192.0.2.7\r\n")
            one.settimeout(60)
            one.recv(4096)
            database.execute("update pause set seconds = 0.5")
            waits = []
            for _ in range(CHANGES):
                committed = change(database)
                while b"data:" not in one.recv(4096):
                    pass
                waits.append(time.time() - committed)
            print(  # noqa: T201
                f"with {slow} subscriptions of half a second: a change reaches another caller after "
                f"{statistics.median(waits):.2f} s, at most {max(waits):.2f} s"
            )
            for client in (*others, one):
                client.close()


def polls(server: Server, cohorts: int = 1000) -> None:
    """Print PostgreSQL's processor time for polls and for the same requests."""
    database = server.create_database(SCHEMA)
    with served(database) as daemon:
        clients = Clients(daemon, cohorts, cohorts)
        outcomes = [f'dataapi_live_polls_total{{outcome="{one}",project="abcdefghijklmnopqrst"}}'
                    for one in ("changed", "unchanged")]  # fmt: skip
        time.sleep(3)
        found = {"polls": [], "requests": []}  # type: dict[str, list[float]]
        for _ in range(ROUNDS):
            used, made = processor_time(server.pid), sum(map(daemon.metric, outcomes))
            began = time.time()
            clients.expect()
            change(database)
            clients.heard()
            elapsed = time.time() - began
            time.sleep(1.5)
            made = sum(map(daemon.metric, outcomes)) - made
            found["polls"].append((processor_time(server.pid) - used) / made * 1e6)
            used = processor_time(server.pid)
            for number in range(1, cohorts + 1):
                plain(daemon, number)
            found["requests"].append((processor_time(server.pid) - used) / cohorts * 1e6)
        for name, values in found.items():
            print(f"{name}: {statistics.median(values):.0f} us of PostgreSQL each")  # noqa: T201
        print(f"{cohorts} cohorts that all change: {elapsed:.2f} s to the last subscriber")  # noqa: T201
        clients.end()


_connections: dict[int, HTTPConnection] = {}


def plain(daemon: Daemon, number: int) -> float:
    """Send a request by key and return its latency in milliseconds."""
    connection = _connections.setdefault(daemon.port, HTTPConnection("127.0.0.1", daemon.port))
    began = time.perf_counter()
    connection.request("GET", f"/rest/v1/item?select=name&id=eq.{number}", headers={"apikey": KEY})
    connection.getresponse().read()
    return (time.perf_counter() - began) * 1000


def print_latencies(server: Server, count: int, cohorts: int) -> None:
    """Print the latency of requests with and without subscribers."""
    found: dict[str, list[tuple[float, float]]] = {}
    database = server.create_database(SCHEMA)
    with served(database) as without, served(database) as daemon:
        clients = Clients(daemon, count, cohorts)
        for name, one in (("without", without), ("idle subscribers", daemon)) * ROUNDS:
            record(found, name, one)
        writer = subprocess.Popen([sys.executable, __file__, "writer", database.admin_uri])
        wait_for(
            lambda: (
                daemon.metric('dataapi_live_polls_total{outcome="changed",project="abcdefghijklmnopqrst"}')
                > 2 * cohorts
            ),
            "changes",
        )
        for name, one in (("without, while written", without), ("with changes", daemon)) * ROUNDS:
            record(found, name, one)
        writer.kill()
        writer.wait()
        clients.end()
    for name, values in found.items():
        median, p99 = (statistics.median(each) for each in zip(*values, strict=True))
        print(f"requests, {name}: median {median:.2f} ms, p99 {p99:.2f} ms")  # noqa: T201


def record(found: dict[str, list[tuple[float, float]]], name: str, daemon: Daemon) -> None:
    """Measure a round of requests and add its median and 99th percentile."""
    times = [plain(daemon, number % 1000 + 1) for number in range(REQUESTS)]
    found.setdefault(name, []).append((statistics.median(times), percentile(times, 0.99)))


def write(uri: str) -> None:
    """Change every row twice a second."""
    import psycopg2  # noqa: PLC0415

    connection = psycopg2.connect(uri)
    connection.autocommit = True
    with connection.cursor() as cursor:
        while True:
            cursor.execute("update item set changed = changed + 1")
            time.sleep(0.5)


def main() -> None:
    if sys.argv[1:2] == ["clients"]:
        be_clients(*map(int, sys.argv[2:]))
        return
    if sys.argv[1:2] == ["writer"]:
        write(sys.argv[2])
        return
    arguments = [int(number) for number in sys.argv[1:3]]
    count, cohorts = arguments + [10_000, 100][len(arguments) :]
    server = Server()
    server.create()
    try:
        unread(server, 20_000_000, 29, read=False)
        unread(server, 1_000_000, 100, read=False)
        unread(server, 1_000_000, 100, read=True)
        fairness(server)
        subscribers(server, count, cohorts)
        polls(server)
        print_latencies(server, 1000, cohorts)
    finally:
        server.remove()


if __name__ == "__main__":
    main()
