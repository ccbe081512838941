"""What the tests themselves keep to, so that they pass on every machine."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_extensions_are_only_created_where_the_server_has_them() -> None:
    """A module that creates one asks the server for it: ``Server.require`` skips, ``Server.has`` adapts."""
    for file in TESTS.rglob("*.py"):
        text = file.read_text("utf-8")
        for name in set(re.findall(r"create extension (\w+)", text)):
            assert f'"{name}"' in text, f"{file} needs {name}"
    for file in TESTS.rglob("*.sql"):
        assert "create extension" not in file.read_text("utf-8"), f"{file} cannot ask"
