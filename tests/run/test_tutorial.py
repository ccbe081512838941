"""The README and the tutorial, on a server without the API's roles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import jwt
import pytest
from support import documents
from support.daemon import JWT_SECRET, wait_for
from support.story import Story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Server

pytestmark = pytest.mark.direct("the documents connect to PostgreSQL itself")


@pytest.fixture
def story(cluster: Server, tmp_path: Path) -> Iterator[Story]:
    """Yield a story on a server with neither the API's roles nor the database ``app``."""
    with Story.on_debian(tmp_path, cluster) as made:
        yield made


def test_readme_commands_serve_your_own_database(story: Story) -> None:
    story.read(documents.chapter(documents.read("README.md"), "Use your own database"))
    assert story.said == [{"data": {"noteCollection": {"edges": [{"node": {"id": 1, "body": "Hello"}}]}}}]
    story.read("```sh\ndataapi check-config\n```\n")
    assert story.daemon.admin("GET", "/ready").json["webhooks"] is None
    assert not [line for line in story.daemon.lines if line["level"] != "info"], "no problems"


def test_readme_sql_and_configuration_serve_your_own_database(story: Story) -> None:
    """The README shows the SQL for administrators and a minimal configuration."""
    shown = documents.indented(documents.chapter(documents.read("README.md"), "Use your own database"))
    [sql] = [block for block in shown if block.startswith("create role")]
    [configuration] = [block for block in shown if block.startswith("[project]")]
    story.read("```sh\nsudo -u postgres createdb app\n```\n")
    story.database.execute("create table blog (id int primary key, name text)")
    story.database.execute(f"{sql}; alter role authenticator password 'of this test'")
    uri = story.database.uri.replace("authenticator@", "authenticator:of%20this%20test@")
    story.database = replace(story.database, uri=uri)
    story.read(f"```ini\n{configuration}```\n")
    key = jwt.encode({"role": "anon"}, JWT_SECRET, "HS256")
    story.read(f"```sh\ncurl -s http://127.0.0.1:8000/rest/v1/blog -H 'apikey: {key}'\n```\n")
    assert story.said == [[]]


def test_tutorial_ends_with_a_delivery(story: Story) -> None:
    story.read(documents.read("docs/tutorial.md"))
    receiver = story.receiver
    assert receiver is not None
    wait_for(lambda: "v1.notebook.note" in receiver.text, "the event")
    owners = story.database.execute("select owner, count(*) from note group by 1 order by 1")
    assert owners == [("ada", 2), ("bob", 1)]
