"""The pages of docs/reference/ that are made from the code are as the code is now."""

from __future__ import annotations

import runpy

import pytest
from support import documents

GENERATOR = runpy.run_path(str(documents.ROOT / "docs" / "generate.py"))


@pytest.mark.parametrize("name", GENERATOR["makers"]())
def test_a_page_is_current(name: str) -> None:
    """If it is not, ``make reference`` writes it again."""
    assert documents.read(f"docs/reference/{name}") == GENERATOR["page"](name)
