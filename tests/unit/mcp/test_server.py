"""Hostile messages to a project's tools, without a database."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from dataapi.auth.caller import Caller
from dataapi.http.headers import Headers
from dataapi.http.messages import Reply, Request
from dataapi.mcp.server import ToolServer
from support.agent import message
from support.deferreds import outcome
from support.memory_http import PROJECT

CALLER = Caller("anon", "{}")


async def echo(request: Request, _caller: Caller) -> Reply:
    return Reply(200, (("Content-Type", "application/json"),), request.body or b"[]")


SERVER = ToolServer(PROJECT, echo, cast("Any", None), lambda: None, writes=True)


def handle(body: bytes, headers: dict[str, str]) -> Reply:
    reply: Reply = outcome(SERVER.handle(Request("1", "POST", "/mcp", "", Headers(headers), body), CALLER))
    json.loads(reply.body)
    return reply


PLACES: list[dict[str, Any]] = [
    {"name": "call_function", "arguments": {"function": "f", "arguments": {"a": "HERE"}}},
    {"name": "read_rows", "arguments": {"table": "t", "filters": {"a": "HERE"}}},
    {"name": "read_rows", "arguments": {"table": "HERE"}},
    {"name": "read_rows", "arguments": "HERE"},
    {"name": "insert_rows", "arguments": {"table": "t", "rows": [{"a": "HERE"}]}},
]


@pytest.mark.parametrize("params", PLACES, ids=str)
def test_nested_values_are_handled_or_rejected_at_every_depth(params: dict[str, Any]) -> None:
    headers, body = message("tools/call", params)
    statuses = set()
    for depth in (*range(1, 1000), 5000):
        nested = b"[" * depth + b"]" * depth
        statuses.add(handle(body.replace(b'"HERE"', nested), headers).status)
    assert statuses <= {200, 400}


def test_nested_name_is_rejected_at_every_depth() -> None:
    headers, body = message("tools/call", {"name": "x"})
    del headers["mcp-name"]
    headers["mcp-protocol-version"] = "2025-11-25"
    plain = json.loads(body)
    plain["params"] = {"name": "HERE"}
    for depth in range(1, 1000):
        nested = b"[" * depth + b"]" * depth
        reply = handle(json.dumps(plain).encode().replace(b'"HERE"', nested), headers)
        assert json.loads(reply.body)["error"]["code"] in (-32602, -32600, -32700)
