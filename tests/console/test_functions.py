"""Console functions that need no browser are tested with node's test runner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.documents import ROOT
from support.node import install, run

FUNCTIONS = Path(__file__).with_name("functions")
LOCKED = json.loads((ROOT / "console" / "package-lock.json").read_text("utf-8"))["packages"]


@pytest.mark.time_limit(180)  # the first run installs the package
async def test_typescript_tests_pass(npm_bundler: Path, tmp_path: Path, reactor: Any) -> None:
    """The TypeScript tests are bundled first, because older versions of node cannot run TypeScript."""
    version = LOCKED["node_modules/rolldown"]["version"]
    await install(reactor, npm_bundler, f"rolldown@{version}")
    bundler = npm_bundler / "node_modules" / "rolldown" / "bin" / "cli.mjs"
    tests = sorted(str(file) for file in FUNCTIONS.glob("*.test.ts"))
    out, errors, code = await run(
        reactor, "node", str(bundler), *tests, "--dir", str(tmp_path), "--platform", "node", "--format", "cjs"
    )
    assert code == 0, out + errors
    bundled = sorted(str(file) for file in tmp_path.glob("*.test.js"))
    assert len(bundled) == len(tests)
    out, errors, code = await run(reactor, "node", "--test", *bundled)
    assert code == 0, out + errors
