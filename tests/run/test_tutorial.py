"""From a server without the API's roles: the README's way to an answer, the tutorial's to a webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import documents
from support.daemon import wait_for
from support.story import Story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Server


@pytest.fixture
def story(cluster: Server, tmp_path: Path) -> Iterator[Story]:
    """Give a reader whose server has neither the API's roles nor the database ``app``."""
    with Story.on_debian(tmp_path, cluster) as made:
        yield made


def test_the_readme_leads_to_an_answer_from_ones_own_database(story: Story) -> None:
    """Five commands and a request, as they are typed."""
    story.read(documents.chapter(documents.read("README.md"), "Use your own database"))
    assert story.said == [[{"id": 1, "body": "Hello"}]]
    ready = story.daemon.admin
    wait_for(lambda: "permission denied" in ready("GET", "/ready").json["webhooks"]["reason"], "webhooks")
    assert not [line for line in story.daemon.lines if line["level"] != "info"], "nothing is wrong"


def test_the_tutorial_leads_to_a_delivery(story: Story) -> None:
    """Every command answers as it says, and the receiver verifies the event of the last note."""
    story.read(documents.read("docs/tutorial.md"))
    receiver = story.receiver
    assert receiver is not None
    wait_for(lambda: "v1.notebook.note" in receiver.text, "the event")
    owners = story.database.execute("select owner, count(*) from note group by 1 order by 1")
    assert owners == [("ada", 2), ("bob", 1)]
