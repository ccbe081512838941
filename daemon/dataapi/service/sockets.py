"""Listening sockets: bound before anything else, then served by this process or its workers.

Sockets are bound synchronously, while twistd may still be root and before it detaches, so that a port in use
is reported on the terminal. A bound socket queues connections, but no connection is accepted until an
``Acceptor`` is created for it, in this process or in a worker.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from mmap import mmap
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.internet.tcp import Port
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

_log = Logger(namespace="dataapi.service")
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE = 1.0
"""Seconds to stop accepting after the system has run out of descriptors or memory."""
_BACKLOG = 1024
"""Maximum length of the accept queue, unless the endpoint has ``backlog=``. Twisted's default is only 50."""


_ACCEPT_BATCH = 64
"""Maximum number of connections to accept in one iteration of the reactor."""
_DEFER = 0.002
"""Maximum wait for a less busy worker to accept a connection, in seconds."""
_ABSENT = 2**31 - 1
"""Connection count that marks a worker as not accepting connections."""


_HANDSHAKE = 0.2
"""Seconds in which handshakes can complete after a socket has begun to refuse new clients."""
_EMPTY_WITHIN = 5.0
"""Maximum number of seconds to wait until the queued connections have been accepted."""
_POLL_INTERVAL = 0.01

_MINIMUM_TTL = {
    socket.AF_INET: ((socket.IPPROTO_IP, 21),),  # IP_MINTTL
    socket.AF_INET6: ((socket.IPPROTO_IP, 21), (socket.IPPROTO_IPV6, 73)),  # IPV6_MINHOPCOUNT
}
"""Socket options for the minimum TTL of incoming packets (``ip(7)``, ``ipv6(7)``)."""
_UNUSED_TTL = 255
"""A TTL that packets from clients never have, because operating systems start with 64 or 128."""


def allow_open_files() -> None:
    """Raise this process's limit on open files to the hard limit.

    The soft limit is low by default, for the sake of programs that use ``select()``.
    """
    _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))


class StartFailed(Exception):
    """Raised when a component of the daemon cannot start. The message is for the operator."""

    @property
    def status(self) -> int:
        return os.EX_NOPERM if isinstance(self.__cause__, PermissionError) else os.EX_UNAVAILABLE


def make_counts(workers: int) -> int:
    """Return the descriptor of an unnamed file in which workers share their connection counts."""
    with tempfile.TemporaryFile() as file:
        file.write(_ABSENT.to_bytes(4, sys.byteorder) * workers)
        file.flush()
        return os.dup(file.fileno())


class ConnectionShare:
    """Distributes new connections: the worker with the fewest connections accepts next.

    Otherwise the process that wakes up first would accept all connections that a client opens together.

    :param descriptor: result of ``make_counts``.
    :param worker: index of this worker, from 0.
    """

    def __init__(self, descriptor: int, workers: int, worker: int) -> None:
        self._counts = memoryview(mmap(descriptor, 4 * workers)).cast("i")
        self._worker = worker
        self._left = False

    def report(self, count: int) -> None:
        if not self._left:
            self._counts[self._worker] = count

    def leave(self) -> None:
        self.report(_ABSENT)
        self._left = True

    @property
    def is_due(self) -> bool:
        """Whether this worker should accept, because no other worker has notably fewer connections."""
        minimum = min(self._counts)
        return self._counts[self._worker] <= minimum + minimum // 8


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A bound socket, as passed to a process. ``description`` is the endpoint string.

    ``share`` distributes connections among workers. It is None for a single process.
    """

    description: str
    descriptor: int
    share: ConnectionShare | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A bound socket, on which no connection is accepted yet.

    Twisted's port owns the path of a ``unix:`` socket.
    """

    description: str
    port: Any

    @property
    def as_descriptor(self) -> Descriptor:
        return Descriptor(self.description, int(self.port.fileno()))

    async def drain(self, reactor: Any) -> None:
        """Refuse new clients, and return when all queued connections have been accepted.

        Closing a socket resets queued connections, on which clients may have sent requests. The connections
        of a ``systemd:`` socket stay queued for the next process.
        """
        if self.description.startswith("systemd:"):
            return
        # SYN packets are dropped, so that the client repeats them. The packets that complete a handshake
        # belong to the new connection and are not dropped.
        _require_ttl(self.port.socket, _UNUSED_TTL)
        limit = reactor.seconds() + _EMPTY_WITHIN
        await deferLater(reactor, _HANDSHAKE)
        while select.select([self.port], [], [], 0)[0] and reactor.seconds() < limit:
            await deferLater(reactor, _POLL_INTERVAL)

    async def close(self) -> None:
        """Close the socket, unless the service manager owns it (``systemd:``)."""
        if self.description.startswith("systemd:") and _family(int(self.port.fileno())) == socket.AF_UNIX:
            self.port.socket.close()
        else:
            await maybeDeferred(self.port.stopListening)


