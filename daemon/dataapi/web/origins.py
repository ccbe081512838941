"""Which requests come from this machine, and which a page of a foreign site has a browser send."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

_OWN = ("same-origin", "none")
"""Values of ``Sec-Fetch-Site`` where no other site is involved."""


def is_of_another_site(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that a page of another site had it send the request."""
    return headers.get("sec-fetch-site", "none") not in _OWN


def is_of_another_origin(headers: Mapping[str, str]) -> bool:
    """Whether the page that sent the request has another origin than the one that it asks."""
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")


@lru_cache(maxsize=256)
def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own."""
    found = _address(address)
    return found is not None and found.is_loopback


def is_loopback_name(host: str) -> bool:
    """Whether a ``Host`` header names this machine itself."""
    name = _name(host)
    return name == "localhost" or is_loopback(name)


def may_be_rebound(host: str, own_name: str) -> bool:
    """Whether a ``Host`` header has another name than this machine's, which its owner can have lead here."""
    name = _name(host)
    return name not in ("localhost", own_name.lower()) and _address(name) is None


def _name(host: str) -> str:
    """Return the name or address of a ``Host`` header."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
