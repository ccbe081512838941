"""Alternatives on the same database: PostGraphile, installed from the npm registry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType

from support.daemon import JWT_SECRET, wait_for
from support.ports import free_port

PACKAGES = ("postgraphile@5", "node@22")
"""PostGraphile requires a newer version of Node than many machines have."""

PATH = "/graphql"

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
    """A peer cannot be installed on this machine; the message contains the reason."""


class PostGraphile:
    """PostGraphile in one process, configured for production by its documentation; a context manager.

    Roles and claims are set like ours, and verified tokens are cached.
    """

    name = "PostGraphile"

    def __init__(self, folder: Path, uri: str) -> None:
        self.port = free_port()
        self._folder = folder
        self._uri = uri
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process ID."""
        assert self._process is not None
        return self._process.pid

    @property
    def version(self) -> str:
        """The installed version."""
        package = self._folder / "node_modules" / "postgraphile" / "package.json"
        return str(json.loads(package.read_text("utf-8"))["version"])

    def install(self) -> None:
        """Install it into its folder if it is missing. Raises ``NotInstalled``."""
        if self._program.exists() and self._node.exists():
            return
        npm = shutil.which("npm")
        if npm is None:
            raise NotInstalled("npm is not installed")
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "package.json").write_text("{}\n")
        finished = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", *PACKAGES],
            cwd=self._folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if finished.returncode or not self._node.exists():
            raise NotInstalled(f"npm cannot install it: {finished.stderr.strip()[-300:]}")

    def __enter__(self) -> PostGraphile:
        """Start it and wait until it responds."""
        (self._folder / "graphile.config.mjs").write_text(_CONFIGURATION % PATH)
        environ = {"URI": self._uri, "SECRET": JWT_SECRET, "PORT": str(self.port)}
        with (self._folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [str(self._node), str(self._program)],
                cwd=self._folder,
                env={**os.environ, **environ, "GRAPHILE_ENV": "production", "NODE_ENV": "production"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_for(self._responds, "PostGraphile")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def _program(self) -> Path:
        return self._folder / "node_modules" / "postgraphile" / "dist" / "cli-run.js"

    @property
    def _node(self) -> Path:
        return self._folder / "node_modules" / "node" / "bin" / "node"

    def _responds(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            connection.request("POST", PATH, '{"query":"{__typename}"}', {"Content-Type": "application/json"})
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
