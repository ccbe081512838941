"""Taking connections from a socket that several processes share."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

_log = Logger(namespace="dataapi.service")
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE = 1.0
"""Seconds without accepting after the system had no descriptor or memory left for a connection."""


@implementer(IReadDescriptor)
class Acceptor:
    """Accepts one connection each time the reactor comes round.

    Twisted's own port takes up to a hundred at once: whichever worker wakes first would serve
    all the connections that a client opens together, and the others none.

    :param descriptor: the bound socket; a duplicate is used.
    :param factory: makes the protocols; started here and stopped by ``stop``.
    """

    def __init__(self, reactor: Any, descriptor: int, factory: Any) -> None:
        self._reactor = reactor
        self._factory = factory
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._resume: Any = None
        factory.doStart()
        reactor.addReader(self)

    def fileno(self) -> int:
        """Return the descriptor that the reactor watches."""
        return self._socket.fileno()

    def logPrefix(self) -> str:  # noqa: N802 - ILoggingContext
        """Name this in the reactor's own complaints."""
        return "dataapi"

    def doRead(self) -> None:  # noqa: N802 - IReadDescriptor
        """Accept one connection, if another process did not take it first."""
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError, InterruptedError):
            return
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._pause(error)
            return
        with connection:
            try:
                self._reactor.adoptStreamConnection(connection.fileno(), connection.family, self._factory)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                # Otherwise the peer went away in the meantime.

    def connectionLost(self, reason: Failure) -> None:  # noqa: ARG002, N802 - IReadDescriptor
        """End, because the reactor does, or because the socket is broken."""
        self.stop()

    def stop(self) -> None:
        """Accept no more; the socket itself, and a ``unix:`` path, stay with whoever bound it."""
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if self._socket.fileno() != -1:
            self._reactor.removeReader(self)
            self._socket.close()
            self._factory.doStop()

    def _pause(self, error: OSError) -> None:
        _log.error("no connection can be accepted: {error}", error=os.strerror(error.errno or 0))
        self._reactor.removeReader(self)
        self._resume = self._reactor.callLater(_PAUSE, self._again)

    def _again(self) -> None:
        self._resume = None
        self._reactor.addReader(self)
