"""The media types that a database declares: domains named like one, and aggregates that make such values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataapi.catalog.model import Acl, Type

ANY_MEDIA_TYPE = "*/*"
"""The name of the domain of functions and aggregates that choose the media type themselves."""

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9.+-]+")


@dataclass(frozen=True, slots=True)
class MediaHandler:
    """An aggregate of an exposed schema that turns rows into a media type.

    Its result is a domain that is named like the media type.

    :ivar media_type: in small letters; ``*/*`` for any.
    :ivar table: the oid of the table whose rows it takes, or 0 for rows of any.
    :ivar type: the result's oid.
    """

    media_type: str
    schema: str
    name: str
    table: int
    type: int
    acl: Acl


def media_type_of(type_: Type) -> str | None:
    """Return the media type that a domain is named like, in small letters; None for any other type."""
    return media_type_named(type_.name) if type_.base else None  # only a domain has a base


def media_type_named(name: str) -> str | None:
    """Return the media type that the name of a domain spells, in small letters; None when it spells none."""
    return name.lower() if name == ANY_MEDIA_TYPE or _MEDIA_TYPE.fullmatch(name) else None
