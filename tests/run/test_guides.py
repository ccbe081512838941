"""Guides that continue from the tutorial, run on its database and daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support import documents
from support.node import CLIENTS, GENERATORS, install

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


# supabase-js requires WebSocket even if unused. Node.js 20 provides it only with this option.
PROGRAMS = {"js": "node --experimental-websocket", "python": "python"}


def client_chapters() -> list[tuple[str, str]]:
    """Return the guides and chapters that contain client programs."""
    guide = "docs/guides/clients.md"
    titles = [line[3:] for line in documents.read(guide).splitlines() if line.startswith("## ")]
    return [*((guide, title) for title in titles), ("docs/guides/from-supabase.md", "Clients")]


def use_packages(story: Story, directory: Path) -> None:
    packages = story.folder / "node_modules"
    packages.unlink(missing_ok=True)
    packages.symlink_to(directory / "node_modules")
    (story.folder / "package.json").write_text('{"type": "module"}')


@pytest.mark.time_limit(180)  # the first run installs the packages
@pytest.mark.parametrize(("guide", "title"), client_chapters())
async def test_client_programs_print_the_documented_output(
    guide: str, title: str, signed_in: Story, npm_clients: Path, reactor: Any
) -> None:
    text = documents.chapter(documents.read(guide), title)
    languages = {block.language for block in documents.blocks(text)}
    if "js" in languages:
        await install(reactor, npm_clients, *CLIENTS)
        use_packages(signed_in, npm_clients)
    assert languages & {*PROGRAMS, "sh"}
    signed_in.read(text, PROGRAMS)


TYPES = "docs/guides/types.md"
COMPILED = {"ts": "npx tsc && node --experimental-websocket program.js #"}
"""Compiles the program, including statements with expected type errors, and runs it."""


def configure_compiler(story: Story, packages: Path) -> None:
    """Write the documented ``tsconfig.json`` to the project's directory and to the packages' directory.

    hey-api searches for the file in the directories above its package, not above the symbolic link.
    """
    chapter = documents.chapter(documents.read(TYPES), "supabase-js and postgrest-js")
    [options] = [block.text for block in documents.blocks(chapter) if block.language == "json"]
    for directory in (story.folder, packages):
        (directory / "tsconfig.json").write_text(options)


@pytest.mark.time_limit(180)  # the first run installs the packages
async def test_typed_programs_compile_and_print_the_documented_output(
    signed_in: Story, npm_clients: Path, reactor: Any
) -> None:
    await install(reactor, npm_clients, *CLIENTS)
    use_packages(signed_in, npm_clients)
    configure_compiler(signed_in, npm_clients)
    for title in ("supabase-js and postgrest-js", "Check the file in CI"):
        signed_in.read(documents.chapter(documents.read(TYPES), title), COMPILED)


@pytest.mark.time_limit(240)  # the first run installs the packages
async def test_generated_clients_compile_and_print_the_documented_output(
    signed_in: Story, npm_generators: Path, reactor: Any
) -> None:
    await install(reactor, npm_generators, *GENERATORS)
    use_packages(signed_in, npm_generators)
    configure_compiler(signed_in, npm_generators)
    signed_in.read(documents.chapter(documents.read(TYPES), "OpenAPI generators"), COMPILED)
