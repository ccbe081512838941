"""``twistd -n dataapi --demo``: its banner, its commands and its cleanup."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dataapi.service.demo import DEMO_REF
from support.daemon import PATIENCE, wait_for
from support.demo import RunningDemo

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.direct("the daemon has a PostgreSQL of its own")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """Yield a demo that all tests of this module share. The last test stops it."""
    match = RunningDemo(tmp_path_factory.mktemp("demo"))
    yield match
    match.kill()


def test_printed_graphql_command_works(running: RunningDemo) -> None:
    response = running.pasted(0)
    assert "errors" not in response
    first = response["data"]["blogCollection"]["edges"][0]["node"]
    assert (first["name"], first["owner"]) == ("Tides and Tables", {"firstName": "Ada"})
    posts = first["blogPostCollection"]["edges"]
    assert posts[0]["node"] == {"title": "Policies are fences", "wordCount": 10}
    assert len(posts) == 2, "anonymous callers cannot see the draft"


def test_printed_rest_command_works(running: RunningDemo) -> None:
    assert running.pasted(1) == [
        {"player": "ada", "score": 310},
        {"player": "chiyo", "score": 275},
        {"player": "bruno", "score": 190},
    ]


def test_printed_token_delivers_a_test_event(running: RunningDemo) -> None:
    receiver = running.send("POST", "/console/data/receivers", {})
    scope = f"/v2/projects/{DEMO_REF}/webhooks/endpoints"
    attributes = {
        "url": receiver["url"],
        "signing_secret": receiver["secret"],
        "event_types": [{"type": "*"}],
    }
    document = {"data": {"type": "endpoint", "attributes": attributes}}
    endpoint = running.send("POST", scope, document)["data"]["id"]
    running.send("POST", f"{scope}/{endpoint}/test", {})
    path = f"/console/data/receivers/{receiver['name']}"
    [received] = wait_for(lambda: running.send("GET", path)["received"], "the delivery")
    assert (received["problem"], received["answer"]) == ("", 200)
    assert json.loads(received["body"])["payload"]["is_test"] is True


def test_ctrl_c_stops_the_demo_and_removes_its_files(running: RunningDemo) -> None:
    match = re.search(r"host=(\S+?)&", running.text)
    assert match is not None
    folder = Path(match[1].replace("%2F", "/")).parent
    assert folder.is_dir()
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(PATIENCE) == -signal.SIGINT
    assert not folder.exists()
