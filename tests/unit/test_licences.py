"""Licences and notices of shipped code. The security model's promises are tested."""

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
    """Return the locked versions of each package of the console."""
    versions: dict[str, set[str]] = {}
    for path, package in json.loads((CONSOLE / "package-lock.json").read_text("utf-8"))["packages"].items():
        if path:
            versions.setdefault(path.rpartition("node_modules/")[2], set()).add(package["version"])
    return versions


def test_notices_have_the_locked_versions() -> None:
    """``make console`` updates the notices."""
    locked = _locked()
    notices = NOTICE.findall(NOTICES.read_text("utf-8"))
    assert len(notices) > 50
    for name, version, _licence in notices:
        assert version in locked.get(name, set()), f"{name} {version}: run make console"


def test_every_library_of_the_console_has_a_notice() -> None:
    imported = set()
    for pattern in ("*.ts", "*.tsx", "*.css"):
        for file in (CONSOLE / "src").rglob(pattern):
            imported |= set(IMPORT.findall(file.read_text("utf-8")))
    # Example programs in the console's source import packages that are not shipped.
    imported &= _locked().keys()
    noticed = {name for name, _version, _licence in NOTICE.findall(NOTICES.read_text("utf-8"))}
    assert {"react", "graphiql"} <= imported
    assert imported <= noticed


def test_licences_of_the_console_require_only_a_notice() -> None:
    licences = {licence for _name, _version, licence in NOTICE.findall(NOTICES.read_text("utf-8"))}
    assert licences <= {"MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "0BSD", "Apache-2.0"}


def test_every_promise_of_the_security_model_has_a_test() -> None:
    """The tests are listed in docs/security.md, How each promise is tested."""
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
