"""The protocol factory of the admin listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.protocol import Factory


class AdminListener(Factory):
    """Creates the site when the first client connects, because creating it imports twisted.web and Klein."""

    noisy = False

    def __init__(self, make_site: Callable[[], Any]) -> None:
        self._make_site = make_site
        self._site: Any = None

    def buildProtocol(self, addr: Any) -> Any:  # noqa: N802 - IProtocolFactory
        if self._site is None:
            self._site = self._make_site()
            self._site.doStart()
        return self._site.buildProtocol(addr)

    def stopFactory(self) -> None:  # noqa: N802 - Factory
        if self._site is not None:
            self._site.doStop()
