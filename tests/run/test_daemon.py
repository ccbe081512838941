"""A daemon's start, health checks, reload, shutdown and error messages."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from dataapi.telemetry.journal import SOCKET
from dataapi.testing import free_port
from support import documents
from support.clocks import FOR_EVER
from support.daemon import (
    DATAAPI,
    JWT_SECRET,
    KEY,
    PATIENCE,
    QUICK,
    SCHEMA,
    SECRET_KEY,
    SLOW,
    TWISTD,
    Answer,
    Daemon,
    environment,
    execute,
    patched,
    wait_for,
)
from support.outages import frozen
from support.postgres import Server
from support.start import NEEDED_LATER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Database

SLOW_RESPONSE = {"data": {"noteCollection": {"edges": [{"node": {"slow": 1}}]}}}
PASSWORD = "correct-horse-battery"


@pytest.fixture(scope="module")
def daemon(served: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Yield a running daemon that logs every request."""
    uri = served.uri.replace("authenticator@", f"authenticator:{PASSWORD}@")
    with Daemon(
        tmp_path_factory.mktemp("daemon"), uri, settings={"log-level": "info"}, forks=False
    ) as running:
        running.wait_ready()
        yield running


def send_in_background(daemon: Daemon, query: str) -> tuple[threading.Thread, list[Answer]]:
    responses: list[Answer] = []

    def send() -> None:
        with contextlib.suppress(ConnectionError, HTTPException):
            responses.append(daemon.graphql(query))

    thread = threading.Thread(target=send)
    thread.start()
    return thread, responses


def test_live_and_ready_endpoints_return_200(daemon: Daemon) -> None:
    assert daemon.admin("GET", "/live").status == 200
    ready = daemon.admin("GET", "/ready")
    assert ready.status == 200
    [project] = ready.json["projects"]
    assert project["ref"] == "abcdefghijklmnopqrst"
    assert project["database_available"] is True
    assert project["generation"] >= 1
    assert project["problems"] == []


