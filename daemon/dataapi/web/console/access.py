"""Who may open the console, and which requests come from the console itself (docs/console.md, Security)."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from dataapi.http.errors import ApiError
from dataapi.http.messages import Request
from dataapi.settings import Project

_FORWARDING = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers that proxies add: who sends one is not known by the connection's address."""

_DELIVERED = "webhook-id"
"""A header of every delivery, which no endpoint can leave out: the daemon's own requests are no person's."""

_OWN = ("same-origin", "none")
"""Values of ``Sec-Fetch-Site`` where no other site is involved."""


def is_local(request: Request) -> bool:
    """Whether a person at this machine sent the request, to a name of this machine.

    An endpoint's URL that leads back to the daemon makes nobody a person here.
    """
    return comes_from_here(request) and _DELIVERED not in request.headers


def comes_from_here(request: Request) -> bool:
    """Whether a program of this machine sent the request, to a name of this machine.

    The name is checked because a foreign site can have its own name lead to this machine.
    """
    return (
        _is_loopback(request.peer)
        and _is_loopback_name(request.headers.get("host", ""))
        and not any(name in request.headers for name in _FORWARDING)
    )


def may_open(project: Project, request: Request) -> bool:
    """Whether the client may open the console, by the key ``console``."""
    return project.console == "yes" or (project.console == "local" and is_local(request))


def may_try(project: Project, request: Request) -> bool:
    """Whether receivers for trying are there for the client: where the console is for this machine alone."""
    return project.console == "local" and comes_from_here(request)


def check_own(request: Request) -> None:
    """Refuse what a page of another origin sent; opening an address is no such request.

    :raises ApiError: 403.
    """
    headers = request.headers
    origin = headers.get("origin")
    opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    foreign = headers.get("sec-fetch-site", "none") not in _OWN and not opened
    if foreign or (origin is not None and origin.partition("://")[2] != headers.get("host")):
        raise ApiError(403, "CROSS_ORIGIN_REQUEST", "The console answers pages of its own origin alone")


@lru_cache(maxsize=256)
def _is_loopback(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


def _is_loopback_name(host: str) -> bool:
    """Whether a ``Host`` header names this machine itself."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".") == "localhost" or _is_loopback(name)
