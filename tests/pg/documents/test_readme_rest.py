"""The examples of docs/rest.md, run in order on the demo's database."""

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
RESPONSE_LANGUAGES = ("json", "http", "text")


@pytest.fixture(scope="module")
def demo(server: Server, reactor: Any) -> Iterator[Service]:
    database = server.create_database(
        (documents.ROOT / "daemon" / "dataapi" / "service" / "demo.sql").read_text()
    )
    expected = demo_project("", DemoKeys("", "", ""))
    names = ("db_aggregates_enabled", "db_plan_enabled", "rest_features")
    allowed = {name: getattr(expected, name) for name in names}
    with serving(reactor, database, secret_keys=(SECRET_KEY,), **allowed) as service:
        yield service


@pytest.mark.time_limit(120)
async def test_every_example_returns_its_documented_response(demo: Service) -> None:
    variables = {"REST": f"{demo.url}/rest/v1", "KEY": SECRET_KEY}
    count = 0
    for block, after in itertools.pairwise([*BLOCKS, Block("", "", 0)]):
        if block.language == "sql":
            await demo.execute(block.text)
        if block.language != "sh" or not block.text.startswith("curl "):
            continue
        [request] = documents.requests(block.text, variables)
        response = await _send(demo, request)
        count += 1
        _check(block, request, response, after if after.language in RESPONSE_LANGUAGES else None)
    assert count > 15


async def _send(demo: Service, request: Request) -> Answer:
    assert request.target.startswith(REST)
    target = request.target.removeprefix(REST)
    return await demo.rest(request.method, target, request.body, headers=request.headers)


def _check(block: Block, request: Request, response: Answer, expected: Block | None) -> None:
    context = f"docs/rest.md, line {block.line}: {response.status} {response.text}"
    if expected is not None and expected.language == "http":
        assert request.shows_head, context
        head, _, body = expected.text.partition("\n\n")
        status, *lines = head.splitlines()
        assert status.split()[1] == str(response.status), context
        for name, value in (line.split(": ", 1) for line in lines):
            assert response.headers[name.lower()] == value, context
        expected = replace(expected, language="json", text=body) if body else None
    else:
        assert response.status < 400, context
    if expected is not None and expected.language == "json":
        assert fits(response.body, pattern(expected.text)), context
    elif expected is not None:
        assert response.text.rstrip() == expected.text.rstrip(), context


def test_configuration_examples_are_valid(tmp_path: Path) -> None:
    examples = [block.text for block in BLOCKS if block.language == "ini"]
    assert examples
    for number, text in enumerate(examples):
        file = tmp_path / f"{number}.ini"
        file.write_text(text)
        assert load(file, {}).projects
