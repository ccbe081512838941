"""Listening sockets: bound once, before anything else, then served by this process or its workers.

Binding happens synchronously while twistd may still be root and before it detaches, so a
taken port is reported on the terminal.  A bound socket queues connections but accepts
none until a process *adopts* it; one process and many go the same way.
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
"""Seconds without accepting after the system had no descriptor or memory left for a connection."""
_BACKLOG = 1024
"""Connections that may wait to be accepted, unless the endpoint has ``backlog=``; Twisted's 50 are few."""


_AT_ONCE = 64
"""Connections that are accepted before the reactor looks after those that there are."""
_DEFER = 0.002
"""Seconds for which a worker leaves a connection to those that serve fewer."""
_ABSENT = 2**31 - 1
"""The count of connections of a worker that accepts none."""


_HANDSHAKE = 0.2
"""Seconds for connections that clients have begun to open when a socket takes no more."""
_EMPTY_WITHIN = 5.0
"""Seconds within which those that wait are accepted, unless no process can."""
_LOOK_AGAIN = 0.01

_MINIMUM_TTL = {
    socket.AF_INET: ((socket.IPPROTO_IP, 21),),  # IP_MINTTL
    socket.AF_INET6: ((socket.IPPROTO_IP, 21), (socket.IPPROTO_IPV6, 73)),  # IPV6_MINHOPCOUNT
}
"""The options that drop packets with a smaller time to live (``ip(7)``, ``ipv6(7)``)."""
_NOBODYS_TTL = 255
"""A time to live that no client's packets have: hosts begin with 64 or 128."""


def allow_open_files() -> None:
    """Let this process, and those it starts, have as many connections as the system would ever allow.

    The lower limit that systems begin with is for programs that use ``select()``.
    """
    _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))


class StartFailed(Exception):
    """A part of the daemon cannot start; the text is for the operator."""

    @property
    def status(self) -> int:
        """What the process exits with."""
        return os.EX_NOPERM if isinstance(self.__cause__, PermissionError) else os.EX_UNAVAILABLE


def make_counts(workers: int) -> int:
    """Return the descriptor of an unnamed file, by which workers share their counts of connections."""
    with tempfile.TemporaryFile() as file:
        file.write(_ABSENT.to_bytes(4, sys.byteorder) * workers)
        file.flush()
        return os.dup(file.fileno())


class ConnectionShare:
    """A worker's share of the connections: new ones go to the worker that serves the fewest.

    The first process to wake would otherwise accept all the connections that a client opens together.

    :param descriptor: what ``make_counts`` returned.
    :param workers: how many workers there are.
    :param worker: which of them this one is, from 0.
    """

    def __init__(self, descriptor: int, workers: int, worker: int) -> None:
        self._counts = memoryview(mmap(descriptor, 4 * workers)).cast("i")
        self._worker = worker
        self._left = False

    def report(self, count: int) -> None:
        if not self._left:
            self._counts[self._worker] = count

    def leave(self) -> None:
        """Leave all further connections to the other workers."""
        self.report(_ABSENT)
        self._left = True

    @property
    def is_due(self) -> bool:
        """Whether no other worker serves clearly fewer connections."""
        minimum = min(self._counts)
        return self._counts[self._worker] <= minimum + minimum // 8


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A bound socket as it is handed to a process.

    :ivar description: its endpoint string.
    :ivar descriptor: its file descriptor.
    :ivar share: the process's share of the connections, None for all of them.
    """

    description: str
    descriptor: int
    share: ConnectionShare | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A bound socket from which nothing accepts yet, made from an endpoint string.

    :ivar port: Twisted's port, which keeps the file system entry of a ``unix:`` socket.
    """

    description: str
    port: Any

    @property
    def handed(self) -> Descriptor:
        """What a process needs to accept from it."""
        return Descriptor(self.description, int(self.port.fileno()))

    async def empty(self, reactor: Any) -> None:
        """Accept no more clients, and return when all that have connected are accepted.

        Closing a socket resets connections that wait, whose clients may have sent a request already.  Those
        of a ``systemd:`` socket wait for the next process.
        """
        if self.description.startswith("systemd:"):
            return
        # Segments that begin a connection are dropped, so that the client repeats them; those that complete
        # one belong to it already, and are not.
        _require_ttl(self.port.socket, _NOBODYS_TTL)
        limit = reactor.seconds() + _EMPTY_WITHIN
        await deferLater(reactor, _HANDSHAKE)
        while select.select([self.port], [], [], 0)[0] and reactor.seconds() < limit:
            await deferLater(reactor, _LOOK_AGAIN)

    async def close(self) -> None:
        """Stop queueing; a ``systemd:`` socket is the service manager's and stays."""
        if self.description.startswith("systemd:") and _family(int(self.port.fileno())) == socket.AF_UNIX:
            self.port.socket.close()
        else:
            await maybeDeferred(self.port.stopListening)


