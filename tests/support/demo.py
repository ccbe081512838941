"""Runs ``twistd -n dataapi --demo`` as a process."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from dataapi.testing import free_port
from support.daemon import PATIENCE, TWISTD, environment, wait_for

if TYPE_CHECKING:
    from pathlib import Path


class RunningDemo:
    """A running demo whose banner has been printed."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "output"
        listen = f"tcp:{free_port()}:interface=127.0.0.1"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [TWISTD, "-n", "--pidfile=", "dataapi", "--demo", "--listen", listen],
                cwd=folder,
                env=environment({"DATAAPI_DATAAPI_ADMIN_LISTEN": f"tcp:{free_port()}:interface=127.0.0.1"}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_for(self._complete, "the banner")

    @property
    def text(self) -> str:
        return self._output.read_text("utf-8")

    @property
    def origin(self) -> str:
        [origin] = re.findall(r"Console +(http://\S+)/console", self.text)
        return str(origin)

    def _complete(self) -> bool:
        assert self.process.poll() is None, self.text
        return "add -H" in self.text

    def send(self, method: str, path: str, document: Any = None) -> Any:
        """Send a request with the printed webhook token and return the parsed response."""
        [token] = re.findall(r"dapat_[\w-]+", self.text)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = None if document is None else json.dumps(document).encode()
        with urlopen(Request(self.origin + path, body, headers, method=method), timeout=PATIENCE) as response:
            return json.load(response)

    def pasted(self, number: int) -> Any:
        """Run the banner's curl command at this index and return the parsed response."""
        command = self.text.replace("\\\n", " ").split("  curl ")[number + 1]
        words = shlex.split(command.partition("\n")[0])
        options = dict(itertools.pairwise(words))
        [url] = [word for word in words if word.startswith("http://")]
        headers = [words[at + 1] for at, word in enumerate(words) if word == "-H"]
        body = options["-d"].encode() if "-d" in options else None
        request = Request(url, body, dict(re.split(r":\s*", header, maxsplit=1) for header in headers))
        with urlopen(request, timeout=PATIENCE) as response:
            return json.load(response)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
