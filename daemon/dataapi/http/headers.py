"""Headers: ``Accept``, ``Content-Type``, valid names, and which ones SQL may set; pure."""

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

CALLER = "Accept-Profile, Authorization, apikey"
"""Members of ``Vary`` by which caches keep the answers to different callers apart.

Caches treat ``Authorization`` this way by themselves (RFC 9111 section 3.5), but not API keys.
"""


class Headers(dict[str, str]):
    """The headers of a request: names in lower case, the values of repeated headers joined.

    Requests of one connection may share them, so nothing changes them once they are parsed.
    """

    __slots__ = ("json",)

    json: str
    """The headers as a JSON object, which is written when it is first asked for."""

    def __getattr__(self, name: str) -> str:
        """Write the JSON object, which is missing."""
        if name != "json":
            raise AttributeError(name)
        self.json = json_object(self)
        return self.json


def json_object(members: Mapping[str, str]) -> str:
    """Return a JSON object with string values, in ASCII and without spaces."""
    return "{" + ",".join([f"{quoted(name)}:{quoted(value)}" for name, value in members.items()]) + "}"


@dataclass(frozen=True, slots=True)
class MediaType:
    """A media type of ``Content-Type``, or a range of them in ``Accept``.

    :ivar name: in lower case, without parameters.
    :ivar parameters: names in lower case and values without quotes; the weight ``q`` is not among them.
    :ivar weight: the value of ``q``, from 0 to 1; 1 where it is absent or malformed.
    """

    name: str
    parameters: tuple[tuple[str, str], ...] = ()
    weight: float = 1.0

    def parameter(self, name: str) -> str | None:
        """Return the value of a parameter, or None without it."""
        return next((value for known, value in self.parameters if known == name), None)


def parse_media_type(text: str) -> MediaType:
    """Read one media type with its parameters (RFC 9110 section 8.3.1)."""
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
    """Return the media ranges of an ``Accept`` header in their order (RFC 9110 section 12.5.1)."""
    return [parse_media_type(part) for part in _RANGE.findall(accept) if part.strip()]


def parse_accept(accept: str) -> list[MediaType]:
    """Return the acceptable media ranges of an ``Accept`` header, the most preferred first.

    The weight decides, then how specific a range is, then the order of the header.
    """
    acceptable = [each for each in parse_ranges(accept) if each.weight > 0]
    return sorted(acceptable, key=lambda each: (-each.weight, each.name.count("*") - len(each.parameters)))


def media_type(content_type: str) -> str:
    """Return the media type of a ``Content-Type`` header, in lower case and without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_name(name: str) -> bool:
    """Whether this is a valid header name; any other could end the header and begin the next one."""
    return _NAME.fullmatch(name) is not None


def may_be_chosen(name: str) -> bool:
    """Whether SQL and the configuration may set this header: it is valid and does not frame the message."""
    return is_name(name) and name.lower() not in _FRAMING


_TRACEPARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)


def continued_trace(header: str) -> str:
    """Return the ``traceparent`` by which a caller's trace goes on, "" for one that is not valid.

    A later version is read as the first one (W3C Trace Context, Versioning of traceparent).
    """
    found = _TRACEPARENT.fullmatch(header)
    if found is None or (found[1] == "00" and found[4]):
        return ""
    # Sampled, and random: other flags mean nothing yet.
    return f"00-{found[2]}-{int(found[3], 16) & 3:02x}"
