"""Runs the blocks of a document from top to bottom, as a reader pastes them into a shell.

Programs that a document installs are already installed, and commands that start the daemon use free ports.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataapi.service.provisioning import removal_sql
from dataapi.webhooks.secrets import new_key
from support import documents
from support.daemon import JWT_SECRET, PATIENCE, Daemon, environment, wait_for
from support.documents import Block, fits, pattern
from support.readme_receivers import PYTHON_PLAIN, Running

if TYPE_CHECKING:
    from support.postgres import Database, Server

NO_PROGRAMS: Mapping[str, str] = {}
_INSTALLS = re.compile(r"sudo apt-get |python3 -m venv ")
_SERVES = re.compile(r"\S*twistd .*dataapi")
_SUDO = """#!/bin/sh
# sudo -u postgres COMMAND
shift 2
PGHOST={host} PGUSER=postgres exec "$@"
"""


class Story:
    """Runs a document's commands in a shell. On exit, stops the daemon and the receiver.

    :ivar receiver: receiver of webhooks, started before the first command that uses its port.
    :ivar said: the JSON documents printed by the last curl command, or the text if its output is shown in
        full.
    """

    def __init__(
        self,
        folder: Path,
        database: Database,
        config: str = "my.ini",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.database = database
        self.receiver: Running | None = None
        self.said: list[Any] = []
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environ = environment({"PATH": path, "PYTHONPATH": str(folder), **(environ or {})})
        (folder / ".venv").symlink_to(sys.prefix)
        (folder / "daemon").mkdir()
        listening: dict[str, str] = {}
        self.daemon = Daemon(folder / "daemon", database.uri, environ=listening)
        self.daemon.config = folder / config
        for name, port in (("LISTEN", self.daemon.port), ("ADMIN_LISTEN", self.daemon.admin_port)):
            listening[f"DATAAPI_DATAAPI_{name}"] = f"tcp:{port}:interface=127.0.0.1"
        listening.update({"PYTHONPATH": str(folder), **(environ or {})})
        self._started = False

    @classmethod
    def on_debian(cls, folder: Path, server: Server) -> Story:
        """Remove the API's roles and the database ``app``, as on a new server, and return a ``Story``."""
        server.admin.execute("drop database if exists app with (force)")
        server.admin.execute(removal_sql(webhooks=True))
        programs = folder / "bin"
        programs.mkdir()
        for name in ("createdb", "psql"):
            (programs / name).symlink_to(server.program(name))
        (programs / "sudo").write_text(_SUDO.format(host=server.folder))
        (programs / "sudo").chmod(0o755)
        made = cls(folder, server.database("app"), "dataapi.ini", {"PGPORT": str(server.port)})
        made.environ["PATH"] = f"{programs}:{made.environ['PATH']}"
        return made

    def __enter__(self) -> Story:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the receiver and the daemon."""
        if self.receiver is not None:
            self.receiver.end()
        if self._started:
            self.daemon.__exit__()

    def read(self, text: str, programs: Mapping[str, str] = NO_PROGRAMS) -> None:
        """Run a document block by block, and check the documented output.

        :param programs: interpreters of program blocks, by language.
        """
        for block, after in itertools.pairwise([*documents.blocks(text), Block("", "", 0)]):
            if block.language == "sql":
                self.database.execute(block.text)
            elif block.language == "ini":
                self._configure(block.text)
            elif block.language in programs:
                self._program(block, after, programs[block.language])
            elif block.language == "sh":
                *commands, last = block.text.splitlines()
                if _SERVES.match(last):
                    self._shell("\n".join(commands), None)
                    self._start()
                    continue
                if "127.0.0.1:8000" in block.text and not self._started:
                    self._start()
                if "127.0.0.1:9000" in block.text and self.receiver is None:
                    self.receiver = Running(PYTHON_PLAIN, self.folder, self._secret(block.text))
                self._run(block.text, after)

    def _program(self, block: Block, after: Block, command: str) -> None:
        """Write a block's program to a file, and run the file with an interpreter."""
        file = self.folder / f"program.{block.language}"
        file.write_text(self._here(block.text))
        self._run(f"{command} {file.name}", after)

    def _run(self, script: str, after: Block) -> None:
        """Run a script. If its output is documented, repeat the script until it prints this output."""
        shown = after if after.language in ("json", "text") else None
        try:
            wait_for(lambda: self._shell(script, shown), script)
        except AssertionError as error:
            raise AssertionError(f"{error}\nIt printed {self.said}") from error

    def _secret(self, text: str) -> str:
        """Return the signing secret of the endpoint that a command registers."""
        return (
            self.environ.get("WEBHOOK_SECRET") or text.partition('"signing_secret": "')[2].partition('"')[0]
        )

    def _configure(self, text: str) -> None:
        """Write a configuration file, or append to it."""
        values = {"jwt-secret": JWT_SECRET, "encryption-key": new_key()}
        for name, value in values.items():
            if f"@/etc/dataapi/{name}" in text:
                (self.folder / name).write_text(value)
                text = text.replace(f"@/etc/dataapi/{name}", f"@{self.folder / name}")
        text = text.replace("postgresql://authenticator@127.0.0.1/app", self.database.uri)
        if text.startswith("["):
            self.daemon.config.write_text(text)
            return
        with self.daemon.config.open("a") as file:
            file.write(text)
        self.daemon.stop()
        self._start()

    def _start(self) -> None:
        self._started = True
        self.daemon.start()
        self.daemon.wait_ready()
        if "[webhooks]" in self.daemon.config.read_text():
            wait_for(lambda: self.daemon.admin("GET", "/ready").json["webhooks"]["ready"], "webhooks")

    def _shell(self, script: str, shown: Block | None) -> bool:
        """Run a script, save its variables, and return whether its output is as documented."""
        script = "\n".join(line for line in script.splitlines() if not _INSTALLS.match(line))
        script = self._here(script)
        saved = self.folder / "environment"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"set -a\n{script}\nenv -0 > {saved}"],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self.environ = dict(one.split("=", 1) for one in saved.read_text().split("\0") if one)
        shows_json = shown is not None and shown.language == "json"
        self.said = _documents(done.stdout) if "curl" in script or shows_json else []
        assert not any("error" in document for document in self.said), self.said
        if shown is None:
            return True
        if shown.language == "text":
            self.said = [done.stdout.rstrip()]
            return self.said == [shown.text.rstrip()]
        return fits(self.said[-1], pattern(shown.text))

    def _here(self, text: str) -> str:
        """Replace the addresses in a document's text with those of the servers under test."""
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{self.daemon.port}")
        text = text.replace("127.0.0.1:8001", f"127.0.0.1:{self.daemon.admin_port}")
        if self.receiver is not None:
            text = text.replace("127.0.0.1:9000", f"127.0.0.1:{self.receiver.port}")
        return text.replace("postgresql://postgres@127.0.0.1/app", self.database.admin_uri)


def _documents(text: str) -> list[Any]:
    """Parse consecutive JSON documents."""
    found, decoder, rest = [], json.JSONDecoder(), text.strip()
    while rest:
        document, end = decoder.raw_decode(rest)
        found.append(document)
        rest = rest[end:].lstrip()
    return found