def _require_ttl(connection: socket.socket, ttl: int) -> None:
    """Drop packets with a lower TTL (0: none), if the system supports it."""
    for level, option in _MINIMUM_TTL.get(connection.family, ()):
        with suppress(OSError):
            connection.setsockopt(level, option, ttl)


def _error_text(error: Exception) -> str:
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    file = error.filename2 or error.filename
    return f"{error.strerror}: {os.fsdecode(file)}" if file else error.strerror


def _reason(outcome: Sequence[Failure]) -> str:
    if not outcome:
        return "the endpoint does not bind synchronously"
    error = outcome[0].value
    reason = _error_text(error) if isinstance(error, OSError) else outcome[0].getErrorMessage()
    in_use = getattr(getattr(outcome[0].value, "socketError", None), "errno", None) == errno.EADDRINUSE
    advice = " Stop the other process, or change listen or admin-listen in [dataapi]." if in_use else ""
    return f"{reason}{advice}"


class _SharedPort(Port):
    def createInternetSocket(self) -> socket.socket:  # noqa: N802 - twisted's name
        port_socket: socket.socket = super().createInternetSocket()
        port_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        return port_socket


class _PortSharingReactor:
    """A reactor proxy that binds TCP ports with ``SO_REUSEPORT``."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def listenTCP(  # noqa: N802 - IReactorTCP
        self, port: int, factory: Factory, backlog: int = 50, interface: str = ""
    ) -> _SharedPort:
        port_socket = _SharedPort(port, factory, backlog, interface, self._reactor)
        port_socket.startListening()
        return port_socket

    def listenSSL(  # noqa: N802 - IReactorSSL
        self, port: int, factory: Factory, _context: object, **options: Any
    ) -> _SharedPort:
        """Bind a port without TLS. ``accept`` adds TLS."""
        return self.listenTCP(port, factory, **options)


def bind(reactor: Any, descriptions: Sequence[str], *, reuse_port: bool = False) -> tuple[BoundSocket, ...]:
    """Bind every endpoint. Raises ``StartFailed`` with the endpoint that cannot be bound.

    :param reuse_port: whether other processes may bind the same TCP ports.
    """
    bound: list[BoundSocket] = []
    reactor = _PortSharingReactor(reactor) if reuse_port else reactor
    for description in descriptions:
        outcome: list[Any] = []
        try:
            serverFromString(reactor, description).listen(Factory()).addBoth(outcome.append)
        except LookupError as error:
            names = os.environ.get("LISTEN_FDNAMES", "").replace(":", ", ") or "none"
            reason = f"the service manager passes no such socket (available: {names})"
            raise StartFailed(f"cannot listen on {description}: {reason}") from error
        except Exception as error:
            raise StartFailed(f"cannot listen on {description}: {_error_text(error)}") from error
        if not outcome or isinstance(outcome[0], Failure):
            cause = getattr(outcome[0].value, "socketError", None) if outcome else None
            raise StartFailed(f"cannot listen on {description}: {_reason(outcome)}") from cause
        outcome[0].stopReading()
        if "backlog=" not in description and not description.startswith("systemd:"):
            outcome[0].socket.listen(_BACKLOG)
        bound.append(BoundSocket(description, outcome[0]))
    return tuple(bound)


def accept(reactor: Any, bound: Descriptor, factory: Any) -> Acceptor:
    if bound.share is not None:
        factory.report = bound.share.report
        factory.report(0)
    if bound.description.startswith("ssl:"):
        recorder = _ContextRecorder()
        serverFromString(recorder, bound.description).listen(factory)
        factory = TLSMemoryBIOFactory(recorder.context, False, factory)
    return Acceptor(reactor, bound.descriptor, factory, bound.share)


class _ContextRecorder:
    """A reactor stand-in that captures the TLS context of an ``ssl:`` endpoint."""

    context: Any = None

    def listenSSL(self, _port: int, _factory: Any, **options: Any) -> None:  # noqa: N802 - IReactorSSL
        self.context = options["contextFactory"]


def _family(descriptor: int) -> socket.AddressFamily:
    duplicate = socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)
    with duplicate:
        return socket.AddressFamily(duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN))


@implementer(IReadDescriptor)
class Acceptor:
    """Accepts connections, several per iteration of the reactor, unless it is another worker's turn.

    :param descriptor: the bound socket. The acceptor duplicates it.
    :param factory: creates the protocols. It is started here and stopped by ``stop``.
    """

    def __init__(
        self, reactor: Any, descriptor: int, factory: Any, share: ConnectionShare | None = None
    ) -> None:
        self._reactor = reactor
        self._factory = factory
        self._share = share
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._resume: Any = None
        factory.doStart()
        reactor.addReader(self)

    def fileno(self) -> int:
        return self._socket.fileno()

    def logPrefix(self) -> str:  # noqa: N802 - ILoggingContext
        return "dataapi"

    def doRead(self) -> None:  # noqa: N802 - IReadDescriptor
        for _ in range(_ACCEPT_BATCH):
            if self._share is not None and not self._share.is_due:
                self._pause(_DEFER, self._accept_anyway)
                return
            if not self._accept():
                return

    def _accept(self) -> bool:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError, InterruptedError):
            return False
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._log_exhaustion(error)
            return False
        with connection:
            _require_ttl(connection, 0)  # the minimum TTL is inherited from the listening socket
            try:
                self._reactor.adoptStreamConnection(connection.fileno(), connection.family, self._factory)
            except OSError as error:
                # Errors not in ``_EXHAUSTED`` mean that the peer has closed the connection.
                if error.errno in _EXHAUSTED:
                    self._log_exhaustion(error)
                    return False
        return True

    def connectionLost(self, reason: Failure) -> None:  # noqa: ARG002, N802 - IReadDescriptor
        self.stop()

    def stop(self) -> None:
        """Stop accepting. The process that bound the socket closes it, and removes a ``unix:`` path."""
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if self._socket.fileno() != -1:
            self._reactor.removeReader(self)
            self._socket.close()
            self._factory.doStop()
            if self._share is not None:
                self._share.leave()

    def _log_exhaustion(self, error: OSError) -> None:
        _log.error("no connection can be accepted: {error}", error=os.strerror(error.errno or 0))
        self._pause(_PAUSE, self._resume_accepting)

    def _pause(self, seconds: float, resume: Callable[[], None]) -> None:
        self._reactor.removeReader(self)
        self._resume = self._reactor.callLater(seconds, resume)

    def _resume_accepting(self) -> None:
        self._resume = None
        self._reactor.addReader(self)

    def _accept_anyway(self) -> None:
        """Accept a connection that no other worker accepted, because a less busy worker may be blocked."""
        self._resume_accepting()
        self._accept()
