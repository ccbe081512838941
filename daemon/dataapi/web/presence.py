"""Finds out whether a client that sends no more waits for its answer, or is gone.

Either looks the same: an end of input.  Only one that is gone refuses what it is sent, and before an answer
that may be an interim response, which clients of HTTP/1.1 skip (RFC 9110 section 15.2).
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

_EVERY = 0.25
"""Seconds between two looks; answers that come within the first ones are not preceded by anything."""

_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


class Presence:
    """Watches one connection from the end of its input on.

    :param transport: a plain connection, on which nothing is read any more.
    :param may_ask: whether an interim response may be sent now.
    """

    def __init__(
        self,
        transport: Any,
        call_later: Callable[..., Any],
        may_ask: Callable[[], bool],
        gone: Callable[[], object],
    ) -> None:
        self._transport = transport
        self._call_later = call_later
        self._may_ask = may_ask
        self._gone = gone
        self._asked = False
        self._timer = call_later(_EVERY, self._look)

    def _look(self) -> None:
        # As nothing is read, the reactor hears of a refusal only with the next thing that is sent.
        if self._transport.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._gone()
            return
        if not self._asked and self._may_ask():
            self._asked = True
            self._transport.write(_INTERIM)
        self._timer = self._call_later(_EVERY, self._look)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer.active():
            self._timer.cancel()
