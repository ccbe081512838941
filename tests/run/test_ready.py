"""``dataapi ready``: a table for terminals, JSON for programs, and an exit status for health checks."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from support.daemon import DATAAPI, Daemon, environment, execute, wait_for
from support.terminal import at_terminal

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess

    from support.postgres import Database


def test_ready_prints_a_line_per_project_at_a_terminal(served: Database, tmp_path: Path) -> None:
    with Daemon(tmp_path, served.uri) as daemon:
        daemon.wait_ready()
        ready = [*DATAAPI, "ready", "--config", str(daemon.config)]
        status, shown = at_terminal(ready, cwd=tmp_path, environ=environment({"NO_COLOR": "1"}))
        assert status == os.EX_OK
        head, project = shown.splitlines()
        assert head.split() == ["PROJECT", "DATABASE", "CATALOG", "STATE"]
        ref, database, _, state = project.split()
        assert (ref, database, state) == ("abcdefghijklmnopqrst", "available", "ready")
        unknown = [*ready, "--project", "z" * 20]
        done = execute(unknown, tmp_path)
        assert done.returncode == os.EX_USAGE
        assert done.stderr == f"the daemon has no project {'z' * 20}\n"


def test_ready_exits_with_ex_tempfail_if_the_daemon_is_not_ready(tmp_path: Path) -> None:
    with Daemon(tmp_path, "postgresql://nobody@127.0.0.1:1/none") as daemon:
        daemon.wait_for_admin()
        ready = [*DATAAPI, "ready", "--config", str(daemon.config)]
        done = execute(ready, tmp_path)
    assert done.returncode == os.EX_TEMPFAIL
    assert done.stderr.startswith("the daemon is not ready")
    assert json.loads(done.stdout)["ready"] is False


def test_commands_use_a_unix_socket_despite_proxy_variables(served: Database, tmp_path: Path) -> None:
    socket = f"unix:{tmp_path}/admin.sock:mode=600"
    with Daemon(tmp_path, served.uri, settings={"admin-listen": socket}) as daemon:
        environ = environment({"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"})

        def run(command: str) -> CompletedProcess[str]:
            return execute([*DATAAPI, command, "--config", str(daemon.config)], tmp_path, environ)

        wait_for(lambda: run("ready").returncode == os.EX_OK, "the daemon")
        assert (run("reload").returncode, run("reload").stderr) == (os.EX_OK, "")
        assert json.loads(run("version").stdout)["installed_version"] is not None
        daemon.stop()
        gone = run("ready")
    assert gone.returncode == os.EX_UNAVAILABLE
    assert gone.stderr.startswith(f"the daemon does not respond at unix:{tmp_path}/admin.sock (admin-listen)")
