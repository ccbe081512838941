"""The store's SQL, which lies beside its modules in ``.sql`` files.

A line ``-- name: claim`` begins a statement, or several that are sent as one transaction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def statements(file: str) -> Mapping[str, str]:
    """Return the statements of a file by name."""
    text = files("dataapi.webhooks.store").joinpath(file).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: body.strip().rstrip(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}
