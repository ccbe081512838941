"""Messages of the Model Context Protocol, in both revisions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dataapi.http.errors import ApiError
from dataapi.http.headers import Headers
from dataapi.http.messages import Request
from dataapi.mcp.protocol import INITIALIZED, SERVER, STATELESS, RpcError, RpcRequest, read
from hypothesis import given
from hypothesis import strategies as st
from support.agent import META, message

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
HEADERS, BODY = message("tools/call", {"name": "read_rows", "arguments": {"table": "t"}})


def http(text: bytes = BODY, **changed: Any) -> Request:
    changes = {name.replace("_", "-"): value for name, value in changed.items()}
    headers = {name: value for name, value in (HEADERS | changes).items() if value is not None}
    return Request("1", "POST", "/mcp", "", Headers(headers), text)


def body(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}, **members}).encode()


def refused(request: Request) -> tuple[int, int, dict[str, Any]]:
    """Return the HTTP status, the code and the body of the error that a request causes."""
    with pytest.raises(RpcError) as raised:
        read(request)
    answer = json.loads(raised.value.reply.body)
    return raised.value.reply.status, answer["error"]["code"], answer


def outcome(request: Request) -> str:
    """Return the protocol revision of a request, or the message of the error that the request causes."""
    try:
        return read(request).revision
    except RpcError as error:
        text: str = json.loads(error.reply.body)["error"]["message"]
        return text


def test_stateless_request_is_read() -> None:
    request = read(http())
    assert (request.method, request.id, request.revision) == ("tools/call", 1, STATELESS)
    assert request.params["arguments"] == {"table": "t"}


def test_stateless_response_says_which_server_it_is_from_and_that_it_is_complete() -> None:
    reply = RpcRequest("tools/list", "a", {}, STATELESS).respond('"tools":[]')
    result = json.loads(reply.body)["result"]
    assert result["resultType"] == "complete"
    assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": SERVER}
    earlier = RpcRequest("tools/list", "a", {}, INITIALIZED).respond('"tools":[]')
    assert json.loads(earlier.body) == {"jsonrpc": "2.0", "id": "a", "result": {"tools": []}}


def test_initialize_needs_no_version_header() -> None:
    request = read(http(body(method="initialize"), mcp_protocol_version=None))
    assert request.revision == INITIALIZED


def test_request_after_initialize_needs_only_the_version_header() -> None:
    request = read(http(body(), mcp_protocol_version=INITIALIZED, mcp_method=None, mcp_name=None))
    assert request.revision == INITIALIZED


@pytest.mark.parametrize("revision", [STATELESS, INITIALIZED])
def test_notification_has_no_id(revision: str) -> None:
    text = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'
    assert read(http(text, mcp_protocol_version=revision)).id is None


@pytest.mark.parametrize(
    "changed",
    [
        {"mcp_protocol_version": None},
        {"mcp_protocol_version": INITIALIZED},
        {"mcp_method": None},
        {"mcp_method": "tools/list"},
        {"mcp_name": None},
        {"mcp_name": "list_tables"},
        {"mcp_name": "=?base64?!!!?="},
        {"mcp_name": "=?base64?/w==?="},
    ],
)
def test_header_that_differs_from_the_body_is_rejected(changed: dict[str, Any]) -> None:
    status, code, answer = refused(http(**changed))
    assert (status, code, answer["id"]) == (400, -32020, 1)


def test_encoded_name_is_decoded_before_it_is_compared() -> None:
    assert read(http(mcp_name="=?base64?cmVhZF9yb3dz?=")).revision == STATELESS


@pytest.mark.parametrize("version", ["1900-01-01", "2025-06-18", "2026-07-28, 2026-07-28"])
def test_unsupported_version_is_rejected_with_the_supported_ones(version: str) -> None:
    meta = {**META, "io.modelcontextprotocol/protocolVersion": version}
    for params in ({"_meta": meta}, {}):
        status, code, answer = refused(http(body(params=params), mcp_protocol_version=version))
        assert (status, code) == (400, -32022)
        assert answer["error"]["data"] == {"supported": [STATELESS, INITIALIZED], "requested": version}


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
def test_stateless_request_without_its_metadata_is_rejected(missing: str) -> None:
    meta = {name: value for name, value in META.items() if not name.endswith(missing)}
    status, code, answer = refused(http(body(params={"_meta": meta})))
    assert (status, code) == (400, -32602)
    assert missing in answer["error"]["message"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"{", -32700),
        (b"\xff", -32700),
        (b'{"jsonrpc": "2.0", "id": NaN}', -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b"[" + BODY + b"]", -32600),
        (b"1", -32600),
        (body(jsonrpc="1.0"), -32600),
        (body(id=None), -32600),
        (body(id=True), -32600),
        (body(id=1.5), -32600),
        (body(method=5), -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', -32600),
        (body(params=[]), -32602),
    ],
)
def test_invalid_message_is_rejected(text: bytes, code: int) -> None:
    status, received, answer = refused(http(text))
    assert (status, received) == (400, code)
    assert answer["jsonrpc"] == "2.0"


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_only_json_is_accepted(media_type: str | None) -> None:
    with pytest.raises(ApiError) as raised:
        read(http(content_type=media_type))
    assert raised.value.status == 415


@given(JSON_VALUES, st.sampled_from([STATELESS, INITIALIZED, "", "x"]))
def test_any_json_is_read_or_rejected(value: Any, version: str) -> None:
    assert outcome(http(json.dumps(value).encode(), mcp_protocol_version=version))


@given(
    st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0")},
        optional={
            "id": JSON_VALUES,
            "method": st.sampled_from(["initialize", "tools/list", "tools/call"]) | st.text(),
            "params": JSON_VALUES
            | st.fixed_dictionaries({"_meta": JSON_VALUES | st.just(META)}, optional={"name": JSON_VALUES}),
        },
    )
)
def test_any_message_is_read_or_rejected(members: dict[str, Any]) -> None:
    assert outcome(http(json.dumps(members).encode()))
