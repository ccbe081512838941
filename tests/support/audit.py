"""Runs the audits of the npm package ``graphql-http`` against any URL."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.utils import getProcessOutputAndValue

PACKAGES = ("graphql-http@1.22.4", "graphql@16.11.0")
_SCRIPT = Path(__file__).parent.parent / "web" / "audit.mjs"


async def audit(
    reactor: Any, directory: Path, url: str, headers: Mapping[str, str]
) -> list[dict[str, str | None]]:
    """Return the audits' results: ``id``, ``name``, ``status`` (``ok`` when passed) and ``reason``.

    :param directory: where the packages are kept between runs.
    :param headers: sent with every request.
    """
    await _install(reactor, directory)
    out, errors, code = await _run(
        reactor, "node", str(_SCRIPT), str(directory), url, json.dumps(dict(headers))
    )
    assert code == 0, errors
    results: list[dict[str, str | None]] = json.loads(out)
    return results


async def _install(reactor: Any, directory: Path) -> None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed, which runs the graphql-http audits")
    wanted = directory / "installed"
    if wanted.exists() and wanted.read_text() == " ".join(PACKAGES):
        return
    (directory / "package.json").write_text("{}")
    _, errors, code = await _run(
        reactor,
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--prefix",
        str(directory),
        *PACKAGES,
    )
    if code != 0:
        pytest.skip(f"npm cannot install {' '.join(PACKAGES)}: {errors[-300:]}")
    wanted.write_text(" ".join(PACKAGES))


async def _run(reactor: Any, *command: str) -> tuple[str, str, int]:
    program = shutil.which(command[0])
    assert program is not None
    out, errors, code = await getProcessOutputAndValue(
        program, command[1:], dict(os.environ), reactor=reactor
    )
    return out.decode(), errors.decode(), code
