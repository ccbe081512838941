"""The webhook commands of the README and docs/webhooks.md, as a reader would paste them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from support import documents
from support.daemon import wait_for
from support.story import Story

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

START = documents.chapter(documents.read("README.md"), "Webhooks")
MORE = documents.read("docs/webhooks.md")
PLUGINS = documents.chapter(MORE, "Plugins")


@pytest.fixture(scope="module")
def story(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Yield a story after it has run the README's webhook chapter."""
    if shutil.which("curl") is None:
        pytest.skip("the examples need curl")
    folder = tmp_path_factory.mktemp("story")
    plugins = folder / "dataapi" / "plugins"
    plugins.mkdir(parents=True)
    for number, block in enumerate(documents.blocks(PLUGINS)):
        assert block.language == "python"
        (plugins / f"documented_{number}.py").write_text(block.text)
    with Story(folder, server.create_database()) as story:
        story.read(START)
        yield story


def test_readme_steps_end_with_a_verified_delivery(story: Story) -> None:
    [delivery] = story.said[-1]["data"]
    assert story.receiver is not None
    assert story.receiver.handled == [delivery["attributes"]["event_id"]]


def test_commands_of_the_webhooks_page_print_the_documented_output(story: Story) -> None:
    [delivery] = story.said[-1]["data"]
    story.environ["DELIVERY"] = delivery["id"]
    story.environ["ENDPOINT"] = delivery["attributes"]["endpoint_id"]
    story.environ["EVENT"] = delivery["attributes"]["event_id"]
    story.read(MORE.replace(PLUGINS, ""))
    assert story.receiver is not None
    # The first event, its retry, the event over HTTP, and the test event without a type.
    wait_for(lambda: len(story.receiver.handled) >= 3, "the deliveries")  # type: ignore[union-attr]
    rows = story.database.execute("select has_function_privilege('service_role', oid, 'execute') from pg_proc"
                                  " where oid = 'webhooks.publish'::regproc")  # fmt: skip
    assert rows == [(True,)]


def test_documented_plugins_are_loaded(story: Story) -> None:
    # Repeats a step of docs/webhooks.md, because another test process may have run that page.
    story.database.execute("update webhooks.endpoint set event_types = '{*}'")
    payload = json.dumps({"total": {"amount": 5, "currency": "EUR"}})
    story.read(
        "```sh\ndataapi event publish v2.shop.order --organization acme --project abcdefghijklmnopqrst "
        f"--payload '{payload}' --config my.ini\n```\n"
    )
    sent = "select body::jsonb #> '{payload,total}' from webhooks.event where body <> '' and type = '%s'"
    wait_for(lambda: story.database.execute(sent % "v1.shop.order"), "the older version")
    assert story.database.execute(sent % "v1.shop.order") == [(5,)]
    assert story.database.execute(sent % "v2.shop.order") == [({"amount": 5, "currency": "EUR"},)]
    raised = story.database.execute("select count(*) from webhooks.idempotency where key like 'backup of %'")
    assert raised == [(1,)]
    assert "left out" not in story.daemon.text
