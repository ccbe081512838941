"""Messages of GraphQL over WebSocket."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dataapi.live import websocket_messages as messages
from dataapi.live.websocket_messages import ClientMessage, InvalidMessage
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader


def frames(data: bytes) -> list[Frame]:
    """Return the frames in the data."""
    reader = StreamReader()
    reader.feed_data(data)
    found: list[Frame] = []
    while reader.buffer:
        parsing = Frame.parse(reader.read_exact, mask=False)
        with pytest.raises(StopIteration) as end:
            next(parsing)
        found.append(end.value.value)
    return found


def message(data: bytes) -> Any:
    """Return the message in the frames of one message."""
    parts = frames(data)
    assert [part.opcode for part in parts] == [Opcode.TEXT, *[Opcode.CONT] * (len(parts) - 1)]
    assert [part.fin for part in parts] == [False] * (len(parts) - 1) + [True]
    return json.loads(b"".join(bytes(part.data) for part in parts))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"type":"connection_init"}', ClientMessage("connection_init")),
        ('{"type":"connection_init","payload":null}', ClientMessage("connection_init")),
        (
            '{"type":"connection_init","payload":{"apikey":"k"}}',
            ClientMessage("connection_init", payload={"apikey": "k"}),
        ),
        ('{"type":"ping","payload":{"a":1}}', ClientMessage("ping", payload={"a": 1})),
        ('{"type":"pong"}', ClientMessage("pong")),
        ('{"id":"1","type":"complete"}', ClientMessage("complete", "1")),
        (
            '{"id":"1","type":"subscribe","payload":{"query":"{ a }"}}',
            ClientMessage("subscribe", "1", body=b'{"query":"{ a }"}'),
        ),
    ],
)
def test_messages_are_parsed(text: str, expected: ClientMessage) -> None:
    assert messages.parse(text.encode()) == expected


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "invalid message (expected text, a JSON object"),
        (b"\xff", "invalid message (expected text, a JSON object"),
        (b"[]", "invalid message (expected text, a JSON object"),
        (b"[" * 10_000, "invalid message (expected text, a JSON object"),
        (b'{"payload":{}}', "invalid message (expected text, a JSON object"),
        (b'{"type":NaN}', "invalid message (expected text, a JSON object"),
        (b'{"type":"start","id":"1"}', 'invalid "type" (expected connection_init, ping'),
        (b'{"type":{}}', 'invalid "type" (expected connection_init, ping'),
        (b'{"type":"ping","payload":[]}', 'invalid "payload" of ping (expected an object)'),
        (b'{"type":"connection_init","payload":0}', 'invalid "payload" of connection_init'),
        (b'{"type":"subscribe","payload":{}}', 'invalid message subscribe (expected an "id"'),
        (b'{"type":"subscribe","id":"","payload":{}}', 'invalid message subscribe (expected an "id"'),
        (b'{"type":"complete","id":"%b"}' % (b"x" * 257), 'invalid message complete (expected an "id"'),
        (b'{"type":"subscribe","id":"1"}', 'invalid message subscribe (expected an "id"'),
        (b'{"type":"subscribe","id":"1","payload":null}', 'invalid message subscribe (expected an "id"'),
        (b'{"type":"complete","id":1}', 'invalid message complete (expected an "id"'),
    ],
)
def test_invalid_messages_are_rejected(data: bytes, error: str) -> None:
    with pytest.raises(InvalidMessage) as raised:
        messages.parse(data)
    assert str(raised.value).startswith(error)
    assert messages.fitting(str(raised.value)) == str(raised.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.binary()
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["ping", "subscribe"]) | JSON}, optional={"id": JSON, "payload": JSON}
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_input_is_parsed_or_rejected(data: bytes) -> None:
    try:
        parsed = messages.parse(data)
    except InvalidMessage:
        return
    if parsed.type == "subscribe":
        assert json.loads(parsed.body) == json.loads(data)["payload"]


@pytest.mark.parametrize(
    "payload",
    [
        {"apikey": "k", "authorization": "Bearer t"},
        {"apiKey": "k", "Authorization": "Bearer t"},
        {"headers": {"apikey": "k", "Authorization": "Bearer t", "x-other": 5}},
        {"headers": {"apikey": "other", "authorization": "Bearer t"}, "apikey": "k", "authorization": None},
    ],
)
def test_credentials_are_members_of_the_payload(payload: dict[str, Any]) -> None:
    assert messages.credentials(payload) == {"apikey": "k", "authorization": "Bearer t"}


@pytest.mark.parametrize("payload", [{}, {"headers": "apikey"}, {"other": "k"}, {"apikey": None}])
def test_payload_without_credentials_has_none(payload: dict[str, Any]) -> None:
    assert messages.credentials(payload) == {}


@pytest.mark.parametrize("value", [5, ["secret"], "secret\r\nrole: admin", "secret\0", "secret\ud800"])
def test_invalid_credentials_are_rejected_without_their_value(value: Any) -> None:
    with pytest.raises(InvalidMessage) as raised:
        messages.credentials({"headers": {"Authorization": value}})
    assert str(raised.value) == "invalid payload.Authorization (expected the value of a header)"


@given(st.text(min_size=1), st.dictionaries(st.text(), st.text()))
def test_results_are_frames_of_one_message(identifier: str, data: dict[str, str]) -> None:
    body = json.dumps({"data": data}).encode()
    sent = messages.beginning(identifier) + messages.result(body)
    assert message(sent) == {"id": identifier, "type": "next", "payload": {"data": data}}
    assert not messages.is_failure(memoryview(messages.result(body)))
    assert messages.parse_closing(memoryview(messages.result(body))) is None


@pytest.mark.parametrize(
    ("response", "errors"),
    [
        ({"errors": [{"message": "a"}, {"message": "b"}]}, [{"message": "a"}, {"message": "b"}]),
        ({"message": "m", "hint": "h"}, [{"message": "m", "hint": "h"}]),
    ],
)
def test_failures_contain_the_errors(response: Any, errors: Any) -> None:
    frame = messages.failure(json.dumps(response).encode())
    assert message(messages.beginning("1") + frame) == {"id": "1", "type": "error", "payload": errors}
    assert messages.is_failure(memoryview(frame))


def test_authentication_errors_close_the_connection() -> None:
    frame = messages.failure(b'{"errors":[{"message":"JWT expired"}]}', 401)
    assert messages.parse_closing(memoryview(frame)) == (4403, "JWT expired")


@given(st.text())
def test_close_reasons_fit(reason: str) -> None:
    [frame] = frames(messages.closing(4400, reason))
    assert len(frame.data) <= 125
    parsed = messages.parse_closing(memoryview(messages.closing(4400, reason)))
    assert parsed is not None
    assert reason.startswith(parsed[1]) or "\ufffd" in parsed[1] or "?" in parsed[1]


def test_messages_without_payload() -> None:
    assert message(messages.plain("connection_ack")) == {"type": "connection_ack"}
    assert message(messages.plain("complete", id='"')) == {"type": "complete", "id": '"'}
