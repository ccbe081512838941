"""Peers on the same database: PostGraphile for GraphQL, and a FastAPI program for REST."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.cases import Case
from dataapi.testing import free_port
from support.daemon import JWT_SECRET, KEY, wait_for

_NPM_PACKAGES = ("postgraphile@5", "node@22")
"""Node is included because PostGraphile requires a newer version than many machines have."""
_PYTHON_PACKAGES = ("fastapi", "asyncpg", "uvicorn[standard]")

_GRAPHQL = "/graphql"

_CONFIGURATION = """
import jwt from "jsonwebtoken";
import { makePgService } from "postgraphile/adaptors/pg";
import { makeV4Preset } from "postgraphile/presets/v4";

const verified = new Map();

function settingsOf(authorization) {
  if (!authorization) return { role: "anon" };
  const token = authorization.split(" ")[1];
  let settings = verified.get(token);
  if (!settings) {
    const claims = jwt.verify(token, process.env.SECRET);
    settings = { role: claims.role, "request.jwt.claims": JSON.stringify(claims) };
    verified.set(token, settings);
  }
  return settings;
}

export default {
  extends: [makeV4Preset({ graphiql: false })],
  pgServices: [makePgService({ connectionString: process.env.URI, schemas: ["public"] })],
  grafast: { context: (ctx) => ({ pgSettings: settingsOf(ctx.node?.req?.headers.authorization) }) },
  grafserv: { host: "127.0.0.1", port: Number(process.env.PORT), graphqlPath: "%s" },
};
"""


class NotInstalled(Exception):
    """Raised when a peer cannot be installed on this machine. The message contains the reason."""


class Peer(ABC):
    """A peer in one process. It is a context manager that starts and stops the process.

    :param folder: folder in which peers are installed.
    :ivar name: the peer's name in the table.
    """

    name: str

    def __init__(self, folder: Path, uri: str) -> None:
        self.port = free_port()
        self._folder = folder / type(self).__name__.lower()
        self._uri = uri
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    @abstractmethod
    def version(self) -> str:
        """The peer's installed version."""

    @abstractmethod
    def install(self) -> None:
        """Install the peer if it is missing, or raise ``NotInstalled``."""

    @abstractmethod
    def adapted(self, case: Case) -> Case | None:
        """Return the equivalent case for this peer, or None."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command line that starts the peer."""

    @abstractmethod
    def _responds(self, connection: HTTPConnection) -> bool:
        """Send a request and return whether it succeeds."""

    def __enter__(self) -> Self:
        environ = {"URI": self._uri, "SECRET": JWT_SECRET, "KEY": KEY, "PORT": str(self.port)}
        with (self._folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self._folder,
                env={**os.environ, **environ, "GRAPHILE_ENV": "production", "NODE_ENV": "production"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_for(self._is_ready, self.name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _is_ready(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            return self._responds(connection)
        except OSError:
            return False
        finally:
            connection.close()


class PostGraphile(Peer):
    """PostGraphile, configured for production as documented.

    Roles and claims are set as by the daemon, and verified tokens are cached.
    """

    name = "PostGraphile"

    @property
    def version(self) -> str:
        package = self._folder / "node_modules" / "postgraphile" / "package.json"
        return str(json.loads(package.read_text("utf-8"))["version"])

    def install(self) -> None:
        if self._program.exists() and self._node.exists():
            return
        npm = shutil.which("npm")
        if npm is None:
            raise NotInstalled("npm is not installed")
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "package.json").write_text("{}\n")
        _run([npm, "install", "--no-audit", "--no-fund", *_NPM_PACKAGES], self._folder)

    def adapted(self, case: Case) -> Case | None:
        return None if case.peer is None else replace(case, path=_GRAPHQL, body=case.peer)

    def _command(self) -> list[str]:
        (self._folder / "graphile.config.mjs").write_text(_CONFIGURATION % _GRAPHQL)
        return [str(self._node), str(self._program)]

    def _responds(self, connection: HTTPConnection) -> bool:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", _GRAPHQL, '{"query":"{__typename}"}', headers)
        return connection.getresponse().status == 200

    @property
    def _program(self) -> Path:
        return self._folder / "node_modules" / "postgraphile" / "dist" / "cli-run.js"

    @property
    def _node(self) -> Path:
        return self._folder / "node_modules" / "node" / "bin" / "node"


class FastApi(Peer):
    """``fastapi_app.py`` in one process of uvicorn, with uvloop and httptools."""

    name = "FastAPI"

    @property
    def version(self) -> str:
        shown = "from importlib.metadata import version; print(version('fastapi'))"
        return _run([str(self._python), "-c", shown], self._folder).strip()

    def install(self) -> None:
        if (self._python.parent / "uvicorn").exists():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(self._folder)], self._folder)
        _run([str(self._python), "-m", "pip", "install", "--quiet", *_PYTHON_PACKAGES], self._folder)

    def adapted(self, case: Case) -> Case | None:
        return None if case.by_hand is None else replace(case, path=case.by_hand)

    def _command(self) -> list[str]:
        options = ["--app-dir", str(Path(__file__).parent), "--port", str(self.port), "--no-access-log"]
        return [str(self._python), "-m", "uvicorn", "fastapi_app:app", *options]

    def _responds(self, connection: HTTPConnection) -> bool:
        connection.request("GET", "/tracks/1", headers={"apikey": KEY})
        return connection.getresponse().status == 200

    @property
    def _python(self) -> Path:
        return self._folder / "bin" / "python"


PEERS = (PostGraphile, FastApi)


def _run(command: list[str], folder: Path) -> str:
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise NotInstalled(f"{command[0]} failed: {finished.stderr.strip()[-300:]}")
    return finished.stdout
