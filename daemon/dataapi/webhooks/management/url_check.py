"""Checks the URL of an endpoint when it is created or changed."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, TimeoutError  # noqa: A004 - Twisted's own

from dataapi.webhooks.delivery import destinations
from dataapi.webhooks.delivery.resolver import AddressCheck, AddressRefused, Unresolvable
from dataapi.webhooks.management.errors import ErrorCode, Issue, IssueCode, ManagementError
from dataapi.webhooks.management.resources import ATTRIBUTES

RESOLVE_SECONDS = 5.0
"""Timeout for name resolution, in seconds."""


class EndpointUrlCheck:
    """Checks URLs of new and changed endpoints."""

    def __init__(self, reactor: Any, address_check: AddressCheck, *, require_https: bool) -> None:
        self._reactor = reactor
        self._address_check = address_check
        self._require_https = require_https

    async def check(self, url: str) -> None:
        """Raise ``ManagementError`` unless the URL is valid and resolves to public addresses in time."""
        try:
            destination = destinations.parse(
                url, require_https=self._require_https, allowed=self._address_check.allowed
            )
        except destinations.UrlRefused as error:
            raise _bad_url(ErrorCode.URL_INVALID, IssueCode.INVALID, str(error)) from None
        resolved = Deferred.fromCoroutine(self._address_check.addresses(destination))
        try:
            await resolved.addTimeout(RESOLVE_SECONDS, self._reactor)
        except (Unresolvable, TimeoutError):
            message = f"{destination.host} has no address"
            raise _bad_url(ErrorCode.URL_UNRESOLVABLE, IssueCode.UNRESOLVABLE, message) from None
        except AddressRefused:
            message = f"An address of {destination.host} is reserved"
            raise _bad_url(ErrorCode.URL_RESERVED, IssueCode.RESERVED_ADDRESS, message) from None


def _bad_url(code: ErrorCode, issue: IssueCode, message: str) -> ManagementError:
    return ManagementError(code, message, issues=(Issue(issue, message, f"{ATTRIBUTES}/url"),))