def _require_ttl(connection: socket.socket, ttl: int) -> None:
    """Drop packets with a smaller time to live, or with 0 none, where the system can do that."""
    for level, option in _MINIMUM_TTL.get(connection.family, ()):
        with suppress(OSError):
            connection.setsockopt(level, option, ttl)


def _told(error: Exception) -> str:
    """Return what an error says, without its number, and with the file that it is about."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    file = error.filename2 or error.filename
    return f"{error.strerror}: {os.fsdecode(file)}" if file else error.strerror


def _reason(outcome: Sequence[Failure]) -> str:
    if not outcome:
        return "the endpoint does not bind at once"
    error = outcome[0].value
    reason = _told(error) if isinstance(error, OSError) else outcome[0].getErrorMessage()
    taken = getattr(getattr(outcome[0].value, "socketError", None), "errno", None) == errno.EADDRINUSE
    advice = " End what listens there, or change listen and admin-listen of [dataapi]." if taken else ""
    return f"{reason}{advice}"


class _ReusedPort(Port):
    """A TCP port that other processes may bind at the same time."""

    def createInternetSocket(self) -> socket.socket:  # noqa: N802 - twisted's name
        """Make the socket, which is bound later."""
        made: socket.socket = super().createInternetSocket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        return made


class _ReusingPorts:
    """Stands in for a reactor to bind TCP ports that other processes may bind, too."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def listenTCP(  # noqa: N802 - IReactorTCP
        self, port: int, factory: Factory, backlog: int = 50, interface: str = ""
    ) -> _ReusedPort:
        """Bind a port."""
        made = _ReusedPort(port, factory, backlog, interface, self._reactor)
        made.startListening()
        return made

    def listenSSL(  # noqa: N802 - IReactorSSL
        self, port: int, factory: Factory, _context: object, **options: Any
    ) -> _ReusedPort:
        """Bind a port; ``accept`` adds the encryption."""
        return self.listenTCP(port, factory, **options)


def bind(reactor: Any, descriptions: Sequence[str], *, reuse_port: bool = False) -> tuple[BoundSocket, ...]:
    """Bind every endpoint; raises ``StartFailed`` that names the one which cannot be.

    :param reuse_port: whether other processes may bind the TCP ports, too.
    """
    bound: list[BoundSocket] = []
    reactor = _ReusingPorts(reactor) if reuse_port else reactor
    for description in descriptions:
        outcome: list[Any] = []
        try:
            serverFromString(reactor, description).listen(Factory()).addBoth(outcome.append)
        except LookupError as error:
            passed = os.environ.get("LISTEN_FDNAMES", "").replace(":", ", ") or "none"
            reason = f"the service manager passes no such socket; it passes {passed}"
            raise StartFailed(f"cannot listen on {description}: {reason}") from error
        except Exception as error:
            raise StartFailed(f"cannot listen on {description}: {_told(error)}") from error
        if not outcome or isinstance(outcome[0], Failure):
            cause = getattr(outcome[0].value, "socketError", None) if outcome else None
            raise StartFailed(f"cannot listen on {description}: {_reason(outcome)}") from cause
        outcome[0].stopReading()
        if "backlog=" not in description and not description.startswith("systemd:"):
            outcome[0].socket.listen(_BACKLOG)
        bound.append(BoundSocket(description, outcome[0]))
    return tuple(bound)


