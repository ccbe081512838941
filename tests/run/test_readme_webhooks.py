"""The README's way from nothing to a delivery, and docs/webhooks.md, as a reader pastes them into a shell."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.webhooks.secrets import new_key
from support import documents
from support.daemon import JWT_SECRET, PATIENCE, Daemon, environment, wait_for
from support.documents import Block, fits, pattern
from support.readme_receivers import PYTHON_PLAIN, Running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database, Server

START = documents.chapter(documents.read("README.md"), "Webhooks")
MORE = documents.read("docs/webhooks.md")
PLUGINS = documents.chapter(MORE, "Plugins")


class Story:
    """A reader's shell, with what the documents have them start; use it as a context manager."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self.database = database
        self.daemon = Daemon(folder, database.uri, environ={"PYTHONPATH": str(folder)})
        self.daemon.config = folder / "my.ini"
        self.receiver: Running | None = None
        self.said: list[Any] = []
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environ = environment({"PATH": path, "PYTHONPATH": str(folder)})

    def __enter__(self) -> Story:
        """Put the documented plugins where they are found."""
        plugins = self.folder / "dataapi" / "plugins"
        plugins.mkdir(parents=True)
        for number, block in enumerate(block for block in documents.blocks(PLUGINS)):
            assert block.language == "python"
            (plugins / f"documented_{number}.py").write_text(block.text)
        return self

    def __exit__(self, *_: object) -> None:
        """End the receiver and the daemon."""
        if self.receiver is not None:
            self.receiver.end()
            self.daemon.__exit__()

    def read(self, text: str) -> None:
        """Do what a document says, block by block, and see that it is as it says."""
        for block, after in itertools.pairwise([*documents.blocks(text), Block("", "", 0)]):
            if block.language == "sql":
                self.database.execute(block.text)
            elif block.language == "ini":
                self._configure(block.text)
            elif block.language == "sh":
                if "127.0.0.1:9000" in block.text:
                    self._start()
                shown = pattern(after.text) if after.language == "json" else None
                wait_for(lambda: self._shell(block.text, shown), block.text)  # noqa: B023 - called at once

    def _configure(self, text: str) -> None:
        values = {"jwt-secret": JWT_SECRET, "encryption-key": new_key()}
        for name, value in values.items():
            (self.folder / name).write_text(value)
            text = text.replace(f"@/etc/dataapi/{name}", f"@{self.folder / name}")
        text = text.replace("postgresql://authenticator@127.0.0.1/app", self.database.uri)
        ports = (
            f"listen = tcp:{self.daemon.port}:interface=127.0.0.1\n"
            f"admin-listen = tcp:{self.daemon.admin_port}:interface=127.0.0.1\n"
        )
        self.daemon.config.write_text(f"[dataapi]\n{ports}\n{text}")

    def _start(self) -> None:
        self.receiver = Running(PYTHON_PLAIN, self.folder, self.environ["WEBHOOK_SECRET"])
        self.daemon.start()
        self.daemon.wait_ready()
        wait_for(lambda: self.daemon.admin("GET", "/ready").json["webhooks"]["ready"], "webhooks")

    def _shell(self, script: str, shown: Any) -> bool:
        """Run a script, whose variables the next one finds; tell whether it prints what is shown of it."""
        script = script.replace("127.0.0.1:8000", f"127.0.0.1:{self.daemon.port}")
        if self.receiver is not None:
            script = script.replace("127.0.0.1:9000", f"127.0.0.1:{self.receiver.port}")
        kept = self.folder / "environment"
        done = subprocess.run(
            ["bash", "-euc", f"set -a\n{script}\nenv -0 > {kept}"],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self.environ = dict(one.split("=", 1) for one in kept.read_text().split("\0") if one)
        self.said = [json.loads(line) for line in _documents(done.stdout)] if "curl" in script else []
        assert not any("error" in document for document in self.said), self.said
        return shown is None or fits(self.said[-1], shown)


def _documents(text: str) -> list[str]:
    """Return the JSON documents of an output, which stand one after the other without line ends."""
    return [part for part in text.replace("}{", "}\n{").splitlines() if part]


@pytest.fixture(scope="module")
def story(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Give the place where the README's way has been gone."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed, which the examples use")
    with Story(tmp_path_factory.mktemp("story"), server.create_database()) as gone:
        gone.read(START)
        yield gone


def test_the_steps_lead_to_a_verified_delivery(story: Story) -> None:
    """From the empty database on: the event was delivered once, and the receiver verified it."""
    [delivery] = story.said[-1]["data"]
    assert story.receiver is not None
    assert story.receiver.handled == [delivery["attributes"]["event_id"]]


def test_the_page_goes_on_from_there(story: Story) -> None:
    """Every command of docs/webhooks.md works and answers as it says."""
    [delivery] = story.said[-1]["data"]
    story.environ["DELIVERY"] = delivery["id"]
    story.environ["ENDPOINT"] = delivery["attributes"]["endpoint_id"]
    story.read(MORE.replace(PLUGINS, ""))
    assert story.receiver is not None
    # The first event and its retry, the one over HTTP; by that type the test event without a type, too.
    wait_for(lambda: len(story.receiver.handled) >= 3, "the deliveries")  # type: ignore[union-attr]
    rows = story.database.execute("select has_function_privilege('service_role', oid, 'execute') from pg_proc"
                                  " where oid = 'webhooks.publish'::regproc")  # fmt: skip
    assert rows == [(True,)]


def test_the_plugins_are_found(story: Story) -> None:
    """Both versions of the catalogue's type go out; the source has raised its event once."""
    payload = json.dumps({"total": {"amount": 5, "currency": "EUR"}})
    story.read(
        "```sh\ndataapi event publish v2.shop.order --organization acme --project abcdefghijklmnopqrst "
        f"--payload '{payload}' --config my.ini\n```\n"
    )
    sent = "select body::jsonb #> '{payload,total}' from webhooks.event where type = '%s'"
    wait_for(lambda: story.database.execute(sent % "v1.shop.order"), "the older version")
    assert story.database.execute(sent % "v1.shop.order") == [(5,)]
    assert story.database.execute(sent % "v2.shop.order") == [({"amount": 5, "currency": "EUR"},)]
    raised = story.database.execute("select count(*) from webhooks.idempotency where key like 'backup of %'")
    assert raised == [(1,)]
    assert "left out" not in story.daemon.text