def test_ready_command_reports_state_by_exit_status(daemon: Daemon, tmp_path: Path) -> None:
    checked = execute([*DATAAPI, "ready", "--config", str(daemon.config)], tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert json.loads(checked.stdout)["projects"][0]["database_available"] is True
    away = tmp_path / "away.ini"
    port = str(daemon.admin_port)
    away.write_text(daemon.config.read_text().replace(port, str(free_port())))
    checked = execute([*DATAAPI, "ready", "--config", str(away)], tmp_path)
    assert (checked.returncode, checked.stdout) == (os.EX_UNAVAILABLE, "")
    assert "does not respond" in checked.stderr


def test_version_is_the_same_in_commands_metrics_and_admin_listener(daemon: Daemon) -> None:
    row = daemon.admin("GET", "/version").json
    assert row.keys() == {"name", "default_version", "installed_version", "comment"}
    version = row["default_version"]
    assert row["installed_version"] == version
    assert daemon.metric(f'dataapi_build_info{{version="{version}"}}') == 1
    assert daemon.lines[0]["message"] == f"dataapi {version} starts"

    def printed(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    running, missing = (
        execute([*DATAAPI, "version", "--config", file], daemon.folder).stdout
        for file in (str(daemon.config), "/nowhere")
    )
    assert json.loads(running) == row
    assert json.loads(missing)["installed_version"] is None
    assert printed(*DATAAPI, "--version") == printed(TWISTD, "dataapi", "--version") == f"dataapi {version}\n"


def test_missing_role_membership_is_reported_at_startup(served: Database, tmp_path: Path) -> None:
    """Requests with this role would fail, so the log and ``/ready`` explain what to fix."""
    message = "requests run as nobody_here, but the login role of db-uri is not a member of that role"
    with Daemon(tmp_path, served.uri, project={"db-anon-role": "nobody_here"}) as daemon:
        daemon.wait_ready()
        assert daemon.admin("GET", "/ready").json["projects"][0]["problems"] == [message]
        [line] = [line for line in daemon.lines if message in line["message"]]
        assert (line["level"], line["project"]) == ("error", "abcdefghijklmnopqrst")


def test_admin_listener_rejects_unknown_paths_and_methods(daemon: Daemon) -> None:
    assert daemon.admin("GET", "/graphql/v1").status == 404
    refused = daemon.admin("GET", "/reload")
    assert (refused.status, refused.headers["Allow"]) == (405, "POST")
    refused = daemon.admin("DELETE", "/ready")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")


def test_metrics_count_requests_and_report_pool_size(daemon: Daemon) -> None:
    sample = 'dataapi_requests_total{area="graphql",code="",method="POST",route="/graphql/v1",status="200"}'
    before = daemon.metric(sample)
    assert daemon.graphql(QUICK).json == {"data": {"noteCollection": {"edges": [{"node": {"id": 1}}]}}}
    assert daemon.metric(sample) == before + 1
    assert daemon.metric('dataapi_pool_size{project="abcdefghijklmnopqrst"}') == 10
    assert daemon.metric('dataapi_database_available{project="abcdefghijklmnopqrst"}') == 1
    assert daemon.metric('dataapi_request_duration_seconds_count{area="graphql"}') >= 1


def test_reload_responds_when_the_new_catalog_is_in_use(daemon: Daemon) -> None:
    before = daemon.admin("GET", "/ready").json["projects"][0]["generation"]
    reloaded = daemon.admin("POST", "/reload")
    assert reloaded.status == 200
    generation = reloaded.json["generations"]["abcdefghijklmnopqrst"]
    assert generation > before
    assert daemon.admin("GET", "/ready").json["projects"][0]["generation"] >= generation


def test_memory_and_connections_are_limited(served: Database, tmp_path: Path) -> None:
    limits = {"max-bodies": "100000", "max-connections": "2"}
    project = {"max-body": "100000"}
    with (
        Daemon(tmp_path, served.uri, settings=limits, project=project) as daemon,
        contextlib.ExitStack() as opened,
    ):
        daemon.wait_ready()

        def begin(begun: bytes) -> None:
            connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=PATIENCE)
            opened.enter_context(connection).sendall(begun)

        def begin_after_continue(head: str, begun: bytes) -> None:
            """Send part of a body after the daemon has accepted the head and reserved memory for the body."""
            connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=PATIENCE)
            opened.enter_context(connection).sendall(
                head.replace("Host", "Expect: 100-continue\r\nHost").encode()
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
            connection.sendall(begun)

        head = f"POST /rest/v1/note HTTP/1.1\r\nHost: x\r\napikey: {KEY}\r\nContent-Length: 99000\r\n\r\n"
        body = " " * 98_000
        begin_after_continue(head, body.encode())
        wait_for(
            lambda: daemon.request("POST", "/rest/v1/note", body, {"apikey": KEY}).status == 503,
            "the second body to be rejected",
        )
        assert daemon.graphql(QUICK).status == 200
        opened.close()
        lock = opened.enter_context(contextlib.closing(psycopg2.connect(served.admin_uri)))
        lock.cursor().execute("lock table note")
        read = f"GET /rest/v1/note HTTP/1.1\r\nHost: x\r\napikey: {KEY}\r\n\r\n"

        def both_wait() -> bool:
            if daemon.metric("dataapi_requests_in_flight") == 2:
                return True
            begin(read.encode())  # is rejected if an earlier connection is still being closed
            return False

        wait_for(both_wait, "two requests")
        wait_for(lambda: daemon.graphql(QUICK).status == 503, "a connection above the limit")
        assert daemon.graphql(QUICK).json["errors"][0]["extensions"]["code"] == "TOO_MANY_CONNECTIONS"
        assert daemon.admin("GET", "/live").status == 200


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_signal_reloads_the_catalog(daemon: Daemon, number: signal.Signals) -> None:
    before = daemon.admin("GET", "/ready").json["projects"][0]["generation"]
    daemon.process.send_signal(number)
    wait_for(
        lambda: daemon.admin("GET", "/ready").json["projects"][0]["generation"] > before, "a new generation"
    )
    message = f"reloaded on {number.name}"
    wait_for(lambda: any(line["message"] == message for line in daemon.lines), "the line of the reload")


def test_log_lines_are_json_with_the_request_id(daemon: Daemon) -> None:
    response = daemon.graphql(QUICK, **{"X-Request-Id": "from-the-client-1"})
    assert response.headers["X-Request-Id"] == "from-the-client-1"
    [line] = wait_for(
        lambda: [line for line in daemon.lines if line.get("request_id") == "from-the-client-1"], "its line"
    )
    assert (line["method"], line["path"], line["status"]) == ("POST", "/graphql/v1", 200)
    assert all({"ts", "level", "logger", "message"} <= set(line) for line in daemon.lines)


def test_log_lines_contain_client_project_role_operation_and_error(daemon: Daemon) -> None:
    before = len(daemon.lines)
    body = json.dumps({"query": "query Notes { noteCollection { nonsense } }", "operationName": "Notes"})
    headers = {"apikey": KEY, "X-Forwarded-For": "192.0.2.7, 198.51.100.4"}
    assert daemon.request("POST", "/graphql/v1", body, headers).status == 200
    assert daemon.request("GET", "/rest/v1/nowhere", headers=headers).status == 404

    def logged() -> list[dict[str, Any]]:
        return [line for line in daemon.lines[before:] if "client" in line]

    wait_for(lambda: len(logged()) == 2, "the lines")
    lines = logged()
    common = {"client": "198.51.100.4", "project": "abcdefghijklmnopqrst", "role": "anon", "level": "warn"}
    assert all(common.items() <= line.items() for line in lines)
    assert [(line.get("operation"), line["code"]) for line in lines] == [
        ("Notes", "GRAPHQL_VALIDATION"),
        (None, "PGRST205"),
    ]


def test_log_lines_contain_database_time_and_sqlstate(daemon: Daemon) -> None:
    refused = daemon.request(
        "GET", "/rest/v1/note?id=eq.x", headers={"apikey": KEY, "X-Request-Id": "refused"}
    )
    assert refused.status == 400
    [line] = wait_for(
        lambda: [line for line in daemon.lines if line.get("request_id") == "refused"], "its line"
    )
    assert (line["code"], line["sqlstate"]) == ("22P02", "22P02")
    assert 0 < line["database_milliseconds"] < line["milliseconds"]
    count = daemon.metric('dataapi_request_database_seconds_count{area="rest"}')
    assert count >= 1
    assert daemon.metric('dataapi_request_queue_seconds_count{area="rest"}') == count


def test_no_secret_is_logged(daemon: Daemon) -> None:
    daemon.graphql(QUICK, key=SECRET_KEY, Authorization="Bearer not-a-token-at-all")
    daemon.request("GET", "/rest/v1/note?apikey=key-in-the-query")
    daemon.request("GET", "/rest/v1/note", headers={"apikey": "wrong-key-in-the-header"})
    text = daemon.text
    secrets = ("not-a-token-at-all", "key-in-the-query", "wrong-key-in-the-header")
    for secret in (PASSWORD, JWT_SECRET, SECRET_KEY, KEY, *secrets):
        assert secret not in text


@pytest.mark.skipif(Path(SOCKET).exists(), reason="this machine's own journal would receive the records")
def test_log_lines_for_the_journal_begin_with_a_priority(served: Database, tmp_path: Path) -> None:
    """The service manager sets ``JOURNAL_STREAM`` to the device and inode number of standard error."""
    output = tmp_path / "output"
    output.touch()
    stream = f"{output.stat().st_dev}:{output.stat().st_ino}"
    settings = {"workers": "2", "log-level": "warn"}
    daemon = Daemon(tmp_path, served.uri, settings=settings, environ={"JOURNAL_STREAM": stream})
    with daemon:
        daemon.wait_ready()
        assert daemon.request("GET", "/rest/v1/nowhere", headers={"apikey": KEY}).status == 404
        wait_for(lambda: '"status":404' in daemon.text, "the line of the request")
    lines = [(line[:3], json.loads(line[3:])["level"]) for line in daemon.text.splitlines()]
    assert set(lines) <= {("<6>", "info"), ("<4>", "warn")}
    assert ("<4>", "warn") in lines


def test_port_in_use_ends_startup_with_one_error(served: Database, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, served.uri, forks=False)
    with socket.socket() as other:
        other.bind(("127.0.0.1", daemon.port))
        other.listen()
        daemon.start()
        assert daemon.process.wait(PATIENCE) == os.EX_UNAVAILABLE
    [line] = map(json.loads, daemon.text.splitlines())
    assert line["level"] == "critical"
    assert f"cannot listen on tcp:{daemon.port}" in line["message"]
    assert "in use" in line["message"]
    assert daemon.text.count("cannot listen on") == 1


def test_port_in_use_fails_the_command_of_a_detached_daemon(served: Database, tmp_path: Path) -> None:
    """The ``twistd`` command binds its ports before it detaches the daemon."""
    daemon = Daemon(tmp_path, served.uri)
    with socket.socket() as other:
        other.bind(("127.0.0.1", daemon.admin_port))
        other.listen()
        finished = subprocess.run(
            [TWISTD, "dataapi", "--config", str(daemon.config)],
            cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    assert finished.returncode == 1
    assert "cannot listen on tcp" in finished.stdout + finished.stderr
    assert (
        "cannot listen on tcp" in json.loads((tmp_path / "twistd.log").read_text().splitlines()[0])["message"]
    )


def test_all_configuration_errors_are_printed(served: Database, tmp_path: Path) -> None:
    daemon = Daemon(
        tmp_path,
        served.uri,
        settings={"workers": "many", "lisen": "x"},
        project={"db-pool": "-1"},
        forks=False,
    )
    daemon.start()
    assert daemon.process.wait(PATIENCE) == os.EX_CONFIG
    assert f"RestartPreventExitStatus={os.EX_CONFIG}\n" in documents.read("etc/dataapi.service")
    for key in ("workers", "lisen", "db-pool"):
        assert key in daemon.text
    assert "Traceback" not in daemon.text


@pytest.mark.direct("a pooler holds its clients while the server is down")
def test_daemon_starts_while_the_database_is_down(tmp_path: Path) -> None:
    server = Server()
    try:
        server.create()
        uri = server.create_database(SCHEMA).uri
        server.stop()
        with Daemon(tmp_path, uri) as daemon:
            daemon.wait_for_admin()
            ready = wait_for(lambda: daemon.try_admin("GET", "/ready"), "an answer")
            assert ready.status == 503
            assert ready.json["projects"][0]["reason"]
            response = wait_for(lambda: _try_graphql(daemon), "the public listener")
            assert response.status == 503
            assert int(response.headers["Retry-After"]) >= 1
            _assert_reload_reports_reason(daemon, server)
            server.start()
            daemon.wait_ready()
            assert daemon.graphql(QUICK).status == 200
            server.stop()
            _assert_reload_reports_reason(daemon, server)
            assert daemon.stop() == 0
    finally:
        server.remove()


def _assert_reload_reports_reason(daemon: Daemon, server: Server) -> None:
    """Check that a reload reports the same reason as ``/ready``, with host and port."""
    reloaded = daemon.admin("POST", "/reload")
    assert reloaded.status == 503
    [reason] = reloaded.json["failures"].values()
    assert f'at "127.0.0.1", port {server.port} failed: ' in reason
    assert reason in [one["reason"] for one in daemon.admin("GET", "/ready").json["projects"]]


def test_unresponsive_database_does_not_block_requests_or_shutdown(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/d"
        with Daemon(tmp_path, uri) as daemon:
            response = wait_for(lambda: _try_graphql(daemon), "the public listener")
            assert response.status == 503
            assert daemon.stop() == 0


def _try_graphql(daemon: Daemon) -> Answer | None:
    try:
        return daemon.graphql(QUICK)
    except OSError:
        return None


def test_sigterm_finishes_requests_in_flight(served: Database, tmp_path: Path) -> None:
    with Daemon(tmp_path, served.uri, forks=False) as daemon:
        daemon.wait_ready()
        thread, responses = send_in_background(daemon, SLOW)
        wait_for(lambda: daemon.metric("dataapi_requests_in_flight") == 1, "the request in flight")
        daemon.process.send_signal(signal.SIGTERM)
        wait_for(lambda: _refuses(daemon.port), "refused connections")
        draining = daemon.admin("GET", "/ready")
        assert (draining.status, draining.json["draining"]) == (503, True)
        thread.join(PATIENCE)
        assert [response.json for response in responses] == [SLOW_RESPONSE]
        assert daemon.process.wait(PATIENCE) == 0
        assert daemon.lines[-1]["message"] == "stopped"


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
    except ConnectionRefusedError:
        return True
    return False


def test_second_sigterm_stops_immediately(served: Database, tmp_path: Path) -> None:
    with Daemon(tmp_path, served.uri) as daemon:
        daemon.wait_ready()
        thread, responses = send_in_background(daemon, SLOW)
        wait_for(lambda: daemon.metric("dataapi_requests_in_flight") == 1, "the request in flight")
        daemon.process.send_signal(signal.SIGTERM)
        wait_for(lambda: _refuses(daemon.port), "refused connections")
        assert daemon.stop() == 1
        thread.join(PATIENCE)
        assert responses == []


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "GET /nothing HTTP/1.1\r\nHost",
        f"POST /rest/v1/note HTTP/1.1\r\nHost: x\r\napikey: {KEY}\r\nContent-Length: 9\r\n\r\n[",
        "BAD\r\n\r\n",
    ],
    ids=["idle", "partial head", "partial body", "rejected"],
)
def test_clients_without_a_complete_request_do_not_delay_shutdown(
    served: Database, tmp_path: Path, sent: str
) -> None:
    patient = patched(tmp_path, f"import dataapi.service.process as it; it.GRACE = {FOR_EVER}")
    with Daemon(tmp_path, served.uri, environ=patient) as daemon:
        daemon.wait_ready()
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=PATIENCE) as client:
            client.sendall(f"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n{sent}".encode())
            assert client.recv(1000).startswith(b"HTTP/1.1 404 ")
            assert daemon.stop() == 0


