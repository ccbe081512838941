"""The pages of docs/reference/ that are made from the code are as the code is now."""

from __future__ import annotations

import runpy

import pytest
from dataapi.service.configuration.keys import SECTIONS
from support import documents

GENERATOR = runpy.run_path(str(documents.ROOT / "docs" / "generate.py"))


@pytest.mark.parametrize("name", GENERATOR["makers"]())
def test_a_page_is_current(name: str) -> None:
    """If it is not, ``make reference`` writes it again."""
    assert documents.read(f"docs/reference/{name}") == GENERATOR["page"](name)


def test_configuration_template_is_current() -> None:
    assert documents.read("etc/dataapi.ini") == GENERATOR["template"]()


def test_every_key_is_documented() -> None:
    for section, (about, described) in GENERATOR["sections"]().items():
        named = [name for one in described for name, _ in one.keys]
        assert named == list(SECTIONS[section])
        assert about
        assert all(one.comment for one in described)
