"""The daemon as an operator meets it: it starts, answers, reloads, drains, and says what is wrong."""

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
    patched,
    wait_for,
)
from support.outages import frozen
from support.ports import free_port
from support.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Database

SLOW_ANSWER = {"data": {"noteCollection": {"edges": [{"node": {"slow": 1}}]}}}
PASSWORD = "correct-horse-battery"


@pytest.fixture(scope="module")
def daemon(served: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Give a running daemon that logs every request."""
    uri = served.uri.replace("authenticator@", f"authenticator:{PASSWORD}@")
    with Daemon(
        tmp_path_factory.mktemp("daemon"), uri, settings={"log-level": "info"}, forks=False
    ) as running:
        running.wait_ready()
        yield running


def in_background(daemon: Daemon, query: str) -> tuple[threading.Thread, list[Answer]]:
    """Send a query from another thread."""
    answers: list[Answer] = []

    def send() -> None:
        with contextlib.suppress(ConnectionError, HTTPException):
            answers.append(daemon.graphql(query))

    thread = threading.Thread(target=send)
    thread.start()
    return thread, answers


def test_it_is_live_and_ready_and_says_of_what(daemon: Daemon) -> None:
    """``/live`` and ``/ready`` say 200, the latter with each project's database and catalog."""
    assert daemon.admin("GET", "/live").status == 200
    ready = daemon.admin("GET", "/ready")
    assert ready.status == 200
    [project] = ready.json["projects"]
    assert project["ref"] == "abcdefghijklmnopqrst"
    assert project["database_available"] is True
    assert project["generation"] >= 1
    assert project["problems"] == []


def test_a_health_check_asks_whether_it_is_ready(daemon: Daemon, tmp_path: Path) -> None:
    """``dataapi ready`` exits with 0 while requests can be answered, with 69 when nobody answers."""
    checked = subprocess.run(
        [*DATAAPI, "ready", "--config", str(daemon.config)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    assert json.loads(checked.stdout)["projects"][0]["database_available"] is True
    away = tmp_path / "away.ini"
    port = str(daemon.admin_port)
    away.write_text(daemon.config.read_text().replace(port, str(free_port())))
    checked = subprocess.run(
        [*DATAAPI, "ready", "--config", str(away)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (os.EX_UNAVAILABLE, "")
    assert "does not respond" in checked.stderr


def test_versions_are_those_that_are_installed_and_that_serve(daemon: Daemon) -> None:
    """As PostgreSQL's view of extensions has them; by the admin listener and by both commands."""
    row = daemon.admin("GET", "/version").json
    assert row.keys() == {"name", "default_version", "installed_version", "comment"}
    version = row["default_version"]
    assert row["installed_version"] == version
    assert daemon.metric(f'dataapi_build_info{{version="{version}"}}') == 1
    assert daemon.lines[0]["message"] == f"dataapi {version} starts"

    def printed(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert json.loads(printed(*DATAAPI, "version", "--config", str(daemon.config))) == row
    assert json.loads(printed(*DATAAPI, "version", "--config", "/nowhere"))["installed_version"] is None
    assert printed(*DATAAPI, "--version") == printed(TWISTD, "dataapi", "--version") == f"dataapi {version}\n"


def test_a_role_that_requests_cannot_assume_is_reported_at_the_start(
    served: Database, tmp_path: Path
) -> None:
    """Each request would be refused for it, so the log and ``/ready`` say what to put right."""
    told = "requests run as nobody_here, but the login role of db-uri is not a member of that role"
    with Daemon(tmp_path, served.uri, project={"db-anon-role": "nobody_here"}) as daemon:
        daemon.wait_ready()
        assert daemon.admin("GET", "/ready").json["projects"][0]["problems"] == [told]
        [line] = [line for line in daemon.lines if told in line["message"]]
        assert (line["level"], line["project"]) == ("error", "abcdefghijklmnopqrst")


def test_other_paths_and_methods_of_the_admin_listener_are_refused(daemon: Daemon) -> None:
    """An unknown admin path is 404; a wrong method is 405 and says which is right."""
    assert daemon.admin("GET", "/graphql/v1").status == 404
    refused = daemon.admin("GET", "/reload")
    assert (refused.status, refused.headers["Allow"]) == (405, "POST")
    refused = daemon.admin("DELETE", "/ready")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")


def test_metrics_count_requests_and_show_the_pool(daemon: Daemon) -> None:
    sample = 'dataapi_requests_total{area="graphql",code="",method="POST",route="/graphql/v1",status="200"}'
    before = daemon.metric(sample)
    assert daemon.graphql(QUICK).json == {"data": {"noteCollection": {"edges": [{"node": {"id": 1}}]}}}
    assert daemon.metric(sample) == before + 1
    assert daemon.metric('dataapi_pool_size{project="abcdefghijklmnopqrst"}') == 10
    assert daemon.metric('dataapi_database_available{project="abcdefghijklmnopqrst"}') == 1
    assert daemon.metric('dataapi_request_duration_seconds_count{area="graphql"}') >= 1


def test_reload_answers_when_the_new_catalog_serves(daemon: Daemon) -> None:
    before = daemon.admin("GET", "/ready").json["projects"][0]["generation"]
    reloaded = daemon.admin("POST", "/reload")
    assert reloaded.status == 200
    generation = reloaded.json["generations"]["abcdefghijklmnopqrst"]
    assert generation > before
    assert daemon.admin("GET", "/ready").json["projects"][0]["generation"] >= generation


def test_what_it_holds_for_clients_is_bounded(served: Database, tmp_path: Path) -> None:
    """Beyond ``max-bodies`` and ``max-connections`` requests are refused, and the admin listener answers."""
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

        def begin_with_leave(head: str, begun: bytes) -> None:
            """Send a part of a body once the head is accepted, so that it is this body that has the room."""
            connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=PATIENCE)
            opened.enter_context(connection).sendall(
                head.replace("Host", "Expect: 100-continue\r\nHost").encode()
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
            connection.sendall(begun)

        head = f"POST /rest/v1/note HTTP/1.1\r\nHost: x\r\napikey: {KEY}\r\nContent-Length: 99000\r\n\r\n"
        body = " " * 98_000
        begin_with_leave(head, body.encode())
        wait_for(
            lambda: daemon.request("POST", "/rest/v1/note", body, {"apikey": KEY}).status == 503,
            "a body that is too much",
        )
        assert daemon.graphql(QUICK).status == 200
        opened.close()
        lock = opened.enter_context(contextlib.closing(psycopg2.connect(served.admin_uri)))
        lock.cursor().execute("lock table note")
        read = f"GET /rest/v1/note HTTP/1.1\r\nHost: x\r\napikey: {KEY}\r\n\r\n"
        begin(read.encode())
        begin(read.encode())
        wait_for(lambda: daemon.metric("dataapi_requests_in_flight") == 2, "two requests")
        wait_for(lambda: daemon.graphql(QUICK).status == 503, "a connection that is too many")
        assert daemon.graphql(QUICK).json["errors"][0]["extensions"]["code"] == "TOO_MANY_CONNECTIONS"
        assert daemon.admin("GET", "/live").status == 200


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_a_reloading_signal_reads_the_catalog_again(daemon: Daemon, number: signal.Signals) -> None:
    """SIGHUP and PostgREST's two signals make the daemon read the catalog again, and it goes on running."""
    before = daemon.admin("GET", "/ready").json["projects"][0]["generation"]
    daemon.process.send_signal(number)
    wait_for(
        lambda: daemon.admin("GET", "/ready").json["projects"][0]["generation"] > before, "a new generation"
    )
    told = f"reloaded on {number.name}"
    wait_for(lambda: any(line["message"] == told for line in daemon.lines), "the line of the reload")


def test_log_lines_are_json_with_the_requests_id(daemon: Daemon) -> None:
    """Every line is a JSON object; a request's line carries the id that the client got."""
    answer = daemon.graphql(QUICK, **{"X-Request-Id": "from-the-client-1"})
    assert answer.headers["X-Request-Id"] == "from-the-client-1"
    [line] = wait_for(
        lambda: [line for line in daemon.lines if line.get("request_id") == "from-the-client-1"], "its line"
    )
    assert (line["method"], line["path"], line["status"]) == ("POST", "/graphql/v1", 200)
    assert all({"ts", "level", "logger", "message"} <= set(line) for line in daemon.lines)


def test_log_lines_name_client_project_role_operation_and_error(daemon: Daemon) -> None:
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


def test_log_lines_say_where_the_time_went_and_what_postgresql_refused(daemon: Daemon) -> None:
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


@pytest.mark.skipif(Path(SOCKET).exists(), reason="this machine's own journal would get the records")
def test_the_journal_gets_priorities(served: Database, tmp_path: Path) -> None:
    """Each line begins with its priority where ``JOURNAL_STREAM`` names what the daemon writes to."""
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


def test_a_taken_port_ends_the_start_loudly(served: Database, tmp_path: Path) -> None:
    """A port that is taken makes the daemon exit with 69 and one clear sentence, without a traceback."""
    daemon = Daemon(tmp_path, served.uri, forks=False)
    with socket.socket() as taker:
        taker.bind(("127.0.0.1", daemon.port))
        taker.listen()
        daemon.start()
        assert daemon.process.wait(PATIENCE) == os.EX_UNAVAILABLE
    [line] = map(json.loads, daemon.text.splitlines())
    assert line["level"] == "critical"
    assert f"cannot listen on tcp:{daemon.port}" in line["message"]
    assert "in use" in line["message"]
    assert daemon.text.count("cannot listen on") == 1


def test_a_taken_port_is_reported_when_a_detached_daemon_starts(served: Database, tmp_path: Path) -> None:
    """Without ``-n`` the command itself fails, although the daemon would run detached."""
    daemon = Daemon(tmp_path, served.uri)
    with socket.socket() as taker:
        taker.bind(("127.0.0.1", daemon.admin_port))
        taker.listen()
        finished = subprocess.run(
            [TWISTD, "dataapi", "--config", str(daemon.config)],
            cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    assert finished.returncode == 1
    assert "cannot listen on tcp" in finished.stdout + finished.stderr
    assert (
        "cannot listen on tcp" in json.loads((tmp_path / "twistd.log").read_text().splitlines()[0])["message"]
    )


def test_all_mistakes_of_a_configuration_are_printed(served: Database, tmp_path: Path) -> None:
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


@pytest.mark.direct("a pooler keeps its clients while the server is away")
def test_a_database_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """A daemon starts without its database, answers 503 with Retry-After, and serves once it is there."""
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
            answer = wait_for(lambda: _try_graphql(daemon), "the public listener")
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) >= 1
            _assert_reload_says_why(daemon, server)
            server.start()
            daemon.wait_ready()
            assert daemon.graphql(QUICK).status == 200
            server.stop()
            _assert_reload_says_why(daemon, server)
            assert daemon.stop() == 0
    finally:
        server.remove()


def _assert_reload_says_why(daemon: Daemon, server: Server) -> None:
    """Check that a reload names host, port and reason, as ``/ready`` does."""
    reloaded = daemon.admin("POST", "/reload")
    assert reloaded.status == 503
    [reason] = reloaded.json["failures"].values()
    assert f'at "127.0.0.1", port {server.port} failed: ' in reason
    assert reason in [one["reason"] for one in daemon.admin("GET", "/ready").json["projects"]]


def test_a_database_that_does_not_answer_holds_nothing_up(tmp_path: Path) -> None:
    """Where connecting takes for ever, requests are refused with 503, and the daemon can be stopped."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/d"
        with Daemon(tmp_path, uri) as daemon:
            answer = wait_for(lambda: _try_graphql(daemon), "the public listener")
            assert answer.status == 503
            assert daemon.stop() == 0


def _try_graphql(daemon: Daemon) -> Answer | None:
    try:
        return daemon.graphql(QUICK)
    except OSError:
        return None


def test_termination_finishes_requests_in_flight(served: Database, tmp_path: Path) -> None:
    """SIGTERM: no new connection, the running request is answered, the exit status is 0."""
    with Daemon(tmp_path, served.uri, forks=False) as daemon:
        daemon.wait_ready()
        thread, answers = in_background(daemon, SLOW)
        wait_for(lambda: daemon.metric("dataapi_requests_in_flight") == 1, "the request in flight")
        daemon.process.send_signal(signal.SIGTERM)
        wait_for(lambda: _refuses(daemon.port), "refused connections")
        draining = daemon.admin("GET", "/ready")
        assert (draining.status, draining.json["draining"]) == (503, True)
        thread.join(PATIENCE)
        assert [answer.json for answer in answers] == [SLOW_ANSWER]
        assert daemon.process.wait(PATIENCE) == 0
        assert daemon.lines[-1]["message"] == "stopped"


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_second_signal_does_not_wait(served: Database, tmp_path: Path) -> None:
    with Daemon(tmp_path, served.uri) as daemon:
        daemon.wait_ready()
        thread, answers = in_background(daemon, SLOW)
        wait_for(lambda: daemon.metric("dataapi_requests_in_flight") == 1, "the request in flight")
        daemon.process.send_signal(signal.SIGTERM)
        wait_for(lambda: _refuses(daemon.port), "the beginning of the end")
        assert daemon.stop() == 1
        thread.join(PATIENCE)
        assert answers == []


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "GET /nothing HTTP/1.1\r\nHost",
        f"POST /rest/v1/note HTTP/1.1\r\nHost: x\r\napikey: {KEY}\r\nContent-Length: 9\r\n\r\n[",
        "BAD\r\n\r\n",
    ],
    ids=["idle", "half a head", "half a body", "a refusal"],
)
def test_clients_without_a_complete_request_do_not_hold_up_the_end(
    served: Database, tmp_path: Path, sent: str
) -> None:
    """Their connections are closed when the daemon stops, though they stay open at the client's end."""
    patient = patched(tmp_path, f"import dataapi.service.process as it; it.GRACE = {FOR_EVER}")
    with Daemon(tmp_path, served.uri, environ=patient) as daemon:
        daemon.wait_ready()
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=PATIENCE) as client:
            client.sendall(f"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n{sent}".encode())
            assert client.recv(1000).startswith(b"HTTP/1.1 404 ")
            assert daemon.stop() == 0


def test_quiet_levels_and_text_lines(served: Database, tmp_path: Path) -> None:
    """With ``log-level = warn`` only refused requests are logged; ``log-format = text`` is for eyes."""
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


def test_a_detached_daemon_logs_to_its_file_and_cleans_up(served: Database, tmp_path: Path) -> None:
    """Without ``-n`` the command returns at once, the log is a file, and SIGTERM leaves no pid file."""
    daemon = Daemon(tmp_path, served.uri, settings={"log-level": "info", "workers": "2"})
    started = subprocess.run(
        [TWISTD, "--pidfile=pid", "--logfile=log", "dataapi", "--config", str(daemon.config)],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert (started.returncode, started.stdout, started.stderr) == (0, "", "")
    pid = int((tmp_path / "pid").read_text())
    try:
        wait_for(lambda: (answer := daemon.try_admin("GET", "/ready")) and answer.status == 200, "/ready")
        assert daemon.graphql(QUICK).status == 200
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not (tmp_path / "pid").exists(), "the end")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert any(line["logger"] == "dataapi.requests" and "worker" in line for line in lines)
    assert lines[-1]["message"] == "stopped"


def test_a_frozen_server_is_noticed_and_heals_by_itself(own_server: Server, tmp_path: Path) -> None:
    """It closes no connection: ``/ready`` says so, requests are answered, and then all is well again."""
    database = own_server.create_database(SCHEMA)
    with Daemon(tmp_path, f"{database.uri}?connect_timeout=2", project={"request-timeout": "8"}) as daemon:
        daemon.wait_ready()
        comes_back = frozen(own_server)
        try:
            assert daemon.graphql(QUICK).status in (503, 504)
            answer = daemon.admin("GET", "/ready")
            assert answer.status == 503
            assert "the database cannot be reached" in answer.json["projects"][0]["reason"]
        finally:
            comes_back()
        daemon.wait_ready()
        wait_for(lambda: daemon.graphql(QUICK).status == 200, "an answer")


def test_a_migrated_configuration_serves_as_postgrest_did(served: Database, tmp_path: Path) -> None:
    """Its own file is refused with the command that translates it, and the translation needs no API key."""
    theirs = tmp_path / "postgrest.conf"
    daemon = Daemon(tmp_path, served.uri)
    theirs.write_text(
        f'db-uri = "{served.uri}"\ndb-anon-role = "anon" # nobody\nserver-host = "127.0.0.1"\n'
        f"server-port = {daemon.port}\nadmin-server-port = {daemon.admin_port}\nmax-rows = 1\n"
    )
    refused = subprocess.run(
        [TWISTD, "-n", "--pidfile=", "dataapi", "--config", str(theirs)],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == os.EX_CONFIG
    assert f"translate it with dataapi migrate-config {theirs}" in refused.stderr
    ours = daemon.config
    ours.unlink()
    command = [*DATAAPI, "migrate-config", str(theirs), "--output", str(ours)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "max-rows: deprecated; replaced by db-max-rows\n")
    assert ours.stat().st_mode & 0o777 == 0o600
    again = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert again.returncode == os.EX_CANTCREAT
    assert "File exists" in again.stderr
    with daemon:
        daemon.wait_ready()
        answer = daemon.request("GET", "/rest/v1/note?select=id")
        assert (answer.status, answer.json) == (200, [{"id": 1}])
        assert daemon.metric("pgrst_db_pool_max") == 10
        assert daemon.metric('pgrst_schema_cache_loads_total{status="SUCCESS"}') >= 1
        assert daemon.metric("pgrst_schema_cache_query_time_seconds") > 0
