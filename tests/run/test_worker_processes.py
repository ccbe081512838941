"""Worker processes share sockets. They are replaced, drained, and ended together with their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon import PATIENCE, QUICK, SECRET_KEY, SLOW, TWISTD, Answer, Daemon, environment, wait_for
from support.processes import is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Database

READY_WORKERS = "dataapi_workers"
STUCK = "dataapi_workers_stuck"
RESTARTS = "dataapi_worker_restarts_total"
REQUESTS = 'dataapi_requests_total{area="graphql",code="",method="POST",route="/graphql/v1",status="200"}'


@pytest.fixture(scope="module")
def daemon(served: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("workers")
    with Daemon(folder, served.uri, "--workers", "2", settings={"log-level": "info"}) as running:
        running.wait_ready()
        yield running


def test_metrics_of_workers_are_added_up(daemon: Daemon) -> None:
    before = daemon.metric(REQUESTS)
    for _ in range(10):
        assert daemon.graphql(QUICK).status == 200
    assert daemon.metric(REQUESTS) == before + 10
    assert daemon.metric(READY_WORKERS) == 2
    assert daemon.metric('dataapi_pool_size{project="abcdefghijklmnopqrst"}') == 20
    assert daemon.admin("GET", "/ready").json["workers"] == 2


def test_every_worker_reports_all_workers_to_the_console(daemon: Daemon) -> None:
    def workers() -> Any:
        response = daemon.request("GET", "/console/data/health", headers={"apikey": SECRET_KEY})
        assert response.status == 200, response.body
        return response.json["workers"]

    wait_for(lambda: workers() and workers()["serving"] == [1, 2], "both workers")
    assert (workers()["configured"], workers()["stuck"], workers()["own"] in (1, 2)) == (2, [], True)


def test_simultaneous_connections_are_spread_over_the_workers(daemon: Daemon) -> None:
    before = len(daemon.lines)
    opened = [HTTPConnection("127.0.0.1", daemon.port, PATIENCE) for _ in range(32)]
    for connection in opened:
        connection.connect()
    for number, connection in enumerate(opened):
        connection.request("GET", f"/rest/v1/spread_{number}")
        connection.getresponse().read()
    wait_for(lambda: len(requests_of(daemon, before)) == 32, "the log lines")
    for connection in opened:
        connection.close()
    counts = Counter(line["worker"] for line in requests_of(daemon, before))
    assert min(counts[1], counts[2]) >= 8


def requests_of(daemon: Daemon, first: int) -> list[dict[str, Any]]:
    """Return the log lines of requests with the prefix ``spread_``, beginning with line ``first``."""
    return [line for line in daemon.lines[first:] if "/rest/v1/spread_" in str(line.get("path"))]


def test_reload_request_reloads_all_workers(daemon: Daemon) -> None:
    loads = 'dataapi_catalog_loads_total{outcome="loaded",project="abcdefghijklmnopqrst"}'
    before = daemon.metric(loads)
    assert daemon.admin("POST", "/reload").status == 200
    assert daemon.metric(loads) == before + 2


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_signal_reloads_every_worker(daemon: Daemon, number: signal.Signals) -> None:
    loads = 'dataapi_catalog_loads_total{outcome="loaded",project="abcdefghijklmnopqrst"}'
    before, children = daemon.metric(loads), daemon.children
    for child in children:
        os.kill(child, number)
    daemon.process.send_signal(number)
    wait_for(lambda: daemon.metric(loads) == before + 2, "both reloads")
    assert daemon.children == children


def test_log_lines_contain_worker_number_and_request_id(daemon: Daemon) -> None:
    daemon.graphql(QUICK, **{"X-Request-Id": "worker-test-1"})
    found = wait_for(
        lambda: [line for line in daemon.lines if line.get("request_id") == "worker-test-1"], "the line"
    )
    assert found[0]["worker"] in (1, 2)


def test_killed_worker_is_replaced_while_the_other_serves(daemon: Daemon) -> None:
    restarts = daemon.metric(RESTARTS)
    handled = daemon.metric(REQUESTS)
    victim, other = daemon.children
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: daemon.metric(RESTARTS) == restarts + 1, "the restart")
    wait_for(lambda: daemon.metric(READY_WORKERS) == 2, "the new worker")
    daemon.wait_ready()
    assert other in daemon.children
    assert victim not in daemon.children
    assert len(daemon.children) == 2
    for _ in range(6):
        assert daemon.graphql(QUICK).status == 200
    assert daemon.metric(REQUESTS) == handled + 6
    assert any(line["level"] == "error" and "ended" in line["message"] for line in daemon.lines)


def test_stopped_worker_is_reported_and_replaced(daemon: Daemon) -> None:
    victim, other = daemon.children
    restarts = daemon.metric(RESTARTS)
    os.kill(victim, signal.SIGSTOP)
    try:
        wait_for(lambda: daemon.admin("GET", "/ready").json["stuck_workers"], "the worker's number")
        ready = daemon.admin("GET", "/ready")
        assert (ready.status, ready.json["workers"]) == (200, 1)
        assert daemon.admin("GET", "/live").status == 200
        assert daemon.metric(STUCK) == 1
        wait_for(lambda: daemon.metric(RESTARTS) == restarts + 1, "the restart")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)
    wait_for(lambda: daemon.admin("GET", "/ready").json["workers"] == 2, "the new worker")
    assert daemon.admin("GET", "/ready").json["stuck_workers"] == []
    assert other in daemon.children
    assert victim not in daemon.children
    assert daemon.graphql(QUICK).status == 200


def test_worker_killed_during_startup_is_restarted(served: Database, tmp_path: Path) -> None:
    with Daemon(tmp_path, served.uri, "--workers", "2") as daemon:
        victim = wait_for(lambda: daemon.children, "a worker")[0]
        os.kill(victim, signal.SIGKILL)
        daemon.wait_ready()
        wait_for(lambda: daemon.admin("GET", "/ready").json["workers"] == 2, "both workers")
        assert victim not in daemon.children
        assert daemon.metric(RESTARTS) == 1
        assert daemon.stop() == 0


def test_sigterm_drains_every_worker(served: Database, tmp_path: Path) -> None:
    with Daemon(tmp_path, served.uri, "--workers", "2") as daemon:
        daemon.wait_ready()
        responses: list[Answer] = []
        threads = [threading.Thread(target=lambda: responses.append(daemon.graphql(SLOW))) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_for(lambda: daemon.metric("dataapi_requests_in_flight") == 4, "the requests in flight")
        children = daemon.children
        assert daemon.stop() == 0
        for thread in threads:
            thread.join(PATIENCE)
        assert [response.status for response in responses] == [200] * 4
        assert not any(is_alive(pid) for pid in children)


def test_workers_end_with_their_parent(served: Database, tmp_path: Path) -> None:
    with Daemon(tmp_path, served.uri, "--workers", "2") as daemon:
        daemon.wait_ready()
        children = daemon.children
        assert len(children) == 2
        daemon.process.kill()
        daemon.process.wait()
        wait_for(lambda: not any(is_alive(pid) for pid in children), "the workers' end")
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", daemon.port))


def over_unix(path: Path) -> bytes:
    """Send a request over a Unix socket and return the status line."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE)
        client.connect(str(path))
        client.sendall(b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return client.recv(4096).partition(b"\r\n")[0]


def test_unix_socket_survives_workers_and_is_removed_at_shutdown(served: Database, tmp_path: Path) -> None:
    path = tmp_path / "api"
    with Daemon(tmp_path, served.uri, "--workers", "2", "--listen", f"unix:{path}") as daemon:
        daemon.wait_ready()
        assert over_unix(path).startswith(b"HTTP/1.1 404")
        os.kill(daemon.children[0], signal.SIGTERM)
        wait_for(lambda: daemon.metric(RESTARTS) == 1, "the restart")
        assert over_unix(path).startswith(b"HTTP/1.1 404")
        assert daemon.stop() == 0
        assert not path.exists()


ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES="http")
os.execv(sys.argv[2], sys.argv[2:])
"""


def activate(daemon: Daemon, listening: socket.socket) -> Daemon:
    """Start a daemon with a bound socket, as systemd does."""
    listening.set_inheritable(True)
    descriptor = listening.fileno()
    command = [TWISTD, "-n", "--pidfile=", "dataapi", "--config", str(daemon.config)]
    with daemon.output.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", ACTIVATE, str(descriptor), *command],
            cwd=daemon.folder, env=environment(), stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, pass_fds=[descriptor],
        )  # fmt: skip
    daemon.adopt(process)
    return daemon


@pytest.mark.parametrize("workers", ["1", "2"])
def test_daemon_serves_sockets_of_the_service_manager(served: Database, tmp_path: Path, workers: str) -> None:
    settings = {"listen": "systemd:domain=INET:name=http", "workers": workers}
    daemon = Daemon(tmp_path, served.uri, settings=settings)
    with socket.create_server(("127.0.0.1", daemon.port)) as listening, activate(daemon, listening):
        daemon.wait_ready()
        assert daemon.graphql(QUICK).status == 200
        assert daemon.stop() == 0
        # New clients are not refused. They wait for the next daemon.
        socket.create_connection(("127.0.0.1", daemon.port), timeout=PATIENCE).close()


def test_socket_path_of_the_service_manager_is_not_removed(served: Database, tmp_path: Path) -> None:
    path = tmp_path / "api"
    daemon = Daemon(tmp_path, served.uri, settings={"listen": "systemd:domain=UNIX:name=http"})
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with activate(daemon, listening):
            daemon.wait_ready()
            assert over_unix(path).startswith(b"HTTP/1.1 404")
            assert daemon.stop() == 0
        assert path.exists()
