"""Parses ``If-Match`` and ``If-None-Match`` and evaluates them (RFC 9110 section 13).

Only requests with one of these headers use this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from dataapi.http.errors import ApiError

MATCH, NONE_MATCH, UNMODIFIED = "if-match", "if-none-match", "if-unmodified-since"

# Excludes the characters that RFC 9110 forbids. Compiling a set of the allowed characters would take as long
# as a hundred requests.
_ENTITY_TAG = r'(?:W/)?"[^\x00-\x20\x22\x7f]*"'
_ENTITY_TAGS = re.compile(rf"(?:[ \t]*,)*[ \t]*{_ENTITY_TAG}(?:[ \t]*,(?:[ \t]*{_ENTITY_TAG})?)*")
_EACH = re.compile(_ENTITY_TAG)
_COUNTED = re.compile(r'("[0-9a-f]{32})-[0-9]+"')


class Compared(Enum):
    """Kinds of preconditions: whether rows exist, or whether their entity tag matches."""

    EXISTENCE = "existence"
    CONTENT = "content"
    """The entity tag of the response to a read."""


class Preconditions(NamedTuple):
    """Entity tags in ``If-Match`` and ``If-None-Match``: empty for ``*``, None if the header is absent."""

    match: frozenset[str] | None
    none_match: frozenset[str] | None

    @property
    def compared(self) -> Compared:
        return Compared.CONTENT if self.match or self.none_match else Compared.EXISTENCE

    def failed(self, tag: str | None, *, exists: bool) -> str | None:
        """Return the name of the first header whose condition is not met, None if all are met.

        ``tag`` is the current entity tag, None if there is none. ``exists`` is true if there are rows.
        """
        if self.match is not None and not (tag in self.match if self.match else exists):
            return MATCH
        if self.none_match is not None:
            weak = tag is not None and (tag in self.none_match or f"W/{tag}" in self.none_match)
            if weak if self.none_match else exists:
                return NONE_MATCH
        return None

    def without_totals(self) -> Preconditions:
        return Preconditions(_without_totals(self.match), _without_totals(self.none_match))


def _without_totals(tags: frozenset[str] | None) -> frozenset[str] | None:
    return None if tags is None else frozenset(_COUNTED.sub(r'\1"', tag) for tag in tags)


def read_preconditions(headers: Mapping[str, str]) -> Preconditions | None:
    """Return the conditions of a request, None if there are none.

    :raises ApiError: PGRST100 (400) for an invalid header.
    """
    match, none_match = _read(headers, MATCH), _read(headers, NONE_MATCH)
    return None if match is None and none_match is None else Preconditions(match, none_match)


def _read(headers: Mapping[str, str], name: str) -> frozenset[str] | None:
    value = headers.get(name)
    if value is None:
        return None
    value = value.strip(" \t")
    if value == "*":
        return frozenset()
    if _ENTITY_TAGS.fullmatch(value) is None:
        raise ApiError(
            400,
            "PGRST100",
            f'invalid value for "{name.title()}": "{value[:60]}"',
            details="Expected * or a comma-separated list of entity tags in double quotes.",
        )
    return frozenset(_EACH.findall(value))


def precondition_failed(name: str, details: str | None = None) -> ApiError:
    return ApiError(
        412,
        "PRECONDITION_FAILED",
        f"The condition of the header {name.title()} is not met",
        details=details,
        hint="Read the rows again, and repeat the request if it still applies.",
    )


def unsupported_condition(details: str, hint: str | None = None) -> ApiError:
    """Return the error for a condition that cannot be checked. A condition is never ignored."""
    # The status is not 501, because clients and proxies treat 501 as a failure of the server.
    return ApiError(
        412, "PGRST127", "Feature not implemented", details=f"{details} Nothing was changed.", hint=hint
    )
