"""Runs JavaScript with npm packages, cached between runs; skips tests that it cannot run."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import deferLater
from twisted.internet.utils import getProcessOutputAndValue

CLIENTS = (
    "@apollo/client@4.3.8",
    "rxjs@7.8.2",
    "@urql/core@6.0.3",
    "graphql@16.11.0",
    "relay-compiler@21.0.1",
    "relay-runtime@21.0.1",
    "@supabase/postgrest-js@2.119.1",
    "@supabase/supabase-js@2.119.1",
    "graphql-sse@2.6.1",
    "graphql-ws@6.4.2",
    "ws@8.23.0",
    "eventsource@4.1.0",
    "typescript@7.0.2",
    "@types/node@22.20.7",
)
"""Packages of popular API clients, installed once for all tests and workers."""

GENERATORS = (
    "openapi-typescript@7.13.0",
    "openapi-fetch@0.17.0",
    "@hey-api/openapi-ts@0.99.0",
    "orval@8.38.0",
    "typescript@5.9.3",
    "@types/node@22.20.7",
)
"""Generators of clients from an OpenAPI description. They do not support TypeScript 7."""


async def install(reactor: Any, directory: Path, *packages: str) -> None:
    """Install packages into a directory if some of them are missing."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed, and these tests run JavaScript")
    wanted = directory / "installed"
    with (directory / "lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await deferLater(reactor, 0.1)
        if wanted.exists() and wanted.read_text() == " ".join(packages):
            return
        (directory / "package.json").write_text("{}")
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(directory))
        _, errors, code = await run(reactor, "npm", "install", *options, *packages)
        if code != 0:
            pytest.skip(f"npm cannot install {' '.join(packages)}: {errors[-300:]}")
        wanted.write_text(" ".join(packages))


async def run_script(reactor: Any, script: Path, *arguments: str) -> str:
    out, errors, code = await run(reactor, "node", str(script), *arguments)
    assert code == 0, errors
    return out


async def run(reactor: Any, *command: str) -> tuple[str, str, int]:
    """Run a program and return its output, its errors and its exit status."""
    program = shutil.which(command[0])
    assert program is not None
    out, errors, code = await getProcessOutputAndValue(
        program, command[1:], dict(os.environ), reactor=reactor
    )
    return out.decode(), errors.decode(), code
