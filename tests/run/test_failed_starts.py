"""Failed starts and commands print one sentence to standard error and exit with a specific status."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from support.daemon import DATAAPI, TWISTD, Daemon, environment, execute, patched
from support.terminal import at_terminal

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
GOOD = f"[project]\ndb-uri = {NOWHERE}\nrequire-api-key = no\n"
FILES = {
    "good.ini": GOOD,
    "wrong.ini": GOOD + "db-pool = many\n",
    "port.ini": f"[dataapi]\nlisten = tcp:1:interface=203.0.113.1\n{GOOD}",
    "tls.ini": f"[dataapi]\nlisten = ssl:0:privateKey=missing.pem:interface=127.0.0.1\n{GOOD}",
    "socket.ini": f"[dataapi]\nlisten = unix:/proc/nowhere/socket\n{GOOD}",
    "theirs.conf": "db-uri = 'x\n=",
}
FAILURES = [
    ("twistd", "--wrokers 2", os.EX_USAGE, "option --wrokers not recognized"),
    ("twistd", "stray", os.EX_USAGE, "unexpected argument: stray"),
    ("twistd", "--config nowhere.ini", os.EX_CONFIG, "nowhere.ini: cannot be read: No such file"),
    ("twistd", "--config wrong.ini", os.EX_CONFIG, "wrong.ini: [project] db-pool = 'many': expected"),
    ("twistd", "", os.EX_CONFIG, "no file found: tried dataapi.ini and /etc/dataapi/dataapi.ini"),
    ("twistd", "--config port.ini", os.EX_UNAVAILABLE, "cannot listen on tcp:1:interface=203.0.113.1"),
    ("twistd", "--config tls.ini", os.EX_UNAVAILABLE, ": No such file or directory: "),
    (
        "twistd",
        "--config socket.ini",
        os.EX_UNAVAILABLE,
        "cannot listen on unix:/proc/nowhere/socket: No such",
    ),
    ("twistd", "--demo --embedded /proc/nowhere", os.EX_UNAVAILABLE, "the embedded PostgreSQL cannot start"),
    ("dataapi", "tokn", os.EX_USAGE, "dataapi: argument COMMAND: invalid choice: 'tokn'"),
    ("dataapi", "token list --when", os.EX_USAGE, "dataapi: unrecognized arguments: --when"),
    ("dataapi", "check-config --config wrong.ini", os.EX_CONFIG, "wrong.ini: [project] db-pool = 'many'"),
    ("dataapi", "check-config --config good.ini", os.EX_UNAVAILABLE, "the database cannot be checked: "),
    ("dataapi", "ready --config good.ini", os.EX_UNAVAILABLE, "http://127.0.0.1:8001 (admin-listen): "),
    ("dataapi", "ready --config nowhere.ini", os.EX_CONFIG, "nowhere.ini: cannot be read: No such file"),
    ("dataapi", "reload --config good.ini", os.EX_UNAVAILABLE, "(admin-listen): "),
    ("dataapi", "keys --config wrong.ini", os.EX_CONFIG, "wrong.ini: [project] db-pool = 'many'"),
    ("dataapi", "schema --role anon --config good.ini", os.EX_UNAVAILABLE, "the database cannot be read: "),
    ("dataapi", "token list --config good.ini", os.EX_CONFIG, "the configuration has no section [webhooks]"),
    ("dataapi", f"init --yes {NOWHERE}", os.EX_UNAVAILABLE, "init: nothing was changed: "),
    ("dataapi", "init --print nonsense", os.EX_USAGE, "nonsense is not a URI such as postgresql://"),
    ("dataapi", "migrate-config nowhere.conf", os.EX_NOINPUT, "nowhere.conf: cannot be read: No such file"),
    ("dataapi", "migrate-config theirs.conf", os.EX_DATAERR, "theirs.conf: "),
    (
        "dataapi",
        "migrate-config --output /proc/nowhere/x.ini",
        os.EX_CANTCREAT,
        "/proc/nowhere/x.ini cannot be written",
    ),
]
"""Program, arguments, exit status, and a part of the message."""
REFUSED = """
import errno, socket

class Socket(socket.socket):
    def bind(self, address):
        raise PermissionError(errno.EACCES, "Permission denied")

socket.socket = Socket
"""
"""Python code that makes binding any port fail."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def command(program: str, words: str) -> list[str]:
    start = [TWISTD, "--nodaemon", "--pidfile=", "dataapi"] if program == "twistd" else list(DATAAPI)
    return [*start, *words.split()]


@pytest.mark.parametrize(("program", "words", "status", "sentence"), FAILURES)
def test_failure_prints_one_sentence_on_standard_error(
    folder: Path, program: str, words: str, status: int, sentence: str
) -> None:
    done = execute(command(program, words), folder)
    assert done.returncode == status, done.stderr
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert "usage: " not in done.stdout


@pytest.mark.parametrize("words", ["--config nowhere.ini", "--config port.ini"])
def test_failure_is_the_last_line_at_a_terminal(folder: Path, words: str) -> None:
    status, shown = at_terminal(command("twistd", words), cwd=folder, environ=environment())
    last = shown.splitlines()[-1]
    assert status in (os.EX_CONFIG, os.EX_UNAVAILABLE)
    assert not last.startswith("{")
    assert "No such file" in last or last.startswith("dataapi: cannot listen on tcp:1")


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--pidfile=/proc/nowhere/x.pid", "the PID file /proc/nowhere/x.pid cannot be written"),
        ("--logfile=/proc/nowhere/x.log", "the log file /proc/nowhere/x.log cannot be written"),
    ],
)
def test_unwritable_pid_and_log_files_are_reported(folder: Path, option: str, sentence: str) -> None:
    words = [TWISTD, "--nodaemon", "--pidfile=", option, "dataapi", "--config", "good.ini"]
    done = execute(words, folder)
    assert (done.returncode, done.stdout) == (os.EX_CANTCREAT, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"dataapi: {sentence}")


def test_port_in_use_is_reported_on_standard_error_and_in_the_log(folder: Path) -> None:
    daemon = Daemon(folder, NOWHERE)
    with socket.socket() as other:
        other.bind(("127.0.0.1", daemon.port))
        other.listen()
        done = execute(command("twistd", f"--config {daemon.config}"), folder)
    assert done.returncode == os.EX_UNAVAILABLE
    [sentence] = done.stderr.splitlines()
    assert sentence.startswith(f"dataapi: cannot listen on tcp:{daemon.port}:interface=127.0.0.1: ")
    assert "Address already in use" in sentence
    assert done.stdout.count("cannot listen on") == 1


def test_privileged_port_exits_with_ex_noperm(folder: Path) -> None:
    """Service managers log the name of the exit status."""
    done = execute(command("twistd", "--config good.ini"), folder, environment(patched(folder, REFUSED)))
    assert done.returncode == os.EX_NOPERM, done.stderr
    assert "Permission denied" in done.stderr


def test_daemon_help_lists_options_and_signals(folder: Path) -> None:
    done = execute([TWISTD, "dataapi", "--help"], folder)
    assert done.returncode == 0
    assert {"--config=", "--workers=", "SIGTERM"} <= set(done.stdout.replace(";", "").split())
