"""Licences, notices and promises: what ships names what it contains, and what is promised has its tests."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from support import documents

ROOT = documents.ROOT
CONSOLE = ROOT / "console"
NOTICES = ROOT / "daemon" / "dataapi" / "web" / "console" / "assets" / "NOTICES.txt"
IMPORT = re.compile(r'(?:\bfrom|^@?import|\bimport\()\s*"((?:@[\w-]+/)?[\w-]+)', re.MULTILINE)
NOTICE = re.compile(r"^## (\S+) - (\S+) \((.+)\)$", re.MULTILINE)


def _locked() -> dict[str, set[str]]:
    """Return the versions of each package in the console's lock file."""
    found: dict[str, set[str]] = {}
    for path, package in json.loads((CONSOLE / "package-lock.json").read_text("utf-8"))["packages"].items():
        if path:
            found.setdefault(path.rpartition("node_modules/")[2], set()).add(package["version"])
    return found


def test_notices_are_of_the_versions_that_the_console_is_built_from() -> None:
    """``make console`` was run after the last change of the lock file."""
    locked = _locked()
    notices = NOTICE.findall(NOTICES.read_text("utf-8"))
    assert len(notices) > 50
    for name, version, _licence in notices:
        assert version in locked.get(name, set()), f"{name} {version}: run make console"


def test_every_library_that_the_console_imports_has_its_notice() -> None:
    """Also what its style sheets take."""
    imported = set()
    for pattern in ("*.ts", "*.tsx", "*.css"):
        for file in (CONSOLE / "src").rglob(pattern):
            imported |= set(IMPORT.findall(file.read_text("utf-8")))
    # Others are imported by programs that the console only shows.
    imported &= _locked().keys()
    noticed = {name for name, _version, _licence in NOTICE.findall(NOTICES.read_text("utf-8"))}
    assert {"react", "graphiql"} <= imported
    assert imported <= noticed


def test_licences_of_what_the_console_contains_ask_for_a_notice_alone() -> None:
    """None of them reaches what a company builds on the daemon."""
    licences = {licence for _name, _version, licence in NOTICE.findall(NOTICES.read_text("utf-8"))}
    assert licences <= {"MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "0BSD", "Apache-2.0"}


def test_every_promise_of_the_security_model_has_a_test_that_is_there() -> None:
    """The table of docs/security.md, How each promise is tested."""
    table = documents.chapter(documents.read("docs/security.md"), "How each promise is tested")
    rows = re.findall(r"^\| (?!Promise|---)(.*?) \| (.*?) \|$", table, re.MULTILINE)
    assert len(rows) > 20
    for promise, cell in rows:
        tests = re.findall(r"`([^`]+\.py)(?:::(\w+))?`", cell)
        assert tests, promise
        for path, name in tests:
            module = ROOT / path
            assert module.is_file(), path
            assert name == "" or name in _functions(module), f"{path}::{name}"


def _functions(module: Path) -> set[str]:
    tree = ast.parse(module.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
