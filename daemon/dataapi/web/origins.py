"""Detects requests from this machine, and requests that a page on another site sent through a browser."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

_OWN = ("same-origin", "none")
"""Values of ``Sec-Fetch-Site`` for requests from the same origin, or started by the user."""


def is_of_another_site(headers: Mapping[str, str]) -> bool:
    """Return whether a page on another site sent the request, according to the browser."""
    return headers.get("sec-fetch-site", "none") not in _OWN


def is_of_another_origin(headers: Mapping[str, str]) -> bool:
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")


@lru_cache(maxsize=256)
def is_loopback(address: str) -> bool:
    parsed = _address(address)
    return parsed is not None and parsed.is_loopback


def is_loopback_name(host: str) -> bool:
    name = _name(host)
    return name == "localhost" or is_loopback(name)


def may_be_rebound(host: str, own_name: str) -> bool:
    """Return whether a ``Host`` header is a foreign name that may point to this machine (DNS rebinding)."""
    name = _name(host)
    return name not in ("localhost", own_name.lower()) and _address(name) is None


def _name(host: str) -> str:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(text)
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return mapped or parsed
