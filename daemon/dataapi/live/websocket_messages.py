"""Messages of GraphQL over WebSocket, subprotocol ``graphql-transport-ws``.

See docs/reference/graphql.md, WebSockets, for the messages and close codes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from websockets.frames import Close, Frame, Opcode
from websockets.typing import Subprotocol

from dataapi.http.strict_json import DECODER, INVALID_JSON

SUBPROTOCOL = Subprotocol("graphql-transport-ws")

RESTART = 1012, "The daemon is shutting down"
FORBIDDEN = 4403
"""Close code for rejected or expired credentials. Clients reconnect with new credentials."""
UNAUTHORIZED = 401

_CREDENTIALS = ("apikey", "authorization")
_HEADER_VALUE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]*")
_MAX_ID = 256
"""Maximum length of an operation's identifier. Every result repeats the identifier."""
_MAX_REASON = 123
"""Maximum size of a close reason in bytes (RFC 6455 section 5.5)."""
_ERROR = b'"type":"error"'


class InvalidMessage(Exception):
    """Raised for a message that the protocol does not allow."""


class ClientMessage(NamedTuple):
    """A message from a client.

    :ivar id: identifier of the operation, "" unless the type is ``subscribe`` or ``complete``.
    :ivar body: the payload of ``subscribe`` as JSON, as in a POST request.
    """

    type: str
    id: str = ""
    payload: Mapping[str, Any] = {}
    body: bytes = b""


def parse(data: bytes) -> ClientMessage:
    """Parse a message. Raises ``InvalidMessage`` with the expected form."""
    try:
        text = data.decode()
        members = DECODER.decode(text)
    except INVALID_JSON:
        members = None
    match members:
        case {"type": "connection_init" | "ping" | "pong" as kind}:
            payload = members.get("payload")
            if payload is None or isinstance(payload, dict):
                return ClientMessage(kind, payload=payload or {})
            raise InvalidMessage(f'invalid "payload" of {kind} (expected an object)')
        case {"type": "subscribe", "id": str(identifier), "payload": dict(payload)} if _is_valid(identifier):
            # A message without escapes contains no lone surrogates, so its payload can be encoded without
            # escapes.
            body = json.dumps(payload, ensure_ascii="\\u" in text, separators=(",", ":"))
            return ClientMessage("subscribe", identifier, body=body.encode())
        case {"type": "complete", "id": str(identifier)} if _is_valid(identifier):
            return ClientMessage("complete", identifier)
        case {"type": "subscribe" | "complete" as kind}:
            expected = 'expected an "id" of 1 to 256 characters, and an object "payload" for subscribe'
            raise InvalidMessage(f"invalid message {kind} ({expected})")
        case {"type": _}:
            raise InvalidMessage(
                'invalid "type" (expected connection_init, ping, pong, subscribe or complete)'
            )
    raise InvalidMessage('invalid message (expected text, a JSON object with the member "type")')


def _is_valid(identifier: str) -> bool:
    return 0 < len(identifier) <= _MAX_ID


def credentials(payload: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers in the payload of ``connection_init`` or ``ping``: API key and token.

    The headers are members of the payload or of its member ``headers``. Their names are case-insensitive.

    :raises InvalidMessage: a value is not text.
    """
    nested, found = payload.get("headers"), {}
    for members in (nested if isinstance(nested, dict) else {}, payload):
        for name, value in members.items():
            if name.lower() in _CREDENTIALS and value is not None:
                if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
                    raise InvalidMessage(f"invalid payload.{name} (expected the value of a header)")
                found[name.lower()] = value
    return found


def headers(received: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in received.items() if name not in ("connection", "upgrade")}
    return {**kept, "accept": "application/json", "content-type": "application/json"}


def fitting(reason: str) -> str:
    return reason.encode("utf-8", "replace")[:_MAX_REASON].decode("utf-8", "ignore")


# ---------------------------------------------------------------- frames


def plain(kind: str, **members: str) -> bytes:
    """Return a message without a payload."""
    return Frame(Opcode.TEXT, json.dumps({**members, "type": kind}).encode()).serialize(mask=False)


# A result is two frames. All subscribers share the bytes of the second frame.
def beginning(identifier: str) -> bytes:
    """Return the first frame of a result: the identifier that the client has chosen."""
    return Frame(Opcode.TEXT, f'{{"id":{json.dumps(identifier)},'.encode(), fin=False).serialize(mask=False)


def result(body: bytes) -> bytes:
    return _rest(b'"type":"next"', body)


def failure(response: bytes, status: int = 200) -> bytes:
    """Return the second frame of an error message, for a GraphQL response without ``data``.

    For an authentication error, return a frame that closes the connection instead.
    """
    members = json.loads(response)
    errors = members.get("errors") or [members]  # errors of API keys have only a message and a hint
    if status == UNAUTHORIZED:
        return closing(FORBIDDEN, errors[0]["message"])
    return _rest(_ERROR, json.dumps(errors, separators=(",", ":")).encode())


def closing(code: int, reason: str) -> bytes:
    return Frame(Opcode.CLOSE, Close(code, fitting(reason)).serialize()).serialize(mask=False)


def _rest(kind: bytes, payload: bytes) -> bytes:
    return Frame(Opcode.CONT, b'%b,"payload":%b}' % (kind, payload)).serialize(mask=False)


def is_failure(frame: memoryview) -> bool:
    return _ERROR in bytes(frame[:30])


def parse_closing(frame: memoryview) -> tuple[int, str] | None:
    """Return the code and the reason of a frame that closes the connection, or None for other frames."""
    if frame[0] & 0x0F != Opcode.CLOSE:
        return None
    close = Close.parse(bytes(frame[2:]))
    return close.code, close.reason
