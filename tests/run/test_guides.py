"""Guides that continue from the tutorial, run on its database and daemon."""

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
def test_commands_of_a_guide_print_the_documented_output(guide: str, signed_in: Story) -> None:
    text = documents.read(guide)
    assert any(block.language == "sh" for block in documents.blocks(text))
    signed_in.read(text)


# supabase-js requires WebSocket even if it is unused; Node.js 20 needs this option to provide it.
PROGRAMS = {"js": "node --experimental-websocket", "python": "python"}


def client_chapters() -> list[tuple[str, str]]:
    """Return the guides and chapters that contain client programs."""
    guide = "docs/guides/clients.md"
    titles = [line[3:] for line in documents.read(guide).splitlines() if line.startswith("## ")]
    return [*((guide, title) for title in titles), ("docs/guides/from-supabase.md", "Clients")]


@pytest.mark.time_limit(180)  # the first run installs the packages
@pytest.mark.parametrize(("guide", "title"), client_chapters())
async def test_client_programs_print_the_documented_output(
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
