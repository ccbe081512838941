"""docs/tutorial.md, from a server without the API's roles to a delivered webhook, command by command."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from dataapi.service.provisioning import removal_sql
from support import documents
from support.daemon import wait_for
from support.postgres import Server
from support.story import Story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUDO = """#!/bin/sh
# sudo -u postgres COMMAND
shift 2
PGHOST={host} PGUSER=postgres exec "$@"
"""


@pytest.fixture
def bare() -> Iterator[Server]:
    """Give a server as Debian installs it: without the API's roles, and with passwords over TCP."""
    made = Server()
    try:
        made.create()
        if shutil.which("curl") is None or not made.has_program("createdb"):
            pytest.skip("curl or createdb is not installed, which the tutorial uses")
        made.require_password("authenticator")
        made.admin.execute(removal_sql(webhooks=True))
        yield made
    finally:
        made.remove()


def test_the_tutorial_leads_to_a_delivery(bare: Server, tmp_path: Path) -> None:
    """Every command answers as it says, and the receiver verifies the event of the last note."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("createdb", "psql"):
        (programs / name).symlink_to(bare.program(name))
    (programs / "sudo").write_text(SUDO.format(host=bare.folder))
    (programs / "sudo").chmod(0o755)
    environ = {"PGPORT": str(bare.port)}
    with Story(tmp_path, bare.database("app"), "dataapi.ini", environ) as story:
        story.environ["PATH"] = f"{programs}:{story.environ['PATH']}"
        story.read(documents.read("docs/tutorial.md"))
        receiver = story.receiver
        assert receiver is not None
        wait_for(lambda: "v1.note.created" in receiver.text, "the event")
    owners = bare.database("app").execute("select owner, count(*) from note group by 1 order by 1")
    assert owners == [("ada", 2), ("bob", 1)]