LISTING = """
import atexit, pathlib, sys
atexit.register(lambda: pathlib.Path("modules").write_text(" ".join(sys.modules)))
"""


def test_daemon_imports_only_what_its_requests_need(served: Database, tmp_path: Path) -> None:
    with Daemon(tmp_path, served.uri, environ=patched(tmp_path, LISTING)) as daemon:
        wait_for(lambda: "listening on" in daemon.text, "the start")
        assert daemon.request("GET", "/rest/v1/note", headers={"apikey": KEY}).status == 200
        daemon.stop()
    imported = set((tmp_path / "modules").read_text().split())
    assert set(NEEDED_LATER) & imported == {"dataapi.rest.handler"}


def test_log_level_warn_logs_only_rejected_requests(served: Database, tmp_path: Path) -> None:
    settings = {"log-level": "warn", "log-format": "text"}
    with Daemon(tmp_path, served.uri, settings=settings) as daemon:
        daemon.wait_ready()
        assert daemon.graphql(QUICK).status == 200
        assert daemon.graphql(QUICK, key="wrong").status == 401
        lines = wait_for(
            lambda: [line for line in daemon.text.splitlines() if "dataapi.requests" in line], "a line"
        )
        assert len(lines) == 1
        assert "WARN dataapi.requests POST /graphql/v1 401 request_id=" in lines[0]


