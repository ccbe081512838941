"""The examples of docs/mcp.md: SQL, requests, and configuration files of agents."""

from __future__ import annotations

import json
import tomllib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.mcp import tools
from dataapi.service.configuration import load
from support import documents
from support.memory_http import KEY

if TYPE_CHECKING:
    from pathlib import Path

    from support.service import Service

GUIDE = documents.read("docs/mcp.md")
SCHEMA = next(block.text for block in documents.blocks(GUIDE) if block.language == "sql")
PROJECT = {"tools": False}
EXAMPLES = [
    (shell.text, shown.text)
    for shell, shown in pairwise(documents.blocks(GUIDE))
    if shell.text.startswith("curl") and shown.language == "json"
]


def blocks(title: str, language: str) -> list[str]:
    found = documents.blocks(documents.chapter(GUIDE, title))
    return [block.text for block in found if block.language == language]


@pytest.mark.parametrize(("command", "shown"), EXAMPLES)
async def test_request_has_the_documented_response(service: Service, command: str, shown: str) -> None:
    [request] = documents.requests(command, {"API": "http://127.0.0.1", "KEY": KEY})
    assert request.body is not None
    answer = await service.post(request.target, request.body.encode(), headers=request.headers)
    assert documents.fits(answer.body, documents.pattern(shown)), answer.text


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 3


async def test_sql_of_the_role_runs(service: Service) -> None:
    [text] = blocks("Which role to use", "sql")
    service.database.execute(text)
    service.database.execute("drop owned by reporting_agent; drop role reporting_agent")


@pytest.mark.parametrize("title", ["Enable MCP", "Writes", "Sign in with OAuth"])
def test_configuration_is_valid(title: str, tmp_path: Path) -> None:
    [text] = blocks(title, "ini")
    keys = (
        "db-uri = postgresql://authenticator@127.0.0.1/app\npublishable-keys = sb_publishable_of_this_test\n"
    )
    text = (
        text.replace("[project]\n", f"[project]\n{keys}")
        if "[project]" in text
        else f"{text}[project]\n{keys}"
    )
    (tmp_path / "dataapi.ini").write_text(text)
    settings = load(tmp_path / "dataapi.ini", {})
    assert settings.mcp
    assert settings.mcp_writes is (title == "Writes")


@pytest.mark.parametrize("agent", ["Claude Code", "Cursor"])
def test_files_of_agents_are_json_with_both_headers(agent: str) -> None:
    [text] = blocks(agent, "json")
    [server] = json.loads(text)["mcpServers"].values()
    assert server["url"].endswith("/mcp")
    assert {name.lower() for name in server["headers"]} == {"apikey", "authorization"}


def test_file_of_codex_is_toml() -> None:
    [text] = blocks("Codex", "toml")
    [server] = tomllib.loads(text)["mcp_servers"].values()
    assert server["url"].endswith("/mcp")


def test_table_of_tools_has_all_tools_with_their_arguments() -> None:
    rows: dict[str, set[str]] = {}
    for line in documents.chapter(GUIDE, "Tools").splitlines():
        if line.startswith("| `"):
            _, name, arguments, *_ = line.split("|")
            rows[name.strip(" `")] = {each.strip(" `") for each in arguments.split(",")}
    known: dict[str, Any] = tools.definitions(writes=True)
    assert rows == {name: set(tool["inputSchema"]["properties"]) for name, tool in known.items()}
