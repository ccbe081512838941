"""The map leads somewhere: whatever docs/architecture.md and CONTRIBUTING.md name is there."""

from __future__ import annotations

import re

import pytest
from support import documents

PACKAGE = documents.ROOT / "daemon" / "dataapi"

_PATH = re.compile(r"`([\w./]+(?:\.(?:py|sql|ini|mjs|txt)|/))`")


@pytest.mark.parametrize("document", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_path_of_the_map_exists(document: str) -> None:
    named = _PATH.findall(documents.read(document))
    assert named
    for path in named:
        assert (PACKAGE / path).exists() or (documents.ROOT / path).exists(), path


def test_every_package_is_on_the_map() -> None:
    table = documents.chapter(documents.read("docs/architecture.md"), "Layers")
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= set(_PATH.findall(table))
