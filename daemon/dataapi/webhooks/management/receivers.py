"""Checks where an endpoint's URL leads before it is kept (reference/webhooks.md section 4)."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, TimeoutError  # noqa: A004 - Twisted's own

from dataapi.webhooks import urls
from dataapi.webhooks.management import refusals
from dataapi.webhooks.resolver import AddressRefused, Unresolvable, Vetting

WITHIN = 5.0
"""Seconds that the look-up of a receiver's name may take."""


class Receivers:
    """Judges URLs of endpoints.

    :param vetting: looks up and checks addresses, the operator's networks exempt.
    """

    def __init__(self, reactor: Any, vetting: Vetting, *, require_https: bool) -> None:
        self._reactor = reactor
        self._vetting = vetting
        self._require_https = require_https

    async def check(self, url: str) -> None:
        """Return when a delivery may be sent to the URL.

        :raises ManagementError: it is invalid, does not resolve in time, or leads to a reserved address.
        """
        try:
            target = urls.parse(url, require_https=self._require_https, allowed=self._vetting.allowed)
        except urls.UrlRefused as refused:
            raise refusals.invalid_url(str(refused)) from None
        looking = Deferred.fromCoroutine(self._vetting.addresses(target))
        try:
            await looking.addTimeout(WITHIN, self._reactor)
        except (Unresolvable, TimeoutError):
            raise refusals.unresolvable(f"{target.host} has no address") from None
        except AddressRefused:
            raise refusals.reserved_address(f"An address of {target.host} is reserved") from None
