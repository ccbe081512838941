"""Runs programs in a pseudo-terminal with 200 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING

from support.daemon import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

_ROWS, _COLUMNS = 50, 200


class Terminal:
    """A context manager that runs a program in a terminal."""

    def __init__(self, words: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> None:
        self._ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self.text = ""
        self.process = subprocess.Popen(
            words, cwd=cwd, env=environ, stdin=its, stdout=its, stderr=its, start_new_session=True
        )
        os.close(its)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._ours)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def read_to(self, mark: str) -> str:
        """Return the output up to the next occurrence of ``mark``."""
        deadline = time.monotonic() + PATIENCE
        while mark not in self.text:
            assert self._read(deadline), f"timed out waiting for {mark!r}: {self.text!r}"
        shown, _, self.text = self.text.partition(mark)
        return shown

    def read_all(self) -> str:
        """Return the output until the program ends, with normalized line endings."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        self.process.wait(PATIENCE)
        return self.text.replace("\r\n", "\n")

    def _read(self, deadline: float) -> bool:
        """Read available output, or wait for it; return False at the end or after the timeout."""
        ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
        try:
            read = os.read(self._ours, 65536) if ready else b""
        except OSError:  # the program has closed the terminal
            read = b""
        self.text += read.decode("utf-8", "replace")
        return bool(read)


def at_terminal(
    words: Sequence[str], *, cwd: Path, environ: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a program in a terminal; return its exit status and output."""
    with Terminal(words, cwd=cwd, environ={**os.environ, "TERM": "xterm", **(environ or {})}) as terminal:
        shown = terminal.read_all()
        return terminal.process.returncode, shown