def test_detached_daemon_logs_to_a_file_and_removes_its_pid_file(served: Database, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, served.uri, settings={"log-level": "info", "workers": "2"})
    started = subprocess.run(
        [TWISTD, "--pidfile=pid", "--logfile=log", "dataapi", "--config", str(daemon.config)],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert (started.returncode, started.stdout, started.stderr) == (0, "", "")
    pid = int((tmp_path / "pid").read_text())
    try:
        wait_for(lambda: (response := daemon.try_admin("GET", "/ready")) and response.status == 200, "/ready")
        assert daemon.graphql(QUICK).status == 200
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not (tmp_path / "pid").exists(), "the end")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert any(line["logger"] == "dataapi.requests" and "worker" in line for line in lines)
    assert lines[-1]["message"] == "stopped"


def test_daemon_recovers_from_a_frozen_server(own_server: Server, tmp_path: Path) -> None:
    """A frozen PostgreSQL server keeps its connections open."""
    database = own_server.create_database(SCHEMA)
    with Daemon(tmp_path, f"{database.uri}?connect_timeout=2", project={"request-timeout": "8"}) as daemon:
        daemon.wait_ready()
        resume = frozen(own_server)
        try:
            assert daemon.graphql(QUICK).status in (503, 504)
            response = daemon.admin("GET", "/ready")
            assert response.status == 503
            assert "the database cannot be reached" in response.json["projects"][0]["reason"]
        finally:
            resume()
        daemon.wait_ready()
        wait_for(lambda: daemon.graphql(QUICK).status == 200, "an answer")


