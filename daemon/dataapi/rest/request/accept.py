"""Reads ``Accept`` headers; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PART = re.compile(r'(?:[^,"]|"[^"]*"?)+')
_FIELD = re.compile(r'(?:[^;"]|"[^"]*"?)+')


@dataclass(frozen=True, slots=True)
class Accepted:
    """One media range of an ``Accept`` header.

    :ivar name: without parameters, in small letters.
    :ivar parameters: name and value, without quotes; the weight is left out.
    """

    name: str
    parameters: tuple[tuple[str, str], ...] = ()

    def parameter(self, name: str) -> str | None:
        """Return the value of a parameter."""
        return next((value for known, value in self.parameters if known == name), None)


def parse_accept(header: str) -> list[Accepted]:
    """Return the media ranges of a header, the best liked first.

    The weight decides, then how exact a range is, then the order.
    """
    weighted = [_weighted(part) for part in _PART.findall(header) if part.strip()]
    liked = [(form, weight) for form, weight in weighted if weight > 0]
    liked.sort(key=lambda pair: (-pair[1], pair[0].name.count("*") - len(pair[0].parameters)))
    return [form for form, _ in liked]


def _weighted(text: str) -> tuple[Accepted, float]:
    name, _, fields = text.partition(";")
    parameters, weight = [], 1.0
    for field in _FIELD.findall(fields):
        key, _, value = field.partition("=")
        key = key.strip().lower()
        if key == "q":
            weight = _weight(value.strip())
        elif key:
            parameters.append((key, value.strip().strip('"')))
    return Accepted(name.strip().lower(), tuple(parameters)), weight


def _weight(text: str) -> float:
    return float(text) if re.fullmatch(r"[01](?:\.[0-9]{0,9})?", text) else 1.0
