"""The README's webhook receivers, as separate processes."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from typing import TYPE_CHECKING

from dataapi.testing import free_port
from support import documents
from support.daemon import PATIENCE, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CHAPTER = documents.chapter(documents.read("README.md"), "Verify a delivery")
EXAMPLES = dict(re.findall(r"^\*\*(.+?)\*\*\n\n(```\w+\n.*?^```)$", CHAPTER, re.DOTALL | re.MULTILINE))
PYTHON, PYTHON_PLAIN, NODE, NODE_PLAIN = (
    "Python, with `pip install standardwebhooks`",
    "Python, without a library",
    "JavaScript, with `npm install standardwebhooks`",
    "JavaScript, without a library",
)
PORT = "9000"
OF_WORDS = {
    PYTHON: ('environ["WEBHOOK_SECRET"])', 'environ["WEBHOOK_SECRET"].encode())'),
    NODE: ("env.WEBHOOK_SECRET)", 'env.WEBHOOK_SECRET, { format: "raw" })'),
}
"""Changes that the library examples require for a secret without ``whsec_``."""


class Running:
    """A running receiver."""

    def __init__(self, example: str, folder: Path, secret: str) -> None:
        [block] = documents.blocks(EXAMPLES[example])
        self.secret = secret
        self.port = free_port()
        text = block.text.replace(PORT, str(self.port))
        assert text != block.text
        if not secret.startswith("whsec_") and example in OF_WORDS:
            shown, changed = OF_WORDS[example]
            assert shown in text
            text = text.replace(shown, changed)
        self._script = folder / f"receiver-{self.port}.{'py' if block.language == 'python' else 'mjs'}"
        self._script.write_text(text)
        self._output = self._script.with_suffix(".out")
        program = sys.executable if block.language == "python" else shutil.which("node")
        assert program is not None
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [program, str(self._script)],
                cwd=folder,
                env={**os.environ, "WEBHOOK_SECRET": secret},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_for(self._listens, f"the receiver {example}")

    def _listens(self) -> bool:
        assert self._process.poll() is None, self.text
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def handled(self) -> list[str]:
        return re.findall(r"^(\S+) v1\.project\.paused$", self.text, re.MULTILINE)

    @property
    def text(self) -> str:
        return self._output.read_text("utf-8", "replace")

    def answer(self, headers: Mapping[str, str], body: bytes) -> int:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request("POST", "/", body, dict(headers))
            return connection.getresponse().status

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._script.unlink()
        self._output.unlink()
