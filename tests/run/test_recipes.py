"""The recipes and the chapter Logout are run on the tutorial's database, with nginx, or as a CI job."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
import sys
from http.client import HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dataapi.testing import free_port
from support import documents
from support.daemon import Daemon, environment
from support.proxies import proxied

if TYPE_CHECKING:
    from support.postgres import Server
    from support.story import Story

RECIPES = documents.read("docs/guides/recipes.md")


def shown(title: str, language: str) -> list[str]:
    """Return a chapter's code blocks in a language."""
    return [
        block.text
        for block in documents.blocks(documents.chapter(RECIPES, title))
        if block.language == language
    ]


@pytest.mark.direct("the documents connect to PostgreSQL itself")
def test_recipes_print_the_documented_output(signed_in: Story) -> None:
    signed_in.read(RECIPES)


@pytest.mark.direct("the documents connect to PostgreSQL itself")
def test_token_is_rejected_after_logout(signed_in: Story) -> None:
    signed_in.read(documents.chapter(documents.read("docs/guides/sign-in.md"), "Logout"))


def test_nginx_limits_requests_per_caller(tmp_path: Path) -> None:
    """The limit applies per token, or per address for requests without a token."""
    if shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("needs nginx")
    zone, limit = shown("Rate limits", "nginx")
    assert "rate=20r/s" in zone
    # Even a slow machine can exceed this rate.
    zone = zone.replace("rate=20r/s", "rate=1r/m")
    changed = ("server {", f"{zone}\nserver {{"), ("location / {", f"location / {{\n{limit}")
    with (
        Daemon(tmp_path, "postgresql://nobody@127.0.0.1:1/none") as daemon,
        proxied("nginx", tmp_path, [daemon, daemon], *changed) as proxy,
    ):
        daemon.wait_for_admin()
        connection = HTTPSConnection("127.0.0.1", proxy.port, context=ssl._create_unverified_context())

        def status(token: str) -> int:
            connection.request("GET", "/rest/v1/note", headers={"Authorization": token} if token else {})
            response = connection.getresponse()
            response.read()
            return response.status

        # Requests without an API key never reach the database.
        for token in ("", "Bearer one"):
            assert [status(token) for _ in range(42)] == [401] * 41 + [429]
        assert status("Bearer another") == 401
        connection.close()


@pytest.mark.direct("the workflow connects to PostgreSQL itself")
def test_ci_workflow_tests_policies_and_the_api(cluster: Server, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    [workflow] = map(yaml.safe_load, shown("Continuous integration", "yaml"))
    job = workflow["jobs"]["api"]
    assert set(job["services"]["postgres"]) == {"image", "env", "ports", "options"}
    installs, *steps = [step["run"] for step in job["steps"] if "run" in step]
    assert installs == "pip install dataapi-daemon"
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "schema.sql").write_text(
        "create table task (id int primary key); grant select on task to anon; insert into task values (1);"
    )
    (tests / "policies.sql").write_text(
        "begin; set local role anon; do $$ begin assert (select count(*) from task) = 1; end $$; rollback;"
    )
    (tests / "api.sh").write_text(
        "set -e; KEY=$(cat dataapi.secrets/publishable-keys); touch tested\n"
        'curl --fail -s "http://127.0.0.1:$PORT/rest/v1/task" -H "apikey: $KEY"\n'
    )
    database = cluster.create_database("select 1")
    environ = environment({"ADMIN": database.admin_uri, "PORT": str(free_port())})
    environ["DATAAPI_DATAAPI_ADMIN_LISTEN"] = f"tcp:{free_port()}:interface=127.0.0.1"
    programs = [Path(sys.executable).parent, Path(cluster.program("psql")).parent]
    environ["PATH"] = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    try:
        for script in steps[:-1]:
            words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
            done = subprocess.run(
                words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (script, done.stdout, done.stderr)
        assert done.stdout.endswith('[{"id":1}]')
        assert (tmp_path / "tested").exists()
    finally:
        if (pid := tmp_path / "daemon.pid").exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)
    assert "cat daemon.log" in steps[-1]
