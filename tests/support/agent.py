"""A client of the Model Context Protocol that checks the members that all responses have."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataapi.mcp import tools
from dataapi.mcp.protocol import STATELESS
from jsonschema import Draft202012Validator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.service import Answer, Service

META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def message(method: str, params: Mapping[str, Any] | None = None) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of an MCP request in the version without sessions."""
    params = {**(params or {}), "_meta": META}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": STATELESS,
        "mcp-method": method,
    }
    if "name" in params:
        headers["mcp-name"] = params["name"]
    return headers, json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


@dataclass
class Agent:
    """An MCP client that sends requests with a role.

    :ivar answers: all responses, newest last.
    """

    service: Service
    role: str = "anon"
    answers: list[Answer] = field(default_factory=list)

    async def send(self, method: str, params: Mapping[str, Any] | None = None, **headers: str) -> Answer:
        own, body = message(method, params)
        own |= {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.service.post("/mcp", body, role=self.role, headers=own)
        self.answers.append(answer)
        return answer

    async def result(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return the result after checking it against the tool's schema."""
        answer = await self.send("tools/call", {"name": tool, "arguments": arguments})
        assert answer.status == 200, answer.text
        result: dict[str, Any] = answer.body["result"]
        [content] = result["content"]
        assert content["type"] == "text"
        assert json.loads(content["text"]) == result["structuredContent"]
        definition = tools.definitions(writes=True)[tool]
        Draft202012Validator(definition["outputSchema"]).validate(result["structuredContent"])
        return result

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool that succeeds, and return its structured content."""
        result = await self.result(tool, **arguments)
        assert not result["isError"], result["structuredContent"]
        return result["structuredContent"]

    async def fail(self, tool: str, **arguments: Any) -> Any:
        """Call a tool that fails, and return its error."""
        result = await self.result(tool, **arguments)
        assert result["isError"], result["structuredContent"]
        return result["structuredContent"]
