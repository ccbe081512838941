"""Guides that go on where the tutorial has a user signed in, run on its database and its daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support import documents
from support.node import CLIENTS, install

if TYPE_CHECKING:
    from pathlib import Path

    from support.story import Story

pytestmark = pytest.mark.direct("the documents connect to PostgreSQL itself")

GUIDES = [
    "docs/guides/roles-and-keys.md",
    "docs/guides/row-level-security.md",
    "docs/guides/tuning.md",
    "docs/security.md",
    "docs/why-one-message.md",
]


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_is_as_it_says(guide: str, signed_in: Story) -> None:
    text = documents.read(guide)
    assert any(block.language == "sh" for block in documents.blocks(text))
    signed_in.read(text)


# supabase-js asks for WebSocket even where it is not used, which Node.js 20 has by this option alone.
PROGRAMS = {"js": "node --experimental-websocket", "python": "python"}


def of_clients() -> list[tuple[str, str]]:
    """Return the guides and chapters that show programs with clients."""
    guide = "docs/guides/clients.md"
    titles = [line[3:] for line in documents.read(guide).splitlines() if line.startswith("## ")]
    return [*((guide, title) for title in titles), ("docs/guides/from-supabase.md", "Clients")]


@pytest.mark.time_limit(180)  # the first run of a machine installs the packages
@pytest.mark.parametrize(("guide", "title"), of_clients())
async def test_clients_print_what_their_guide_shows(
    guide: str, title: str, signed_in: Story, npm_clients: Path, reactor: Any
) -> None:
    text = documents.chapter(documents.read(guide), title)
    languages = {block.language for block in documents.blocks(text)}
    if "js" in languages:
        await install(reactor, npm_clients, *CLIENTS)
        packages = signed_in.folder / "node_modules"
        if not packages.exists():
            packages.symlink_to(npm_clients / "node_modules")
            (signed_in.folder / "package.json").write_text('{"type": "module"}')
    assert languages & {*PROGRAMS, "sh"}
    signed_in.read(text, PROGRAMS)
