"""The bytes of an answer's head and the text of a request's: pure, and on every request's path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus} | {
    413: "HTTP/1.1 413 Content Too Large\r\n",
    414: "HTTP/1.1 414 URI Too Long\r\n",
    499: "HTTP/1.1 499 Client Closed Request\r\n",
}

_BODILESS = frozenset((204, 304))
_FORBIDDEN = re.compile(r"[\r\n\0]")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_BEGUN = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([!-~]{1,2000})")
_KNOWN_NAMES: dict[bytes, str] = {}


def head(
    status: int, headers: Iterable[tuple[str, str]], length: int | None, reason: str | None = None
) -> bytes:
    """Write the status line and the headers, with ``Content-Length`` where the status has a body.

    A line end within a value, which could begin another header, becomes a space.

    :param length: of the body; None when it is yet unknown.
    :param reason: the reason phrase, None for the status's own.
    """
    if reason is None:
        lines = [_STATUS_LINES.get(status) or f"HTTP/1.1 {status} Unknown Status\r\n"]
    else:
        lines = [f"HTTP/1.1 {status} {_FORBIDDEN.sub(' ', reason)}\r\n"]
    for name, value in headers:
        if "\n" in value or "\r" in value or "\0" in value:
            value = _FORBIDDEN.sub(" ", value)  # noqa: PLW2901 - the safe form replaces it for good
        lines.append(f"{name}: {value}\r\n")
    has_length = length is not None and status not in _BODILESS
    lines.append(f"Content-Length: {length}\r\n\r\n" if has_length else "\r\n")
    return "".join(lines).encode("utf-8", "replace")


def has_body(status: int) -> bool:
    """Whether answers of this status carry a body."""
    return status not in _BODILESS


def header_texts(raw: Iterable[tuple[bytes, Sequence[bytes]]]) -> dict[str, str]:
    """Return request headers as text: names in lower case, repeated ones joined."""
    headers = {}
    for name, values in raw:
        text = _KNOWN_NAMES.get(name) or _name(name)
        value = values[0] if len(values) == 1 else (b"; " if text == "cookie" else b", ").join(values)
        try:
            headers[text] = value.decode()
        except UnicodeDecodeError:
            headers[text] = value.decode("latin-1")
    return headers


def _name(name: bytes) -> str:
    text = name.decode("latin-1").lower()
    if len(_KNOWN_NAMES) < 500 and len(name) <= 100:
        _KNOWN_NAMES[name] = text
    return text


def begun_request_line(line: bytes) -> tuple[bytes, bytes, bytes]:
    """Return what can be read of a request line that is not whole, or none: method, target and version."""
    found = _BEGUN.match(line)
    return (found[1], found[2], b"HTTP/1.1") if found else (b"-", b"-", b"HTTP/1.1")


def sane_request_id(given: str | None) -> str | None:
    """Return the client's ``X-Request-Id`` when it is fit for logs and headers, else None."""
    return given if given and _REQUEST_ID.fullmatch(given) else None
