"""``twistd -n dataapi --demo``: what a newcomer sees, pastes, and leaves behind."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest
from dataapi.service.demo import DEMO_REF
from support.daemon import PATIENCE, TWISTD, environment, wait_for
from support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.direct("the daemon has a PostgreSQL of its own")


class RunningDemo:
    """A demo in a process of its own, its output read until the banner is complete."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "output"
        listen = f"tcp:{free_port()}:interface=127.0.0.1"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [TWISTD, "-n", "--pidfile=", "dataapi", "--demo", "--listen", listen],
                cwd=folder,
                env=environment({"DATAAPI_DATAAPI_ADMIN_LISTEN": f"tcp:{free_port()}:interface=127.0.0.1"}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_for(self._complete, "the banner")

    @property
    def text(self) -> str:
        """What it printed so far."""
        return self._output.read_text("utf-8")

    def _complete(self) -> bool:
        assert self.process.poll() is None, self.text
        return "add -H" in self.text

    def send(self, method: str, path: str, document: Any = None) -> Any:
        """Send a request with the printed token of webhooks and return the parsed answer."""
        [base] = re.findall(r"Console +(http://\S+)/console", self.text)
        [token] = re.findall(r"dapat_[\w-]+", self.text)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = None if document is None else json.dumps(document).encode()
        with urlopen(Request(base + path, body, headers, method=method), timeout=PATIENCE) as response:
            return json.load(response)

    def pasted(self, number: int) -> Any:
        """Send what the banner's curl command sends and return the parsed answer."""
        command = self.text.replace("\\\n", " ").split("  curl ")[number + 1]
        words = shlex.split(command.partition("\n")[0])
        options = dict(itertools.pairwise(words))
        [url] = [word for word in words if word.startswith("http://")]
        headers = [words[at + 1] for at, word in enumerate(words) if word == "-H"]
        body = options["-d"].encode() if "-d" in options else None
        request = Request(url, body, dict(re.split(r":\s*", header, maxsplit=1) for header in headers))
        with urlopen(request, timeout=PATIENCE) as response:
            return json.load(response)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """Give a demo that the tests share and the last one ends."""
    found = RunningDemo(tmp_path_factory.mktemp("demo"))
    yield found
    if found.process.poll() is None:
        found.process.kill()
        found.process.wait()


def test_printed_graphql_command_answers(running: RunningDemo) -> None:
    answer = running.pasted(0)
    assert "errors" not in answer
    first = answer["data"]["blogCollection"]["edges"][0]["node"]
    assert (first["name"], first["owner"]) == ("Tides and Tables", {"firstName": "Ada"})
    posts = first["blogPostCollection"]["edges"]
    assert posts[0]["node"] == {"title": "Policies are fences", "wordCount": 10}
    assert len(posts) == 2, "the draft is not for anonymous callers"


def test_printed_rest_command_answers(running: RunningDemo) -> None:
    assert running.pasted(1) == [
        {"player": "ada", "score": 310},
        {"player": "chiyo", "score": 275},
        {"player": "bruno", "score": 190},
    ]


def test_the_printed_token_sends_a_test_event_to_a_receiver_of_the_demo(running: RunningDemo) -> None:
    """Nothing else is needed to see a first webhook: the demo may deliver to its own machine."""
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


def test_ctrl_c_ends_it_and_leaves_nothing(running: RunningDemo) -> None:
    found = re.search(r"host=(\S+?)&", running.text)
    assert found is not None
    folder = Path(found[1].replace("%2F", "/")).parent
    assert folder.is_dir()
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(PATIENCE) == -signal.SIGINT
    assert not folder.exists()
