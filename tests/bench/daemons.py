"""Delivery rate of several daemons on one database, and the time until a daemon takes over from another.

Run as ``PYTHONPATH=daemon:tests python tests/bench/daemons.py [SECONDS] [ROUNDS]``. It starts a PostgreSQL
server, daemons with twistd, and a receiver in another process.

- waiting: the receiver responds after 50 ms. Each process makes at most 14 concurrent attempts, about 280 per
  second. This shows whether processes share a queue without blocking each other.
- busy: the receiver responds immediately. The machine, which runs all programs, limits the rate: see the
  columns with processor time.
- taking over: seconds from the end of a daemon until another daemon repeats its attempt. The daemon is
  killed, or disconnected from PostgreSQL. The lease is ten minutes.

The columns are the numbers of daemons and workers, the median of deliveries per second, the ratio to the
first line, the smallest fraction of deliveries that a daemon made, and the numbers of processors that
daemons, PostgreSQL and the receiver used.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.load import processor_time
from dataapi.service.webhooks import WATCH_AFTER
from support.daemon import wait_for
from support.installation import Installation, kill
from support.postgres import Server
from support.recorder import Behaviour, Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.daemon import Daemon

SETUPS = ((1, 1), (2, 1), (2, 2))
"""Number of daemons, and of workers per daemon."""

DELAY = 0.05
AT_ONCE = 16
LEASE = 600
SUCCESS = 'dataapi_webhooks_attempts_total{outcome="success"}'
_RECEIVER = Path(__file__).with_name("receiver.py")


@contextmanager
def receiving(seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Run a receiver that responds after a delay."""
    process = subprocess.Popen(
        [sys.executable, str(_RECEIVER), str(seconds)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def deliver(installation: Installation, count: int) -> float:
    """Publish events and return the seconds until all are delivered."""
    began = time.perf_counter()
    installation.publish_many(count)
    wait_for(lambda: installation.due == 0, "the deliveries", 600)
    seconds = time.perf_counter() - began
    # Later rounds reuse the idempotency keys.
    installation.database.execute("delete from webhooks.idempotency")
    return seconds


def rates(server: Server, delay: float, maximum: str, per_second: int, seconds: float, rounds: int) -> None:
    """Print the delivery rates of all setups.

    :param maximum: maximum number of concurrent attempts per process.
    :param per_second: expected deliveries per second and process.
    """
    first = 0.0
    for daemons, workers in SETUPS:
        with TemporaryDirectory() as folder, receiving(delay) as receiver, Recorder() as recorder:
            settings = {"timeout": "20", "concurrency": maximum, "concurrency-per-host": maximum}
            installation = Installation(Path(folder), server.create_database(), recorder, settings=settings)
            assert receiver.stdout is not None
            installation.endpoints([f"http://127.0.0.1:{receiver.stdout.readline().strip()}/hook"])
            try:
                started = [installation.daemon("--workers", str(workers)) for _ in range(daemons)]
                deliver(installation, per_second)
                pids = [[daemon.process.pid for daemon in started], [server.pid], [receiver.pid]]
                found, shares, used = [], [], [0.0] * len(pids)
                for _ in range(rounds):
                    count = round(per_second * seconds * (daemons * workers if delay else 1))
                    made = [daemon.metric(SUCCESS) for daemon in started]
                    before = [sum(map(processor_time, group)) for group in pids]
                    seconds_taken = deliver(installation, count)
                    after = [sum(map(processor_time, group)) for group in pids]
                    found.append(count / seconds_taken)
                    made = [daemon.metric(SUCCESS) - past for daemon, past in zip(started, made, strict=True)]
                    shares.append(min(made) / sum(made))
                    used = [one + (end - begin) / seconds_taken / rounds
                            for one, begin, end in zip(used, before, after, strict=True)]  # fmt: skip
            finally:
                installation.end()
        rate = statistics.median(found)
        first = first or rate
        print(  # noqa: T201
            f"{daemons} x {workers} {rate:12.0f} /s {rate / first:8.2f} {min(shares):10.0%}   ",
            " ".join(f"{one:8.2f}" for one in used),
        )


def taken_over(server: Server, *, cut_off: bool) -> float:
    """Return the seconds until a daemon takes over the work of another daemon that has ended.

    :param cut_off: whether the daemon is frozen and PostgreSQL ends its connections.
    """
    with TemporaryDirectory() as folder, Recorder() as recorder:
        installation = Installation(
            Path(folder), server.create_database(), recorder, settings={"timeout": str(LEASE)}
        )
        try:
            installation.endpoint()
            recorder.behave(Behaviour.HOLD)
            dying = installation.daemon()
            installation.publish(1)
            wait_for(lambda: recorder.requests, "the request")
            theirs = installation.sessions
            installation.daemon()
            # Wait until the other daemon monitors the sessions of lease holders.
            time.sleep(WATCH_AFTER + 1)
            began = time.perf_counter()
            _end(dying, server, theirs, cut_off=cut_off)
            wait_for(lambda: len(recorder.requests) == 2, "the second request")
            return time.perf_counter() - began
        finally:
            recorder.behave(Behaviour.TAKE)
            installation.end()


def _end(daemon: Daemon, server: Server, sessions: list[int], *, cut_off: bool) -> None:
    if cut_off:
        daemon.process.send_signal(signal.SIGSTOP)
        server.admin.execute("select pg_terminate_backend(pid) from unnest(%s) as pid", (sessions,))
    else:
        kill(daemon)


def main(seconds: float, rounds: int) -> None:
    server = Server(settings={"max_connections": "300"})
    head = (
        f"{'':5}{'deliveries':>16}{'times':>8}{'least':>11}    {'daemons':>8} {'postgres':>8} {'receiver':>8}"
    )
    try:
        server.create()
        print(f"waiting\n{head}")  # noqa: T201
        rates(server, DELAY, str(AT_ONCE), round(AT_ONCE / DELAY), seconds, rounds)
        print(f"busy\n{head}")  # noqa: T201
        rates(server, 0.0, "256", 1000, seconds, rounds)
        for title, cut_off in (("killed", False), ("cut off", True)):
            times = sorted(taken_over(server, cut_off=cut_off) for _ in range(5))
            print(f"{title:8} taken over after {times[0]:.1f} to {times[-1]:.1f} s")  # noqa: T201
    finally:
        server.remove()


if __name__ == "__main__":
    main(float((sys.argv[1:] or ["5"])[0]), int((sys.argv[2:] or ["3"])[0]))
