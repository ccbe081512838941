"""The media types that a database declares: domains named like one, and aggregates that make such values."""

from __future__ import annotations

import re

from dataapi.catalog.model import Type

ANY_MEDIA_TYPE = "*/*"
"""The name of the domain of functions and aggregates that choose the media type themselves."""

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9.+-]+")


def media_type_of(type_: Type) -> str | None:
    """Return the media type that a domain is named like, in small letters; None for any other type."""
    return media_type_named(type_.name) if type_.base else None  # only a domain has a base


def media_type_named(name: str) -> str | None:
    """Return the media type that the name of a domain spells, in small letters; None when it spells none."""
    return name.lower() if name == ANY_MEDIA_TYPE or _MEDIA_TYPE.fullmatch(name) else None
