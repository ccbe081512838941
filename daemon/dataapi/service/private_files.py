"""Files that contain secrets: readable by their owner only, and never overwritten."""

from __future__ import annotations

import os
from pathlib import Path


def create_private(path: Path, text: str) -> None:
    """Create a file that only its owner may read, and its directory if necessary.

    An existing file is never reused: another process may have it open, regardless of its current mode.

    :raises OSError: the file exists or cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(path, "x", encoding="utf-8", opener=_open_private) as file:
        file.write(text)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
