"""From a server without the API's roles: the README's way to an answer, the tutorial's to a webhook."""

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


@pytest.fixture(scope="module")
def cluster() -> Iterator[Server]:
    """Give a server that takes passwords over TCP, as Debian's does."""
    made = Server()
    try:
        made.create()
        if shutil.which("curl") is None or not made.has_program("createdb"):
            pytest.skip("curl or createdb is not installed, which the documents use")
        made.require_password("authenticator")
        yield made
    finally:
        made.remove()


@pytest.fixture
def story(cluster: Server, tmp_path: Path) -> Iterator[Story]:
    """Give a reader whose server has neither the API's roles nor the database ``app``."""
    cluster.admin.execute("drop database if exists app with (force)")
    cluster.admin.execute(removal_sql(webhooks=True))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("createdb", "psql"):
        (programs / name).symlink_to(cluster.program(name))
    (programs / "sudo").write_text(SUDO.format(host=cluster.folder))
    (programs / "sudo").chmod(0o755)
    environ = {"PGPORT": str(cluster.port)}
    with Story(tmp_path, cluster.database("app"), "dataapi.ini", environ) as made:
        made.environ["PATH"] = f"{programs}:{made.environ['PATH']}"
        yield made


def test_the_readme_leads_to_an_answer_from_ones_own_database(story: Story) -> None:
    """Five commands and a request, as they are typed."""
    story.read(documents.chapter(documents.read("README.md"), "Use your own database"))
    assert story.said == [[{"id": 1, "body": "Hello"}]]


def test_the_tutorial_leads_to_a_delivery(story: Story) -> None:
    """Every command answers as it says, and the receiver verifies the event of the last note."""
    story.read(documents.read("docs/tutorial.md"))
    receiver = story.receiver
    assert receiver is not None
    wait_for(lambda: "v1.note.created" in receiver.text, "the event")
    owners = story.database.execute("select owner, count(*) from note group by 1 order by 1")
    assert owners == [("ada", 2), ("bob", 1)]