def test_migrated_postgrest_configuration_serves_requests(served: Database, tmp_path: Path) -> None:
    theirs = tmp_path / "postgrest.conf"
    daemon = Daemon(tmp_path, served.uri)
    theirs.write_text(
        f'db-uri = "{served.uri}"\ndb-anon-role = "anon" # nobody\nserver-host = "127.0.0.1"\n'
        f"server-port = {daemon.port}\nadmin-server-port = {daemon.admin_port}\nmax-rows = 1\n"
    )
    refused = execute([TWISTD, "-n", "--pidfile=", "dataapi", "--config", str(theirs)], tmp_path)
    assert refused.returncode == os.EX_CONFIG
    assert f"translate it with dataapi migrate-config {theirs}" in refused.stderr
    ours = daemon.config
    ours.unlink()
    command = [*DATAAPI, "migrate-config", str(theirs), "--output", str(ours)]
    done = execute(command, tmp_path)
    assert (done.returncode, done.stderr) == (0, "max-rows: deprecated; replaced by db-max-rows\n")
    assert ours.stat().st_mode & 0o777 == 0o600
    again = execute(command, tmp_path)
    assert again.returncode == os.EX_CANTCREAT
    assert "File exists" in again.stderr
    with daemon:
        daemon.wait_ready()
        response = daemon.request("GET", "/rest/v1/note?select=id")
        assert (response.status, response.json) == (200, [{"id": 1}])
        assert daemon.metric("pgrst_db_pool_max") == 10
        assert daemon.metric('pgrst_schema_cache_loads_total{status="SUCCESS"}') >= 1
        assert daemon.metric("pgrst_schema_cache_query_time_seconds") > 0
