"""Guides that go on where the tutorial has a user signed in, run on its database and its daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import documents
from support.story import Story

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

BEGINNING = ("Set up a database", "Create a table", "Start the daemon", "Sign in")
GUIDES = [
    "docs/guides/roles-and-keys.md",
    "docs/guides/row-level-security.md",
    "docs/guides/tuning.md",
    "docs/security.md",
    "docs/why-one-message.md",
]


@pytest.fixture(scope="module")
def signed_in(cluster: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Give a reader of the tutorial's beginning; each guide adds tables of its own."""
    with Story.on_debian(tmp_path_factory.mktemp("reader"), cluster) as made:
        tutorial = documents.read("docs/tutorial.md")
        for title in BEGINNING:
            made.read(documents.chapter(tutorial, title))
        yield made


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_is_as_it_says(guide: str, signed_in: Story) -> None:
    """Every command runs and prints what is shown."""
    text = documents.read(guide)
    assert any(block.language == "sh" for block in documents.blocks(text))
    signed_in.read(text)
