"""Access rules of the console, and the origin checks of its requests (docs/console.md, Security)."""

from __future__ import annotations

from dataapi.http.errors import ApiError
from dataapi.http.messages import Request
from dataapi.settings import Project
from dataapi.web.origins import is_loopback, is_loopback_name, is_of_another_origin, is_of_another_site

_FORWARDING = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers that proxies add. Behind a proxy, the connection's address does not identify the client."""

_DELIVERY_HEADER = "webhook-id"
"""A header of every delivery. Endpoint settings cannot remove it, so it identifies the daemon's requests."""


def is_local(request: Request) -> bool:
    """Return whether a user of this machine sent the request to localhost or a loopback address.

    Deliveries to an endpoint URL on this machine come from the daemon, not from a user.
    """
    return is_from_this_machine(request) and _DELIVERY_HEADER not in request.headers


def is_from_this_machine(request: Request) -> bool:
    """Return whether a program on this machine sent the request to localhost or a loopback address.

    The name is checked because another site may point its own name to this machine (DNS rebinding).
    """
    return (
        is_loopback(request.peer)
        and is_loopback_name(request.headers.get("host", ""))
        and not any(name in request.headers for name in _FORWARDING)
    )


def may_open(project: Project, request: Request) -> bool:
    return project.console == "yes" or (project.console == "local" and is_local(request))


def may_use_receivers(project: Project, request: Request) -> bool:
    return project.console == "local" and is_from_this_machine(request)


def check_origin(request: Request) -> None:
    """Reject requests from pages on other origins, unless the browser opens the console's URL as a document.

    :raises ApiError: 403.
    """
    headers = request.headers
    opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if (is_of_another_site(headers) and not opened) or is_of_another_origin(headers):
        raise ApiError(403, "CROSS_ORIGIN_REQUEST", "The console only accepts requests from its own pages")
