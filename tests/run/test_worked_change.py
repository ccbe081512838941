"""docs/contributing/worked-change.md: its diffs can be applied, and make its failing test pass."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import documents
from support.daemon import environment
from support.worked_change import steps

PAGE = "docs/contributing/worked-change.md"
COPIED = (
    *("daemon", "setup.cfg", "CHANGELOG.md", "docs/reference/rest.md", "tests/conftest.py", "tests/support"),
    *("tests/pg/conftest.py", "tests/pg/data", "tests/pg/rest/test_filters.py"),
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the files that the page changes or that their tests need."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for name in COPIED:
        source, target = documents.ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return tmp_path


def test_page_describes_a_change_that_works(tree: Path) -> None:
    outcomes = []
    for step in steps(PAGE):
        if step.kind == "diff":
            subprocess.run(["git", "apply", "-"], cwd=tree, input=step.text, text=True, check=True)
        elif step.kind == "sh" and step.text.startswith(".venv/bin/python"):
            command = [sys.executable, *shlex.split(step.text)[1:], "-p", "no:cacheprovider"]
            environ = environment({"PYTHONPATH": str(tree / "daemon")})
            done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, check=False)
            printed = done.stdout + done.stderr
            assert (done.returncode != 0) is bool(step.failures), printed
            # If the environment variable CI is set, pytest appends the error to the test's name.
            failed = [line for line in printed.splitlines() if line.startswith("FAILED")]
            expected = step.failures.splitlines()
            assert len(failed) == len(expected), printed
            assert all(map(str.startswith, failed, expected)), printed
            outcomes.append(done.returncode)
    assert outcomes == [pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK], PAGE
