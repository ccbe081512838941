"""Media types that a database declares as domains, for functions and aggregates that return them."""

from __future__ import annotations

import re

from dataapi.catalog.model import Type

ANY_MEDIA_TYPE = "*/*"

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9.+-]+")


def media_type_of(type_: Type) -> str | None:
    return media_type_named(type_.name) if type_.base else None  # only a domain has a base type


def media_type_named(name: str) -> str | None:
    return name.lower() if name == ANY_MEDIA_TYPE or _MEDIA_TYPE.fullmatch(name) else None
