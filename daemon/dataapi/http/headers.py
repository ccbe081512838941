"""Parsing of HTTP headers, and the rules for headers that SQL may set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_FRAMING = frozenset(
    {"connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_RANGE = re.compile(r'(?:[^,"]|"[^"]*"?)+')
_PARAMETER = re.compile(r'(?:[^;"]|"[^"]*"?)+')
_WEIGHT = re.compile(r"[01](?:\.[0-9]{0,9})?")

CONDITIONAL_HEADERS = frozenset({"if-match", "if-none-match", "if-unmodified-since"})
"""Headers that make a request conditional on the state of its own target (RFC 9110 section 13.1)."""

WEBSOCKET = "websocket"

CALLER_VARY = "Accept-Profile, Authorization, apikey"
"""Members of ``Vary`` that make shared caches keep the responses of different callers apart.

Shared caches already treat ``Authorization`` this way (RFC 9111 section 3.5), but not API keys.
"""


class Headers(dict[str, str]):
    """Request headers: lower-case names, and repeated headers joined.

    Requests on one connection may share an instance, so it must not be modified after parsing.
    """

    __slots__ = ("json",)

    json: str
    """The headers as a JSON object, computed on first use."""

    def __getattr__(self, name: str) -> str:
        if name != "json":
            raise AttributeError(name)
        self.json = json_object(self)
        return self.json


def json_object(members: Mapping[str, str]) -> str:
    return "{" + ",".join([f"{quoted(name)}:{quoted(value)}" for name, value in members.items()]) + "}"


@dataclass(frozen=True, slots=True)
class MediaType:
    """A media type of ``Content-Type``, or a media range of ``Accept``.

    :ivar name: lower case, without parameters.
    :ivar parameters: lower-case names and unquoted values, without the weight ``q``.
    :ivar weight: value of ``q``, from 0 to 1 (default: 1, also if malformed).
    """

    name: str
    parameters: tuple[tuple[str, str], ...] = ()
    weight: float = 1.0

    def parameter(self, name: str) -> str | None:
        return next((value for known, value in self.parameters if known == name), None)


def parse_media_type(text: str) -> MediaType:
    rest = text.partition(";")[2]
    parameters, weight = [], 1.0
    for part in _PARAMETER.findall(rest):
        key, _, value = part.partition("=")
        key = key.strip().lower()
        if key == "q":
            weight = float(value) if _WEIGHT.fullmatch(value.strip()) else 1.0
        elif key:
            parameters.append((key, value.strip().strip('"')))
    return MediaType(media_type(text), tuple(parameters), weight)


def parse_ranges(accept: str) -> list[MediaType]:
    return [parse_media_type(part) for part in _RANGE.findall(accept) if part.strip()]


def parse_accept(accept: str) -> list[MediaType]:
    """Return the acceptable media ranges of an ``Accept`` header, most preferred first.

    Ranges are sorted by weight, then by specificity, then by their order in the header.
    """
    acceptable = [each for each in parse_ranges(accept) if each.weight > 0]
    return sorted(acceptable, key=lambda each: (-each.weight, each.name.count("*") - len(each.parameters)))


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


_HOST = re.compile(r"[A-Za-z0-9._-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")


def requested_address(headers: Mapping[str, str], *, secure: bool) -> tuple[str, str]:
    """Return the scheme and the host of a request's URL; the host is "" if it is missing or invalid.

    The scheme is ``https`` if the connection is secure or a proxy sends ``X-Forwarded-Proto: https``.
    """
    host = headers.get("host", "")
    scheme = "https" if secure or headers.get("x-forwarded-proto") == "https" else "http"
    return scheme, host if _HOST.fullmatch(host) else ""


# Only token characters are valid: a line break could inject another header.
def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


# Framing headers belong to the server.
def is_settable(name: str) -> bool:
    return is_name(name) and name.lower() not in _FRAMING


_TRACEPARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)


def parse_traceparent(header: str) -> str:
    """Return the ``traceparent`` to propagate, or "" if the header is invalid.

    Later versions are parsed like version 00 (W3C Trace Context, Versioning of traceparent).
    """
    match = _TRACEPARENT.fullmatch(header)
    if match is None or (match[1] == "00" and match[4]):
        return ""
    # Only the sampled and random flags are defined.
    return f"00-{match[2]}-{int(match[3], 16) & 3:02x}"