def accept(reactor: Any, bound: Descriptor, factory: Any) -> Acceptor:
    """Begin to serve ``factory`` on a bound socket; with a share it reports its connections."""
    if bound.share is not None:
        factory.report = bound.share.report
        factory.report(0)
    if bound.description.startswith("ssl:"):
        recorder = _ContextRecorder()
        serverFromString(recorder, bound.description).listen(factory)
        factory = TLSMemoryBIOFactory(recorder.context, False, factory)
    return Acceptor(reactor, bound.descriptor, factory, bound.share)


class _ContextRecorder:
    """Stands in for a reactor to learn the TLS context that an ``ssl:`` endpoint would use."""

    context: Any = None

    def listenSSL(self, _port: int, _factory: Any, **options: Any) -> None:  # noqa: N802 - IReactorSSL
        """Record the context."""
        self.context = options["contextFactory"]


def _family(descriptor: int) -> socket.AddressFamily:
    duplicate = socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)
    with duplicate:
        return socket.AddressFamily(duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN))


@implementer(IReadDescriptor)
class Acceptor:
    """Accepts connections, several in a turn of the reactor, but none that is another worker's.

    :param descriptor: the bound socket; a duplicate is used.
    :param factory: makes the protocols; started here and stopped by ``stop``.
    :param share: the process's share of the connections, None for all of them.
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
        """Return the descriptor that the reactor watches."""
        return self._socket.fileno()

    def logPrefix(self) -> str:  # noqa: N802 - ILoggingContext
        """Return the name for the reactor's own log messages."""
        return "dataapi"

    def doRead(self) -> None:  # noqa: N802 - IReadDescriptor
        """Accept what waits, unless another worker should rather do so."""
        for _ in range(_AT_ONCE):
            if self._share is not None and not self._share.is_due:
                self._pause(_DEFER, self._accept_anyway)
                return
            if not self._accept():
                return

    def _accept(self) -> bool:
        """Accept one connection, and return whether there may be more."""
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError, InterruptedError):
            return False
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._report(error)
            return False
        with connection:
            _require_ttl(connection, 0)  # it has what the listening socket had when it was opened
            try:
                self._reactor.adoptStreamConnection(connection.fileno(), connection.family, self._factory)
            except OSError as error:
                # Otherwise the peer has closed it in the meantime.
                if error.errno in _EXHAUSTED:
                    self._report(error)
                    return False
        return True

    def connectionLost(self, reason: Failure) -> None:  # noqa: ARG002, N802 - IReadDescriptor
        """End, because the reactor does, or because the socket is broken."""
        self.stop()

    def stop(self) -> None:
        """Accept no more; the socket itself and a ``unix:`` path stay with the process that bound it."""
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if self._socket.fileno() != -1:
            self._reactor.removeReader(self)
            self._socket.close()
            self._factory.doStop()
            if self._share is not None:
                self._share.leave()

    def _report(self, error: OSError) -> None:
        _log.error("no connection can be accepted: {error}", error=os.strerror(error.errno or 0))
        self._pause(_PAUSE, self._again)

    def _pause(self, seconds: float, resume: Callable[[], None]) -> None:
        self._reactor.removeReader(self)
        self._resume = self._reactor.callLater(seconds, resume)

    def _again(self) -> None:
        self._resume = None
        self._reactor.addReader(self)

    def _accept_anyway(self) -> None:
        """Accept what no other process has accepted: a worker with fewer connections may be busy."""
        self._again()
        self._accept()
