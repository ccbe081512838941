"""Waits for libpq's multi-step operations: connecting and cancelling."""

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
    """Polls libpq whenever its socket is ready, until the operation is complete.

    While libpq connects, its socket may change or be closed. libpq is polled even then, because only libpq
    can report the error or try another address.

    :param poll: continues the operation, and returns the direction to wait for.
    """

    def __init__(self, reactor: Any, socket: Callable[[], int], poll: Callable[[], int]) -> None:
        self._reactor = reactor
        self._socket = socket
        self._poll = poll
        self._descriptor = -1
        self._done: Deferred[bool] = Deferred(lambda _: self._unwatch())

    def done(self) -> Deferred[bool]:
        """Start polling. The Deferred fires with True if the operation succeeds, False if it fails."""
        self._watch(PollingStatus.WRITING)
        return self._done

    def fail(self, error: Exception) -> None:
        self._unwatch()
        self._done.errback(error)

    def fileno(self) -> int:
        """Return a duplicate of the descriptor, because libpq may close its own descriptor."""
        return self._descriptor

    def logPrefix(self) -> str:  # noqa: N802 - Twisted's name
        return "libpq"

    def doRead(self) -> None:  # noqa: N802 - Twisted's name
        self._continue()

    def doWrite(self) -> None:  # noqa: N802 - Twisted's name
        self._continue()

    def connectionLost(self, _reason: Failure) -> None:  # noqa: N802 - Twisted's name
        if self._descriptor != -1:
            self._continue()

    def _continue(self) -> None:
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
