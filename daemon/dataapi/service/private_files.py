"""Files with secrets, which only their owner may read; existing files are never written to."""

from __future__ import annotations

import os
from pathlib import Path


def create_private(path: Path, text: str) -> None:
    """Write a new file that its owner alone may read, in a folder of the same kind if that is new.

    A file that is there may be open to others, or to a process that has it open, whatever its mode is set to.

    :raises OSError: it is there already, or cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(path, "x", encoding="utf-8", opener=_private) as file:
        file.write(text)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
