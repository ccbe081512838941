"""Paths in docs/architecture.md and CONTRIBUTING.md exist."""

from __future__ import annotations

import re

import pytest
from support import documents

PACKAGE = documents.ROOT / "daemon" / "dataapi"

_PATH = re.compile(r"`([\w./]+(?:\.(?:py|sql|ini|mjs|txt)|/))`")


@pytest.mark.parametrize("document", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_documented_path_exists(document: str) -> None:
    paths = _PATH.findall(documents.read(document))
    assert paths
    for path in paths:
        assert (PACKAGE / path).exists() or (documents.ROOT / path).exists(), path


def test_every_package_is_documented() -> None:
    table = documents.chapter(documents.read("docs/architecture.md"), "Layers")
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= set(_PATH.findall(table))
