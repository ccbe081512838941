"""The public Python API: docs/python.md runs, and mypy accepts a program that uses the whole API."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from socket import create_server
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from dataapi.testing import ConfigurationError, DaemonFailed, served
from support import documents
from support.daemon import environment

if TYPE_CHECKING:
    from support.postgres import Database

PAGE = documents.read("docs/python.md")
UNREACHABLE = "postgresql://nobody@127.0.0.1:1/none"


def test_documented_test_passes(database: Database, tmp_path: Path) -> None:
    test, table = documents.blocks(PAGE)
    database.execute(table.text)
    (tmp_path / "test_notes.py").write_text(test.text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_notes.py"]
    environ = environment({"TEST_DATABASE": database.uri})
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def public_names() -> dict[str, list[str]]:
    """Return the documented names of each public module, or all of the module's exported names."""
    modules = {}
    for line in documents.chapter(PAGE, "Public modules").splitlines():
        if match := re.match(r"\| `(dataapi[.\w]*)` \| ([^|:]*)", line):
            module = importlib.import_module(match[1])
            named = re.findall(r"`(\w+)`", match[2])
            exported = module.__all__ if named == ["__all__"] else named
            modules[match[1]] = exported
    return modules


def test_mypy_accepts_a_program_that_uses_the_public_names(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    [example, _] = documents.blocks(PAGE)
    imports = [f"from {name} import {', '.join(names)}" for name, names in public_names().items() if names]
    assert len(imports) > 4
    (tmp_path / "consumer.py").write_text("\n".join([*imports, example.text]))
    (tmp_path / "wrong.py").write_text("from dataapi.testing import served\n\nserved(1)\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, "consumer.py", "wrong.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    [problem, _] = done.stdout.splitlines()
    assert problem.startswith('wrong.py:3: error: Argument 1 to "served" has incompatible type "int"')


def test_settings_of_the_environment_do_not_apply(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAAPI_PROJECT_DB_URI", UNREACHABLE)
    with served(database.uri) as api, urlopen(f"{api.admin_url}/ready") as response:
        assert json.load(response)["ready"]
        assert "starts" in api.log
        assert api.headers()["apikey"].startswith("sb_publishable_")
        folder = Path(api._output).parent
    assert not folder.exists()


def test_daemon_that_does_not_become_ready_is_reported() -> None:
    with pytest.raises(DaemonFailed, match="is not ready"), served(UNREACHABLE, within=0):
        pass


def test_daemon_that_ends_is_reported_with_its_log() -> None:
    with create_server(("127.0.0.1", 0)) as taken:
        listen = {"dataapi": {"listen": f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1"}}
        with pytest.raises(DaemonFailed, match=r"(?s)ended.*in use"), served(UNREACHABLE, listen):
            pass


def test_invalid_key_is_reported_before_the_start() -> None:
    sections = {"project": {"db-pool": "many"}}
    with pytest.raises(ConfigurationError, match="db-pool = 'many'"), served(UNREACHABLE, sections):
        pass
