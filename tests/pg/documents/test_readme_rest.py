"""The examples of docs/rest.md, run one after the other on the demo's database."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.service.configuration import load
from dataapi.service.demo import DemoKeys, demo_project
from support import documents
from support.documents import Block, Request, fits, pattern
from support.service import Answer, Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Server

TEXT = documents.read("docs/rest.md")
BLOCKS = documents.blocks(TEXT)
SECRET_KEY = "sb_secret_of_this_test"
REST = "/rest/v1/"
ANSWERS = ("json", "http", "text")


@pytest.fixture(scope="module")
def demo(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve the demo's database with what the demo allows."""
    database = server.create_database(
        (documents.ROOT / "daemon" / "dataapi" / "service" / "demo.sql").read_text()
    )
    shown = demo_project("", DemoKeys("", "", ""))
    allowed = {name: getattr(shown, name) for name in ("db_aggregates_enabled", "db_plan_enabled")}
    with serving(reactor, database, secret_keys=(SECRET_KEY,), **allowed) as service:
        yield service


@pytest.mark.time_limit(120)
async def test_every_example_is_answered_as_it_says(demo: Service) -> None:
    variables = {"REST": f"{demo.url}/rest/v1", "KEY": SECRET_KEY}
    answered = 0
    for block, after in itertools.pairwise([*BLOCKS, Block("", "", 0)]):
        if block.language == "sql":
            await demo.execute(block.text)
        if block.language != "sh" or not block.text.startswith("curl "):
            continue
        [request] = documents.requests(block.text, variables)
        answer = await _send(demo, request)
        answered += 1
        _check(block, request, answer, after if after.language in ANSWERS else None)
    assert answered > 15


async def _send(demo: Service, request: Request) -> Answer:
    assert request.target.startswith(REST)
    target = request.target.removeprefix(REST)
    return await demo.rest(request.method, target, request.body, headers=request.headers)


def _check(block: Block, request: Request, answer: Answer, shown: Block | None) -> None:
    where = f"docs/rest.md, line {block.line}: {answer.status} {answer.text}"
    if shown is not None and shown.language == "http":
        assert request.shows_head, where
        head, _, body = shown.text.partition("\n\n")
        status, *lines = head.splitlines()
        assert status.split()[1] == str(answer.status), where
        for name, value in (line.split(": ", 1) for line in lines):
            assert answer.headers[name.lower()] == value, where
        shown = replace(shown, language="json", text=body) if body else None
    else:
        assert answer.status < 400, where
    if shown is not None and shown.language == "json":
        assert fits(answer.body, pattern(shown.text)), where
    elif shown is not None:
        assert answer.text.rstrip() == shown.text.rstrip(), where


def test_the_configuration_is_good(tmp_path: Path) -> None:
    examples = [block.text for block in BLOCKS if block.language == "ini"]
    assert examples
    for number, text in enumerate(examples):
        file = tmp_path / f"{number}.ini"
        file.write_text(text)
        assert load(file, {}).projects
