"""Who may open the console, and which requests come from the console itself (docs/console.md, Security)."""

from __future__ import annotations

from dataapi.http.errors import ApiError
from dataapi.http.messages import Request
from dataapi.settings import Project
from dataapi.web.origins import is_loopback, is_loopback_name, is_of_another_origin, is_of_another_site

_FORWARDING = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers that proxies add: who sends one is not known by the connection's address."""

_DELIVERED = "webhook-id"
"""A header of every delivery, which no endpoint can leave out: the daemon's own requests are no person's."""


def is_local(request: Request) -> bool:
    """Whether a person at this machine sent the request, to a name of this machine.

    An endpoint's URL that leads back to the daemon does not make a client a person here.
    """
    return comes_from_here(request) and _DELIVERED not in request.headers


def comes_from_here(request: Request) -> bool:
    """Whether a program of this machine sent the request, to a name of this machine.

    The name is checked because a foreign site can have its own name lead to this machine.
    """
    return (
        is_loopback(request.peer)
        and is_loopback_name(request.headers.get("host", ""))
        and not any(name in request.headers for name in _FORWARDING)
    )


def may_open(project: Project, request: Request) -> bool:
    """Whether the client may open the console, by the key ``console``."""
    return project.console == "yes" or (project.console == "local" and is_local(request))


def may_try(project: Project, request: Request) -> bool:
    """Whether receivers for trying are there for the client: where the console is only for this machine."""
    return project.console == "local" and comes_from_here(request)


def check_own(request: Request) -> None:
    """Refuse what a page of another origin sent; opening an address is no such request.

    :raises ApiError: 403.
    """
    headers = request.headers
    opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if (is_of_another_site(headers) and not opened) or is_of_another_origin(headers):
        raise ApiError(403, "CROSS_ORIGIN_REQUEST", "The console only answers pages of its own origin")
