"""Rules for all tests, so that they pass on every machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support import documents

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent


def test_modules_check_for_extensions_before_creating_them() -> None:
    """``Server.require`` skips a test without the extension. Tests can also use ``Server.has``."""
    for file in TESTS.rglob("*.py"):
        text = file.read_text("utf-8")
        for name in set(re.findall(r"create extension (\w+)", text)):
            assert f'"{name}"' in text, f"{file} needs {name}"
    for file in TESTS.rglob("*.sql"):
        assert "create extension" not in file.read_text("utf-8"), f"{file} cannot ask"


def test_no_assertion_is_about_elapsed_time() -> None:
    """A busy machine is slow. Tests use ``support.effort`` or counts instead."""
    measured = re.compile(r"assert \w+\.(monotonic|perf_counter|time|process_time|seconds)\(\) - \w+ <.*")
    for file in TESTS.rglob("test_*.py"):
        match = measured.search(file.read_text("utf-8"))
        assert match is None, f"{file}: {match and match[0]}"


def test_documents_with_programs_are_run_by_a_test() -> None:
    """The lists of pages in ``tests/run`` must contain every page with programs."""
    folders = [TESTS / name for name in ("run", "pg", "fresh")]
    tests = "".join(file.read_text("utf-8") for folder in folders for file in folder.rglob("*.py"))
    for name in documents.names():
        languages = {block.language for block in documents.blocks(documents.read(name))}
        assert f'"{name}"' in tests or not languages & {"sh", "js", "python"}, name


def test_reasons_of_skipped_tests_are_counted(tmp_path: Path) -> None:
    (tmp_path / "test_moon.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef moon():\n    pytest.skip('needs a moon')\n\n"
        "def test_one(moon):\n    pass\n\n\ndef test_other(moon):\n    pass\n"
    )
    options = ("-c", str(ROOT / "setup.cfg"), "-p", "no:cacheprovider", "-p", "conftest")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "\n    2  needs a moon\n" in done.stdout, done.stdout + done.stderr
