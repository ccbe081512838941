"""Definitions of the tools, and their translation to REST requests.

All texts of the tools are constants in ``tools.json``. Nothing from the database becomes part of a
description or an instruction (docs/mcp.md, Hostile text).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jsonschema import Draft202012Validator

from dataapi.auth.caller import REST_PREFIX
from dataapi.http.errors import ApiError
from dataapi.http.headers import Headers
from dataapi.http.messages import Request
from dataapi.http.strict_json import encode
from dataapi.rest.batch import inherited_headers
from dataapi.rest.parse.body import JSON
from dataapi.rest.parse.query import RESERVED
from dataapi.rest.parse.request import FUNCTIONS
from dataapi.rest.respond import TOO_MANY, violated

LIST, DESCRIBE, READ, CALL = "list_tables", "describe_table", "read_rows", "call_function"
INSERT, UPDATE, DELETE = WRITES = "insert_rows", "update_rows", "delete_rows"

_FILE: dict[str, Any] = json.loads(files("dataapi.mcp").joinpath("tools.json").read_text("utf-8"))
INSTRUCTIONS: str = _FILE["instructions"]


@cache
def definitions(*, writes: bool) -> dict[str, dict[str, Any]]:
    return {name: _definition(name, writes) for name in _FILE["tools"] if writes or name not in WRITES}


def _definition(name: str, writes: bool) -> dict[str, Any]:
    tool = _FILE["tools"][name]
    changes = name in WRITES or (writes and name == CALL)
    results = {
        each: _FILE["results"][each] for each in (*tool["results"], "code", "message", "details", "hint")
    }
    return {
        "name": name, "title": tool["title"], "description": tool["description"],
        "inputSchema": {
            "type": "object", "required": tool["required"], "additionalProperties": False,
            "properties": {each: _FILE["arguments"][each] for each in tool["arguments"]},
        },
        # The schema also allows errors, because some clients validate error results.
        "outputSchema": {
            "type": "object", "properties": results,
            "anyOf": [{"required": tool["results"][:1]}, {"required": ["code", "message"]}],
        },
        "annotations": {
            "readOnlyHint": not changes, "openWorldHint": False,
            "destructiveHint": changes and name != INSERT,
        },
    }  # fmt: skip


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(definitions(writes=True)[name]["inputSchema"])


def check(name: str, arguments: Mapping[str, Any]) -> None:
    """Check the arguments of a tool.

    :raises ApiError: PGRST102 (400) with the first problem.
    """
    for problem in _validator(name).iter_errors(arguments):
        place = [str(step) for step in problem.absolute_path]
        message = f'Invalid value for "{place[0]}"' if place else "Invalid arguments"
        described = _FILE["arguments"][place[0]]["description"] if place else None
        raise ApiError(400, "PGRST102", message, details=problem.message[:200], hint=described)


def rest_request(http: Request, name: str, arguments: Mapping[str, Any]) -> Request:
    """Return the REST request for a tool call. ``http`` is the caller's request.

    :raises ApiError: PGRST100 for invalid filters, PGRST124 for too many rows.
    """
    if name == INSERT and len(arguments["rows"]) > number(arguments, "max_affected"):
        raise violated(TOO_MANY, len(arguments["rows"]))
    own = {"accept": JSON, "content-type": JSON, "prefer": _preferences(name, arguments)}
    headers = Headers(inherited_headers(http) | own)
    if "schema" in arguments:
        headers["accept-profile" if name in (DESCRIBE, READ) else "content-profile"] = arguments["schema"]
    target = f"{FUNCTIONS}{_segment(arguments['function'])}" if name == CALL else _segment(arguments["table"])
    method, body = _FILE["tools"][name]["rest"]
    return http._replace(
        method=method,
        path=f"{REST_PREFIX}/{target}",
        query="&".join([f"{_quoted(key)}={_quoted(value)}" for key, value in _parameters(name, arguments)]),
        headers=headers,
        body=encode(arguments.get(body, {})).encode() if body else b"",
    )


def number(arguments: Mapping[str, Any], name: str) -> int:
    return int(arguments.get(name, _FILE["arguments"][name]["default"]))


def _parameters(name: str, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for column, values in arguments.get("filters", {}).items():
        # A filter with the name of a REST parameter, such as limit, would replace that parameter.
        if column in RESERVED - {"and", "or"}:
            raise ApiError(
                400, "PGRST100", f'"{column}" is not a filter', hint="Use the tool's own argument."
            )
        for value in values if isinstance(values, list) else [values]:
            yield column, value
    parameters = {"select": "select", "returning": "select", "order": "order"}
    yield from ((each, arguments[given]) for given, each in parameters.items() if given in arguments)
    if name in (READ, CALL):
        yield "limit", str(number(arguments, "limit"))
        yield "offset", str(number(arguments, "offset"))


def _preferences(name: str, arguments: Mapping[str, Any]) -> str:
    if name not in WRITES:
        return f"count={arguments['count']}" if "count" in arguments else ""
    returned = "representation" if "returning" in arguments else "minimal"
    limit = "" if name == INSERT else f", handling=strict, max-affected={number(arguments, 'max_affected')}"
    return f"return={returned}, count=exact{limit}"


def _segment(name: str) -> str:
    """Return a name as a part of ``Request.path``, in which only slashes and percent signs are encoded."""
    return re.sub("[%/]", lambda match: quote(match[0], safe=""), name)


def _quoted(text: str) -> str:
    # REST rejects lone surrogates, because their bytes are not valid UTF-8.
    return quote(text, safe="", errors="surrogatepass")
