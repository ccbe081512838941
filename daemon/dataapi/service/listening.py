"""Listening sockets: bound once, before anything else, then served by this process or its workers.

Binding happens synchronously while twistd may still be root and before it detaches, so a
taken port is reported on the terminal.  A bound socket queues connections but accepts
none until a process *adopts* it; one process and many go the same way.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure

from dataapi.service.acceptor import Acceptor

_BACKLOG = 1024
"""Connections that may wait to be accepted, unless the endpoint says ``backlog=``; Twisted's 50 are few."""


class StartFailed(Exception):
    """A part of the daemon cannot start; the text is for the operator."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A bound socket as it is handed to a process: its endpoint string and file descriptor."""

    description: str
    descriptor: int


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A bound socket that nobody accepts from yet.

    :ivar description: the endpoint string it was made from.
    :ivar port: Twisted's port, which keeps the file system entry of a ``unix:`` socket.
    """

    description: str
    port: Any

    @property
    def handed(self) -> Descriptor:
        """What a process needs to accept from it."""
        return Descriptor(self.description, int(self.port.fileno()))

    async def close(self) -> None:
        """Stop queueing; a ``systemd:`` socket is the service manager's and stays."""
        if self.description.startswith("systemd:") and _family(int(self.port.fileno())) == socket.AF_UNIX:
            self.port.socket.close()
        else:
            await _deferred(self.port.stopListening())


def _reason(outcome: Sequence[Failure]) -> str:
    if not outcome:
        return "the endpoint does not bind at once"
    reason = outcome[0].getErrorMessage()
    taken = getattr(getattr(outcome[0].value, "socketError", None), "errno", None) == errno.EADDRINUSE
    advice = " End what listens there, or change listen and admin-listen of [dataapi]." if taken else ""
    return f"{reason}{advice}"


def bind(reactor: Any, descriptions: Sequence[str]) -> tuple[BoundSocket, ...]:
    """Bind every endpoint; raises ``StartFailed`` that names the one which cannot be."""
    bound: list[BoundSocket] = []
    for description in descriptions:
        outcome: list[Any] = []
        try:
            serverFromString(reactor, description).listen(Factory()).addBoth(outcome.append)
        except Exception as error:
            raise StartFailed(f"cannot listen on {description}: {error}") from error
        if not outcome or isinstance(outcome[0], Failure):
            raise StartFailed(f"cannot listen on {description}: {_reason(outcome)}")
        outcome[0].stopReading()
        if "backlog=" not in description and not description.startswith("systemd:"):
            outcome[0].socket.listen(_BACKLOG)
        bound.append(BoundSocket(description, outcome[0]))
    return tuple(bound)


def accept(reactor: Any, bound: Descriptor, factory: Any) -> Acceptor:
    """Begin to serve ``factory`` on a bound socket."""
    if bound.description.startswith("ssl:"):
        recorder = _ContextRecorder()
        serverFromString(recorder, bound.description).listen(factory)
        factory = TLSMemoryBIOFactory(recorder.context, False, factory)
    return Acceptor(reactor, bound.descriptor, factory)


class _ContextRecorder:
    """Stands in for a reactor to learn the TLS context that an ``ssl:`` endpoint would use."""

    context: Any = None

    def listenSSL(self, _port: int, _factory: Any, **options: Any) -> None:  # noqa: N802 - IReactorSSL
        """Keep the context."""
        self.context = options["contextFactory"]


def _family(descriptor: int) -> socket.AddressFamily:
    duplicate = socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)
    with duplicate:
        return socket.AddressFamily(duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN))


def _deferred(result: Any) -> Deferred[Any]:
    return result if isinstance(result, Deferred) else succeed(result)
