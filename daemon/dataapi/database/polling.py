"""Waiting for what libpq does step by step: connecting, and cancelling."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from psycopg.pq import PollingStatus
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReadWriteDescriptor
from zope.interface import implementer

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.python.failure import Failure


@implementer(IReadWriteDescriptor)
class Polling:
    """Asks libpq to go on whenever its socket is ready, until it is done.

    While libpq connects, its socket may change or be found dead; libpq is asked all the same, as only it
    knows why, and whether it tries another way.

    :param socket: returns the number of libpq's socket.
    :param poll: goes on, and returns the direction to wait for.
    """

    def __init__(self, reactor: Any, socket: Callable[[], int], poll: Callable[[], int]) -> None:
        self._reactor = reactor
        self._socket = socket
        self._poll = poll
        self._descriptor = -1
        self._done: Deferred[bool] = Deferred(lambda _: self._unwatch())

    def done(self) -> Deferred[bool]:
        """Begin; return a Deferred that fires when all is done, with False where that failed.

        Cancelling it ends the waiting.
        """
        self._watch(PollingStatus.WRITING)
        return self._done

    def give_up(self, error: Exception) -> None:
        """End the waiting; what ``done`` returned fails."""
        self._unwatch()
        self._done.errback(error)

    def fileno(self) -> int:
        """Return the descriptor for the reactor: a duplicate, as libpq may close its own at any time."""
        return self._descriptor

    def logPrefix(self) -> str:  # noqa: N802 - Twisted's name
        """Name this in Twisted's log."""
        return "libpq"

    def doRead(self) -> None:  # noqa: N802 - Twisted's name
        """Go on."""
        self._go_on()

    def doWrite(self) -> None:  # noqa: N802 - Twisted's name
        """Go on."""
        self._go_on()

    def connectionLost(self, _reason: Failure) -> None:  # noqa: N802 - Twisted's name
        """Go on."""
        if self._descriptor != -1:
            self._go_on()

    def _go_on(self) -> None:
        self._unwatch()
        status = self._poll()
        if status in (PollingStatus.READING, PollingStatus.WRITING):
            self._watch(status)
        else:
            self._done.callback(status == PollingStatus.OK)

    def _watch(self, status: int) -> None:
        self._descriptor = os.dup(self._socket())
        if status == PollingStatus.READING:
            self._reactor.addReader(self)
        else:
            self._reactor.addWriter(self)

    def _unwatch(self) -> None:
        if self._descriptor != -1:
            self._reactor.removeReader(self)
            self._reactor.removeWriter(self)
            os.close(self._descriptor)
            self._descriptor = -1
