"""Generated pages of docs/reference/ are up to date."""

from __future__ import annotations

import runpy

import pytest
from dataapi.service.configuration.keys import SECTIONS
from support import documents

GENERATOR = runpy.run_path(str(documents.ROOT / "docs" / "generate.py"))


@pytest.mark.parametrize("name", GENERATOR["makers"]())
def test_page_is_current(name: str) -> None:
    """``make reference`` updates the pages."""
    assert documents.read(f"docs/reference/{name}") == GENERATOR["page"](name)


def test_configuration_template_is_current() -> None:
    assert documents.read("etc/dataapi.ini") == GENERATOR["template"]()


def test_every_key_is_documented() -> None:
    for section, (about, described) in GENERATOR["sections"]().items():
        names = [name for each in described for name, _ in each.keys]
        assert names == list(SECTIONS[section])
        assert about
        assert all(each.comment for each in described)
